"""Figures of attention and head importance: PNG, SVG or PDF, by the file's extension."""

from __future__ import annotations

import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.errors import SettingError
from heedful.inference.translator import Translator
from heedful.inside.importance import Importance
from heedful.inside.page_data import attention_weights
from heedful.inside.patch import Head
from heedful.inside.recorded_run import RecordedRun, RecordedSound, kinds, record_run
from heedful.inside.run_alignment import alignment_heads
from heedful.inside.tokens import TokenReader, TokenSide
from heedful.model.transformer import EncoderDecoder
from heedful.storage.atomic import explain_os_errors
from heedful.storage.folder import ModelFolder

NAME = re.compile(r"(?P<stack>encoder|decoder)(\.(?P<layer>\d+))?\.(?P<kind>self|cross)(\.(?P<head>\d+))?")
MAX_LABELED = 60  # tokens up to which they stand at the edges
TIME_WIDTH = 9  # inches, of a picture of a recording


def draw_cross_attention(translator: Translator, source: str, path: Path) -> str:
    """Translate a sentence, draw its cross-attention, and return the translation."""
    model, tokenizer = translator.modules[0], translator.tokenizer
    run = record_run(
        ModelFolder(model, tokenizer, translator.source_tokenizer, translator.search, Path("model")), source
    )
    draw_attention(run, path)
    return run.output or ""


def draw_attention(run: RecordedRun, path: Path, what: str | None = None) -> None:
    """Draw `decoder.1.cross.3` (a head), `decoder.1.cross` (the mean of a layer) or `decoder.cross` (all of them).

    Without a name: of a translator the heads that follow the words, else every head of the last layer.
    """
    if what is None and isinstance(run.folder.model, EncoderDecoder):
        heads, shift = _following(run)
        weights = torch.stack([run.trace[f"{head.attention}.weights"][head.number] for head in heads]).mean(0)
        title = f"mean of {_together(heads)}"
        rows = run.target if shift else _written(run)
        _tokens(run, "cross", weights, rows, run.source, title, path)
        return
    stack, layer, kind, head, rows, columns = _named(run, what)
    weights = attention_weights(run, stack, kind)  # (L, H, T, S)
    if layer is None:
        _many(weights, [f"layer {number}" for number in range(len(weights))], f"{stack}, {kind}-attention", path)
    elif what is None:
        _many(weights[layer : layer + 1], [f"layer {layer}"], f"{stack}, {kind}-attention", path)
    elif head is None:
        _tokens(run, kind, weights[layer].mean(0), rows, columns, f"{stack}.{layer}.{kind}, mean of its heads", path)
    else:
        _tokens(run, kind, weights[layer, head], rows, columns, f"{stack}.{layer}.{kind}.{head}", path)


def draw_heads(importance: Importance, path: Path) -> None:
    """A map for each kind of attention: how much the loss rises (or BLEU falls) without each head."""
    groups: dict[tuple[str, str], list[Head]] = {}
    for head in importance.without:
        groups.setdefault((head.stack, head.kind), []).append(head)
    by_bleu = importance.whole.bleu is not None
    values = {
        head: float((importance.drop(head) if by_bleu else importance.rise(head)) or 0.0) for head in importance.without
    }
    most = max(1e-9, *(abs(value) for value in values.values()))
    widest = max(head.number for head in importance.without) + 1
    with _figure(
        path, (1.6 + len(groups) * (0.6 * widest + 0.7), 1.6 + 0.5 * _deepest(importance)), len(groups)
    ) as axes:
        for axis, ((stack, kind), heads) in zip(axes, groups.items(), strict=True):
            table = torch.zeros(max(head.layer for head in heads) + 1, widest)
            for head in heads:
                table[head.layer, head.number] = values[head]
            image = axis.imshow(table.numpy(), cmap="RdBu_r", vmin=-most, vmax=most)
            for head in heads:
                dark = abs(values[head]) > 0.6 * most
                text = f"{values[head]:.1f}" if by_bleu else f"{values[head]:.2f}"
                axis.text(
                    head.number, head.layer, text, ha="center", va="center", fontsize=7, color="w" if dark else "k"
                )
            axis.set(title=f"{stack}, {kind}", xlabel="head", xticks=range(widest), yticks=range(len(table)))
        axes[0].set_ylabel("layer")
        axes[0].figure.colorbar(
            image, ax=axes, label="BLEU lost" if by_bleu else "loss added, nats a token", shrink=0.8
        )


def _deepest(importance: Importance) -> int:
    return max(head.layer for head in importance.without) + 1


def _written(run: RecordedRun) -> TokenSide:
    return TokenReader(run.folder.tokenizer).side(run.labels)


def _following(run: RecordedRun) -> tuple[list[Head], bool]:
    """The alignment heads, and whether they align the token just read instead of the next one."""
    choice = alignment_heads(run)
    return [Head.parse(name) for name in choice.names], choice.shift


def _together(heads: Sequence[Head]) -> str:
    """[decoder.1.cross.0, decoder.1.cross.2] -> 'decoder.1.cross.0+2'."""
    layers: dict[str, list[str]] = {}
    for head in heads:
        layers.setdefault(head.attention, []).append(str(head.number))
    return ", ".join(f"{attention}.{'+'.join(numbers)}" for attention, numbers in layers.items())


def _named(
    run: RecordedRun, what: str | None
) -> tuple[str, int | None, str, int | None, TokenSide | None, TokenSide | None]:
    """A name -> stack, layer, kind, head, and the tokens of both edges."""
    sides = {"source": run.source, "target": run.target}
    every = kinds(run.folder.model)
    known = {(stack, kind): (sides[rows], sides[columns]) for stack, kind, rows, columns, _ in every}
    if ("decoder", "cross") in known:
        known["decoder", "cross"] = _written(run), run.source
    if what is None:
        stack, kind = next(reversed(known))
        return stack, len(attention_weights(run, stack, kind)) - 1, kind, None, *known[stack, kind]
    match = NAME.fullmatch(what)
    if match and (match["stack"], match["kind"]) in known:
        stack, kind = match["stack"], match["kind"]
        layer, head = (int(match[part]) if match[part] else None for part in ("layer", "head"))
        layers, heads = attention_weights(run, stack, kind).shape[:2]
        if (layer is None) <= (head is None) and (layer or 0) < layers and (head or 0) < heads:
            return stack, layer, kind, head, *known[stack, kind]
    stack, kind = next(reversed(known))
    raise SettingError(
        f"{what!r} is no attention of this model; give {stack}.{kind} for all heads, {stack}.0.{kind} for a layer or"
        f" {stack}.0.{kind}.0 for a head, both counted from 0."
    )


def _tokens(
    run: RecordedRun,
    kind: str,
    weights: Tensor,
    rows: TokenSide | None,
    columns: TokenSide | None,
    title: str,
    path: Path,
) -> None:
    """(T, S) attention of one head or the mean of several: over the seconds of a recording, or between tokens."""
    assert rows is not None and columns is not None
    if run.sound is not None and kind == "cross":
        _over_time(weights, rows, run.sound, title, path)
    else:
        _between_tokens(weights, rows, columns, title, path)


def _between_tokens(weights: Tensor, rows: TokenSide, columns: TokenSide, title: str, path: Path) -> None:
    height, width = weights.shape
    cell = 0.4 if max(height, width) <= MAX_LABELED else 6 / max(height, width)
    wide = max(3.2, 2 + cell * width)
    with _figure(path, (wide, 1.8 + cell * height), 1) as (axis,):
        image = axis.imshow(weights.numpy(), cmap="cividis", vmin=0, vmax=1, aspect="auto")
        if max(height, width) <= MAX_LABELED:
            _words(axis.set_xticks, range(width), columns.pieces, rotation=60, ha="left", rotation_mode="anchor")
            _words(axis.set_yticks, range(height), rows.pieces)
            axis.xaxis.tick_top()
            axis.tick_params(length=0)
        axis.figure.supxlabel(textwrap.fill(title, int(11 * wide)), fontsize=9)
        axis.figure.colorbar(image, label="attention")


def _over_time(weights: Tensor, rows: TokenSide, sound: RecordedSound, title: str, path: Path) -> None:
    height, width = weights.shape
    with _figure(path, (TIME_WIDTH, 1.4 + 0.2 * height), 1) as (axis,):
        bounds = (0, width * sound.step, height - 0.5, -0.5)
        image = axis.imshow(weights.numpy(), cmap="cividis", vmin=0, aspect="auto", extent=bounds)
        _words(axis.set_yticks, range(height), rows.pieces, fontsize=7)
        axis.set_xlabel("seconds")
        axis.figure.supxlabel(textwrap.fill(title, int(11 * TIME_WIDTH)), fontsize=9)
        axis.figure.colorbar(image, label="attention")


def _many(weights: Tensor, names: Sequence[str], title: str, path: Path) -> None:
    layers, heads = weights.shape[:2]
    with _figure(path, (1 + 1.3 * heads, 0.8 + 1.3 * layers), heads, layers) as axes:
        for number, axis in enumerate(axes):
            layer, head = divmod(number, heads)
            axis.imshow(weights[layer, head].numpy(), cmap="cividis", vmin=0, vmax=1, aspect="auto")
            axis.set(xticks=[], yticks=[])
            if layer == 0:
                axis.set_title(f"head {head}", fontsize=8)
            if head == 0:
                axis.set_ylabel(names[layer], fontsize=8)
        axes[0].figure.suptitle(title, fontsize=10)


def _words(place: Any, ticks: Any, words: Sequence[str], **style: Any) -> None:
    """Token labels of an axis; dollar signs are escaped, so that matplotlib reads no formula."""
    place(ticks, words, **style, parse_math=False)


@contextmanager
def _figure(path: Path, size: tuple[float, float], columns: int, rows: int = 1) -> Iterator[list[Any]]:
    """Yield axes to draw on and write the file at the end; warnings about missing glyphs are silenced."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise SettingError(f"{path} ends in {path.suffix or 'nothing'}; a picture ends in .png, .svg or .pdf.")
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "heedful"}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
        try:
            yield list(axes.flat)
            with explain_os_errors(path):
                figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
        finally:
            plt.close(figure)
