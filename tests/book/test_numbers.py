"""What vouches for a page's numbers runs with the page, where its section ends, and leaves nothing behind."""

import re
from pathlib import Path

import pytest

pytest.importorskip("myst_nb", reason="the book's tools are not installed")

from sphinx.cmd.build import build_main

from dlsys.notebook.book.numbers import Part, parts, with_numbers
from tests.book.test_cache import runs
from tests.book.test_execute import COUNT, HEAD, arguments

jupytext = pytest.importorskip("jupytext")

PAGE = """## One

```python
# ## Two
```

```{code-cell} ipython3
COUNT
x = 3
```

It is 3.

### Two

It is 3 again.

## Three

```{code-cell} ipython3
x = 4
print("y" in globals(), f"{x} is the end")
```
"""
NUMBERS = '"""Of alpha."""\n\nfrom math import sqrt\n\n# %% One\n\ny = x\nassert y == 3\n\n'


def write(folder: Path, numbers: str) -> Path:
    (folder / "chapters/numbers").mkdir(parents=True, exist_ok=True)
    (folder / "index.md").write_text("# Book\n\n```{toctree}\nchapters/alpha\n```\n")
    count = COUNT.replace("BOOK/NAME", f"{folder}/chapters/alpha")
    page = folder / "chapters/alpha.md"
    page.write_text(HEAD + PAGE.replace("COUNT", count))
    (folder / "chapters/numbers/alpha.py").write_text(numbers)
    return page


def shown(folder: Path) -> str:
    return (folder.parent / "html/chapters/alpha.html").read_text()


def test_a_part_runs_on_the_names_that_its_section_ends_with(tmp_path, capsys):
    fine = NUMBERS + "# %% Two\n\nassert x == 3 == sqrt(9)\n\n# %% Three\n\nassert x == 4\n"
    book = write(tmp_path / "book", fine).parents[1]
    assert build_main(arguments(book)) == 0, capsys.readouterr().err
    assert "False 4 is the end" in shown(book)
    assert "assert" not in shown(book)
    assert "_numbers" not in shown(book)
    assert build_main(arguments(book)) == 0
    assert runs(book) == {"alpha": 1}
    write(book, fine + "\nassert x > 3\n")
    assert build_main(arguments(book)) == 0
    assert runs(book) == {"alpha": 2}, "what vouches for it has changed"


def test_a_number_that_is_not_so_is_said_and_takes_nothing_away(tmp_path, capsys):
    book = write(tmp_path / "book", NUMBERS + "# %% Two\n\nassert x == 5\n").parents[1]
    for attempt in (1, 2):
        assert build_main(arguments(book)) == 1
        said = capsys.readouterr().err
        assert "chapters/numbers/alpha.py" in said
        assert re.search(r"\b12 assert x == 5", said), said
        assert runs(book) == {"alpha": attempt}
    assert "4 is the end" in shown(book)
    assert "came out otherwise on this machine" in shown(book)
    assert "chapters/numbers/alpha.py, Two: AssertionError" in shown(book)


def test_a_part_of_no_section_is_refused(tmp_path):
    page = write(tmp_path, NUMBERS + "# %% Four\n\nassert x\n")
    with pytest.raises(ValueError, match=r"A part of alpha\.py is 'Four'; it must be named by"):
        with_numbers(page, jupytext.read(page))


def test_a_section_has_one_part(tmp_path):
    (tmp_path / "a.py").write_text(NUMBERS + "# %% One\n")
    with pytest.raises(ValueError, match=r"A section is 'One'; it must be named once in a\.py"):
        parts(tmp_path / "a.py")
    assert parts(tmp_path / "b.py") == {"": Part(0, "")}
