"""A figure of Matplotlib's as a small SVG inside a page, in the colors of the page's theme.

Colors that are roles (`dlsys.palette`) become variables of the stylesheet, with themselves as what
holds where there is none; whatever is repeated is written once.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from dlsys.palette import ROLES, STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROLE = {color: f"var(--figure-{name}, {color})" for name, color in ROLES.items()}
_COLOR = re.compile("|".join(_ROLE), re.IGNORECASE)
_REFERENCE = re.compile(r"(?:^|url\()#(?=([\w-]+))")
_FONTS = re.compile(r"'[^;]*sans-serif")
_LINES, _LINE = re.compile(r"[MLz\d. -]+"), re.compile(r"([MLz])(?: ([\d.-]+) ([\d.-]+))?")
_NUMBER, _PEN = re.compile(r"-?[\d.]+"), re.compile(r"stroke-width: ([\d.]+)")
_DIGITS = re.compile(r"-?\d+\.\d{3,}")
_TURNED_BY_NOTHING = re.compile(r"\s*rotate\(-?0 [^)]*\)")


def drawn(draw: Callable[[], Figure]) -> str:
    """The SVG file of a figure that is drawn for a page: the same bytes every time."""
    from matplotlib import pyplot, rc_context

    # With its first figure a notebook's backend sets what a page's figures look like. Within the
    # settings of this one it would be undone at their end.
    pyplot.close(pyplot.figure())
    file = io.StringIO()
    with rc_context(STYLE):
        draw().savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def inline(svg: str, label: str, name: str) -> str:
    """An SVG file as an element of a page, which a screen reader calls `label`.

    name: begins every id and class inside, so that two figures of a page do not share one
    """
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        _plain(element)
    _drop(root, {"metadata", "style"})
    for pattern in root.iter("pattern"):
        _dots(pattern)
    _name(root, name)
    _merge(root)
    root.attrib = {
        "class": "plot",
        "role": "img",
        "aria-label": label,
        "viewBox": root.attrib["viewBox"],
        "width": root.attrib["width"],
        "style": "stroke-linejoin: round; stroke-linecap: butt",
    }
    _share_styles(root, name)
    return ElementTree.tostring(root, encoding="unicode")


def by_role(style: str) -> str:
    """Styles in which each color of a role is the theme's, and itself where there is no theme."""
    return _COLOR.sub(lambda found: _ROLE[found.group().lower()], style)


def _plain(element: Element) -> None:
    """Tags and attributes without namespaces, colors as roles, two decimals, the page's font."""
    element.tag = element.tag.rpartition("}")[2]
    element.text = (element.text or "").strip() or None if len(element) else element.text
    element.tail = None if element.tag != "tspan" else element.tail
    given = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
    # A variable holds in a style, not in an attribute.
    painted = [key for key in ("fill", "stroke") if _COLOR.fullmatch(given.get(key, ""))]
    style = [given["style"]] if given.get("style") else []
    style += [f"{key}: {given.pop(key)}" for key in painted]
    if style:
        given["style"] = _FONTS.sub("sans-serif", by_role("; ".join(style)))
    for key in given.keys() & {"d", "x", "y", "transform", "points"}:
        given[key] = _DIGITS.sub(lambda found: f"{float(found.group()):.2f}", given[key])
        given[key] = " ".join(_TURNED_BY_NOTHING.sub("", given[key]).split())
    if "d" in given:
        given["d"] = _straight(given["d"])
    element.attrib = {key: value for key, value in given.items() if value}


def _straight(way: str) -> str:
    """A path of straight lines with H and V for what is level or upright: most are bars."""
    if not _LINES.fullmatch(way):
        return way
    short, before = [], ("", "")
    for letter, x, y in _LINE.findall(way):
        if letter == "L" and y == before[1]:
            short.append(f"H{x}")
        elif letter == "L" and x == before[0]:
            short.append(f"V{y}")
        else:
            short.append(f"{letter}{x} {y}".strip())
        before = (x, y)
    return "".join(short)


def _dots(pattern: Element) -> None:
    """Draw a hatch of dots as points of a round pen; Matplotlib writes each as eight curves."""
    way = pattern.find("path")
    if way is None or "C" not in way.attrib["d"]:
        return
    points, sizes = [], []
    for circle in way.attrib["d"].split("M")[1:]:
        numbers = [float(number) for number in _NUMBER.findall(circle)]
        (left, right), (top, bottom) = ((min(n), max(n)) for n in (numbers[::2], numbers[1::2]))
        points.append(f"M{(left + right) / 2:g} {(top + bottom) / 2:g}h0")
        sizes.append(right - left)
    way.attrib["d"] = "".join(points)
    (pen,) = _PEN.findall(way.attrib["style"])
    style = _PEN.sub(f"stroke-width: {float(pen) + max(sizes):g}", way.attrib["style"])
    way.attrib["style"] = style.replace("linecap: butt", "linecap: round")


def _drop(element: Element, tags: set[str]) -> None:
    for child in list(element):
        _drop(child, tags)
        if child.tag in tags or (child.tag in {"defs", "g"} and not len(child)):
            element.remove(child)


def _name(root: Element, name: str) -> None:
    """Keep the ids that something refers to, and put `name` before them."""
    links = [(element, *link) for element in root.iter() for link in _links(element)]
    wanted = {found for _, _, value in links for found in _REFERENCE.findall(value)}
    for element in root.iter():
        if element.attrib.get("id") in wanted:
            element.attrib["id"] = f"{name}-{element.attrib['id']}"
        else:
            element.attrib.pop("id", None)
    for element, key, value in links:
        element.attrib[key] = _REFERENCE.sub(rf"\g<0>{name}-", value)


def _links(element: Element) -> list[tuple[str, str]]:
    """The attributes that refer to something by its id, with their values."""
    return [(k, v) for k, v in element.attrib.items() if k == "href" or "url(#" in v]


def _merge(element: Element) -> None:
    """Take groups away that say nothing, and join neighboring paths that look the same."""
    children: list[Element] = []
    for child in element:
        _merge(child)
        children.extend(child if child.tag == "g" and not child.attrib else [child])
    kept: list[Element] = []
    for child in children:
        before = kept[-1] if kept else None
        if before is not None and child.tag == "path" and _look(child) == _look(before):
            before.attrib["d"] += f" {child.attrib['d']}"
        else:
            kept.append(child)
    element[:] = kept


def _look(element: Element) -> tuple[str, dict[str, str]]:
    """All that a path has but its way; what has an id is one of its kind."""
    return element.tag, {key: value for key, value in element.attrib.items() if key != "d"}


def _share_styles(root: Element, name: str) -> None:
    """Write a style that several elements have once, as a class."""
    styles = Counter(element.attrib.get("style", "") for element in root.iter())
    shared = [style for style, times in styles.items() if style and times > 1]
    classes = {style: f"{name}-{number}" for number, style in enumerate(shared)}
    for element in root.iter():
        if (style := element.attrib.get("style", "")) in classes:
            element.attrib["class"] = classes[style]
            del element.attrib["style"]
    sheet = Element("style")
    sheet.text = "".join(f".{known}{{{style}}}" for style, known in classes.items())
    root.insert(0, sheet)
