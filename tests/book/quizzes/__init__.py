"""Quizzes: a file a slug, with what its numbers are computed from."""

from pathlib import Path

QUIZZES = Path(__file__).parents[3] / "dlsys" / "notebook" / "quizzes"
