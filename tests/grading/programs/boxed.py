"""A role for boxes: runs what it is sent, a line each, and answers with `answer` as JSON."""

import json


def main(line, limits):
    with line.makefile("rw") as lines:
        for source in lines:
            space = {"limits": limits}
            try:
                exec(json.loads(source), space)
                answer = space.get("answer")
            except Exception as error:
                answer = f"{type(error).__name__}: {error}"
            lines.write(json.dumps(answer) + "\n")
            lines.flush()
