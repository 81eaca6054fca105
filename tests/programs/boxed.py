"""A role for boxes: evaluates what it is sent, a line each, and answers with the value as JSON."""

import json


def main(line, limits):
    with line.makefile("rw") as lines:
        for source in lines:
            space = {"limits": limits}
            try:
                exec(json.loads(source), space)
                answer = space.get("answer")
            except BaseException as error:
                answer = f"{type(error).__name__}: {error}"
            lines.write(json.dumps(answer) + "\n")
            lines.flush()
