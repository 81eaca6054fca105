"""How each question did in a class: difficulty, discrimination, and the commonest mistakes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import StatisticsError, correlation, fmean

from dlsys.grading.result import GRADED, UNANSWERED, QuestionResult, Result

LISTED_MISTAKES = 3
ByHand = Mapping[tuple[str, str], Mapping[str, float]]  # by student and slug, by question


@dataclass(frozen=True)
class Item:
    """A question in a class of `students` that were graded.

    difficulty: the mean share of its points that was earned, so 1 is the easiest; None as long as
        an answer waits for a person
    discrimination: correlation of its points with those of all other questions that are graded by
        running; None where it is undefined (fewer than three students, one question, everybody
        earned the same, or an answer waits)
    mistakes: (hint, students who were given it), the commonest first
    """

    slug: str
    id: str
    title: str
    points: float
    students: int
    difficulty: float | None
    discrimination: float | None
    unanswered: int
    mistakes: tuple[tuple[str, int], ...]


def items(results: Iterable[Result], by_hand: ByHand | None = None) -> list[Item]:
    """The statistics of every question in the results that are graded, by assignment, in order.

    by_hand: the points that a person gave; they take the place of what running gave
    """
    graded: dict[str, list[Result]] = {}
    for result in results:
        if result.status == GRADED:
            given = (by_hand or {}).get((result.student, result.slug), {})
            graded.setdefault(result.slug, []).append(_counting(result, given))
    return [
        item
        for slug in sorted(graded)
        for item in (
            *_assignment(slug, graded[slug]),
            *_in_words(slug, graded[slug], by_hand or {}),
        )
    ]


def _counting(result: Result, given: Mapping[str, float]) -> Result:
    """A result with the points that count, as in `Grade.points`."""
    questions = [replace(q, earned=given.get(q.id, q.earned)) for q in result.questions]
    return replace(result, questions=questions)


def _in_words(slug: str, results: Sequence[Result], by_hand: ByHand) -> list[Item]:
    """The written questions; whoever left one empty earned nothing for it."""
    found = []
    asked = {each.id: each for result in results for each in result.written}
    for id_, first in asked.items():
        answers = [
            (each, result.earned or 0.0, by_hand.get((result.student, slug), {}).get(id_))
            for result in results
            for each in result.written
            if each.id == id_
        ]
        earned = [0.0 if given is None else given for _, _, given in answers]
        waits = any(each.answered and given is None for each, _, given in answers)
        others = [total for _, total, _ in answers]
        found.append(
            Item(
                slug,
                id_,
                first.title,
                first.points,
                len(answers),
                None if waits else fmean(earned) / first.points,
                None if waits else _correlation(earned, others),
                sum(not each.answered for each, _, _ in answers),
                (),
            )
        )
    return found


def _assignment(slug: str, results: Sequence[Result]) -> list[Item]:
    by_student = [{each.id: each for each in result.questions} for result in results]
    totals = [sum(each.earned for each in answers.values()) for answers in by_student]
    ids = list(dict.fromkeys(each.id for result in results for each in result.questions))
    return [
        _item(
            slug,
            [(answers[id_], total) for answers, total in zip(by_student, totals, strict=True)],
        )
        for id_ in ids
        if all(id_ in answers for answers in by_student)
    ]


def _item(slug: str, answers: Sequence[tuple[QuestionResult, float]]) -> Item:
    questions = [question for question, _ in answers]
    first = questions[0]
    earned = [question.earned for question in questions]
    hints = Counter(hint for question in questions for hint in _hints(question))
    return Item(
        slug=slug,
        id=first.id,
        title=first.title,
        points=first.points,
        students=len(questions),
        difficulty=fmean(earned) / first.points if first.points else 0.0,
        discrimination=_correlation(
            earned, [total - question.earned for question, total in answers]
        ),
        unanswered=sum(question.status == UNANSWERED for question in questions),
        mistakes=tuple(hints.most_common(LISTED_MISTAKES)),
    )


def _hints(question: QuestionResult) -> list[str]:
    """The hints for an answer, each once: a student makes a mistake once."""
    if question.status == UNANSWERED:
        return []
    return list(dict.fromkeys(c.hint for c in question.checks if c.hint and not c.passed))


def _correlation(earned: Sequence[float], rest: Sequence[float]) -> float | None:
    if len(earned) < 3:
        return None
    try:
        # Rounded, so that sums in another order do not make a constant vary.
        return correlation([round(x, 9) for x in earned], [round(x, 9) for x in rest])
    except StatisticsError:  # one of the two is constant
        return None
