"""Pictures of benchmarks: the same look and the same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999"]
MARKS = ["o", "s", "^", "D", "v", "P", "X", "*"]
LINES = [(colour, mark, line) for line in ("-", "--") for colour, mark in zip(COLOURS, MARKS, strict=True)]


@contextmanager
def figure(path: Path, columns: int, size: tuple[float, float], rows: int = 1, legend: int = 0) -> Iterator[list[Any]]:
    """Axes to draw on; the file is written when the block ends.

    With `legend`, so many columns below name the lines of the first axes.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from cycler import cycler

    look = {"svg.fonttype": "none", "svg.hashsalt": "heedful", "axes.grid": True, "grid.alpha": 0.3}
    colours, marks, lines = zip(*LINES, strict=True)
    cycle = cycler(color=colours, marker=marks, linestyle=lines)
    with plt.rc_context(look | {"axes.prop_cycle": cycle, "lines.markersize": 4}):
        made, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
        yield list(axes.flat)
        if legend:
            made.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=legend, fontsize=8)
        path.parent.mkdir(parents=True, exist_ok=True)
        made.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
        plt.close(made)
