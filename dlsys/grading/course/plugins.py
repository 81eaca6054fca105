"""Functions of an instructor's own: FILE.py:FUNCTION, called so that what fails is told by name."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def is_plugin(text: str) -> bool:
    """Whether `text` is meant to name a function of a file."""
    return ".py:" in text


def absolute(text: str) -> str:
    """FILE.py:FUNCTION with the whole path of the file, as it is recorded for later runs."""
    file, _, name = text.rpartition(":")
    return f"{Path(file).resolve()}:{name}"


def load(text: str) -> Callable[..., Any]:
    """The function that FILE.py:FUNCTION names; raises ValueError."""
    file, _, name = text.rpartition(":")
    if not file.endswith(".py") or not name.isidentifier():
        raise ValueError(f"{text!r} names no function of a file: write FILE.py:FUNCTION.")
    if not Path(file).is_file():
        raise ValueError(f"{text}: there is no file {file}.")
    function = getattr(call(text, _module, Path(file)), name, None)
    if not callable(function):
        raise ValueError(f"{text}: {file} has no function {name}.")
    return function


def _module(path: Path) -> object:
    spec = importlib.util.spec_from_file_location(f"dlsys_plugin_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no source file of Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses, among others, look for it there
    spec.loader.exec_module(module)
    return module


def call(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What `function` returns; raises ValueError, with `name`, for whatever it raises."""
    try:
        return function(*arguments)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{name} failed: {type(error).__name__}: {error}") from error
