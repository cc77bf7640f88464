"""Data of the position figures: the table of the position scheme, and the similarity of positions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from heedful.inside.page_packing import half
from heedful.inside.recorded_run import RecordedRun
from heedful.model.positions import Position
from heedful.model.syntax_positions import Syntax
from heedful.ops.position_tables import alibi_slopes

LEAST, MOST = 64, 128  # positions that are drawn
WIDEST = 512  # dimensions that are drawn


def positions(run: RecordedRun) -> dict[str, Any] | None:
    """One panel per position table: its values (positions × dimensions) and their dot products."""
    config = run.folder.model.config
    if not config.has_positions:  # order is all it knows
        return None
    longest = max(len(side.ids) for side in (run.source, run.target) if side is not None)
    count = min(config.max_length, MOST, max(LEAST, longest))
    stacks = [name for name, side in (("encoder", run.source), ("decoder", run.target)) if side is not None]
    panels = {
        "sinusoidal": _added,
        "learned": _added,
        "rotary": _turned,
        "alibi": _lowered,
        "relative": _relative,
        "syntax": _syntax,
    }[config.positions](run, stacks, count)
    return {"scheme": config.positions, "panels": panels}


def relative_table(position: Position, index: int) -> Tensor:
    """(2w + 1, d): the learned vectors of the relative positions of a layer, in the sequence or in a tree."""
    if isinstance(position, Syntax):
        return position.get_parameter(f"relative_{index}").detach()
    return position.layer(index).get_parameter("table").detach()


def _position(run: RecordedRun, stack: str) -> Position:
    position = run.folder.model.get_submodule(f"{stack}.position")
    assert isinstance(position, Position)
    return position


def _panel(name: str, table: Tensor, matrix: Tensor, rows: list[int]) -> dict[str, Any]:
    return {"name": name, "table": half(table[:, :WIDEST]), "matrix": half(matrix), "rows": rows}


def _added(run: RecordedRun, stacks: list[str], count: int) -> list[dict[str, Any]]:
    """A vector for each position."""
    panels = []
    for stack in stacks if run.folder.model.config.positions == "learned" else stacks[:1]:
        width = run.folder.model.config.d_model
        table = _position(run, stack).embed(torch.zeros(1, count, width))[0].detach()
        name = stack if run.folder.model.config.positions == "learned" else "all positions"
        panels.append(_panel(name, table, table @ table.T, list(range(count))))
    return panels


def _turned(run: RecordedRun, stacks: list[str], count: int) -> list[dict[str, Any]]:
    """The vector (1, 0, 1, 0, …) rotated by each position."""
    width = run.folder.model.config.key_width
    still = torch.tensor([1.0, 0.0]).repeat(width // 2).expand(1, 1, count, width)
    table = _position(run, stacks[0]).rotate(still)[0, 0]
    return [_panel("one vector, turned", table, table @ table.T, list(range(count)))]


def _lowered(run: RecordedRun, stacks: list[str], count: int) -> list[dict[str, Any]]:
    """The ALiBi bias of each head by distance."""
    slopes = torch.from_numpy(alibi_slopes(run.folder.model.config.n_heads))  # (H,)
    here = torch.arange(count)
    distance = (here[:, None] - here[None, :]).abs()
    table = -here[:, None] * slopes  # (distances, heads)
    return [
        _panel(f"head {head + 1}", table, -slope * distance, list(range(count))) for head, slope in enumerate(slopes)
    ]


def _relative(run: RecordedRun, stacks: list[str], count: int) -> list[dict[str, Any]]:
    """A learned vector for each distance, in each layer."""
    config, panels = run.folder.model.config, []
    window = config.relative_window
    for stack in stacks:
        for index in range(config.encoder_layers if stack == "encoder" else config.decoder_layers):
            table = relative_table(_position(run, stack), index)
            name = f"{stack}, layer {index + 1}"
            panels.append(_panel(name, table, table @ table.T, list(range(-window, window + 1))))
    return panels


def _syntax(run: RecordedRun, stacks: list[str], count: int) -> list[dict[str, Any]]:
    """What position and depth add on their own; a learned vector for each relative position in the tree, by layer."""
    scheme = _position(run, "encoder")
    assert isinstance(scheme, Syntax)
    sinusoids, rows = scheme.table[:count], list(range(count))
    parts = {"position in the sequence": scheme.sequence, "depth in the tree": scheme.structure}
    tables = {name: torch.tanh(matrix(sinusoids)).detach() for name, matrix in parts.items()}
    tables["decoder"] = sinusoids
    added = [_panel(name, table, table @ table.T, rows) for name, table in tables.items()]
    return added[:2] + _relative(run, ["encoder"], count) + added[2:]
