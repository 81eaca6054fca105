"""The price of memory: which tensors are kept at each point of the front, and what it costs."""

from __future__ import annotations

from matplotlib.figure import Figure

from dlsys.annotated import checked
from dlsys.figures import closed_figure
from dlsys.palette import GRID, GROUND, LINES
from dlsys.recomputation.graph import Graph
from dlsys.recomputation.keeping import keeping_front


@checked
def draw_keepings(graph: Graph) -> Figure:
    """Every best choice of tensors to keep: cost over bytes, and below it which tensors those are.

    Cost is in parts of the graph's own, one forward pass. A dark cell is a tensor that is kept at
    this point of `keeping_front`; points stand from the most bytes to the fewest.
    """
    front = keeping_front(graph)[::-1]
    whole = sum(each.cost for each in graph.operations) or 1.0
    names = [name for name in graph.producer if any(name in each.keep for each in front)]
    figure, (curve, cells) = closed_figure(8, 3.2 + 0.16 * len(names), 2)
    curve.get_gridspec().set_height_ratios([2.4, 0.16 * len(names) + 0.4])
    nbytes = [each.nbytes / 1e9 for each in front]
    color, _, marker = LINES[0]
    curve.step(nbytes, [each.cost / whole for each in front], color=color, where="pre")
    curve.plot(nbytes, [each.cost / whole for each in front], marker, color=color, markersize=4)
    curve.set(xlabel="kept (GB, 10⁹ bytes)", ylabel="run again\n(of a forward pass)")
    curve.grid(color=GRID)
    for x, each in enumerate(front):
        rows = [y for y, name in enumerate(names) if name in each.keep]
        cells.bar([x] * len(rows), 1, 1, [y - 0.5 for y in rows], color=color, edgecolor=GROUND)
    cells.set_xticks(range(0, len(front), 5))
    cells.set_yticks(range(len(names)), names, fontsize=6)
    cells.set(xlim=(-0.5, len(front) - 0.5), ylim=(len(names) - 0.5, -0.5))
    cells.set_xlabel("points of the curve, from the right")
    return figure
