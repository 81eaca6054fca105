"""The exercises on precision: their figures are those of the package, and what holds for all."""

import math

import pytest
import torch

from dlsys.precision import BF16, FP16, FP32, Format, LossScaler, round_to, signal_to_noise
from tests.exercises import contract
from tests.exercises.notebooks import model_answer, run_of, solved


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...
