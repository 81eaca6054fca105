"""What holds for every quiz: a slug's test file takes this class over.

It has `NUMBERS`, the right answer to each numeric question by the question's id, and
`MISCONCEPTIONS`, wrong ones by words of the feedback on them, both computed.
"""

import json
import re
from typing import Any

from dlsys.notebook import quiz

Numbers = dict[str, float]


class Quiz:
    """How a quiz is built, and that its numbers and its feedback are right."""

    def test_numeric_answers_are_what_dlsys_computes(
        self, question: dict[str, Any], numbers: Numbers, misconceptions: dict[str, Numbers]
    ) -> None:
        if question["type"] != "numeric":
            assert question["id"] not in numbers
            return
        assert answered(question, numbers[question["id"]])["correct"]
        for words, number in misconceptions.get(question["id"], {}).items():
            answer = answered(question, number)
            assert not answer["correct"]
            assert words in answer["feedback"]

    def test_every_option_has_feedback_of_its_own_and_no_latex(
        self, question: dict[str, Any]
    ) -> None:
        answers = question["answers"]
        feedback = [answer["feedback"] for answer in answers]
        assert len(set(feedback)) == len(feedback) >= 4
        right = [answer for answer in answers if answer.get("correct")]
        if question["type"] == "numeric":
            assert answers[-1]["type"] == "default"
            assert len(right) == 1
        else:
            assert (len(right) == 1) == (question["type"] == "multiple_choice")
            assert len(right) < len(answers)
        # The quiz's script turns dollar signs into formulas and [..](..) into links.
        assert not re.search(r"[$\\]|\]\(", json.dumps(question).replace('\\"', ""))

    def test_a_quiz_has_six_to_eight_questions_of_several_kinds(self, slug: str) -> None:
        questions = quiz.show(slug).questions
        assert 6 <= len(questions) <= 8
        assert {q["type"] for q in questions} == {"multiple_choice", "many_choice", "numeric"}
        assert len({q["id"] for q in questions}) == len(questions)
        first = [q["answers"][0].get("correct") for q in questions if q["type"] != "numeric"]
        assert not all(first), "the right answer always comes first"


def answered(question: dict[str, Any], number: float) -> dict[str, Any]:
    """The answer of the quiz that a reader who types `number` is shown."""
    for answer in question["answers"]:
        low, high = answer.get("range", (answer.get("value"),) * 2)
        if low is not None and (low <= number < high or low == number):
            return answer
    return question["answers"][-1]
