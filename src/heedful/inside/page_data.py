"""The data of a run, reduced to what the page shows: attention, intermediate steps, outputs, positions.

Arrays are as small as their purpose allows. Where a text is too long for all of them, the largest weights and the first
layers stay, and the page says so.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heedful.audio.log_mel import FRAMES_PER_SECOND, FeatureFrames
from heedful.inference.word_times import SoundPath, token_words, upper_heads
from heedful.inside.expert_use import chosen_experts
from heedful.inside.head_roles import head_roles
from heedful.inside.page_packing import half, shares
from heedful.inside.position_figures import relative_table
from heedful.inside.recorded_run import RecordedRun, RecordedSound, kinds
from heedful.inside.tokens import TokenReader
from heedful.model.block import Stack
from heedful.model.norms import NORMS
from heedful.model.syntax_positions import structural_positions

DENSE = 6_000_000  # weights up to which every one is kept
FINE = 500_000  # weights up to which they are kept in five digits
SPARSE = 2_000_000  # weights kept where there are more than DENSE
STEPS = 3_000_000  # numbers of queries, keys and values that are kept
SHOWN = 64  # numbers shown of a vector as wide as the model
UNITS = 12  # units of the feed-forward layer that are shown
TOP = 100  # tokens whose logits are kept at every position
TEMPERATURES = [round(0.1 + 0.05 * step, 2) for step in range(39)]  # 0.1 to 2


def attention_weights(run: RecordedRun, stack: str, kind: str) -> Tensor:
    """-> (L, H, T, S)."""
    layers = run.folder.model.get_submodule(stack).children()
    names = [f"{stack}.{layer}.{kind}.weights" for layer in range(len(list(layers)))]
    return torch.stack([run.trace[name] for name in names if name in run.trace])


def all_attention(run: RecordedRun) -> list[dict[str, Any]]:
    """Every attention with its weights and the role of each head."""
    every = [(kind, attention_weights(run, *kind[:2])) for kind in kinds(run.folder.model)]
    total = sum(weights.numel() for _, weights in every)
    rows = sum(weights[..., 0].numel() for _, weights in every)
    attentions = []
    for (stack, kind, queries, keys, causal), weights in every:
        if total <= DENSE:
            arrays = {"weights": shares(weights, total <= FINE), "kept": 1.0}
        else:
            arrays = _largest(weights, max(4, SPARSE // rows))
        attentions.append(
            {"stack": stack, "kind": kind, "rows": queries, "columns": keys, "causal": causal}
            | {"shape": list(weights.shape)}
            | arrays
            | {"work": [[head.as_json() for head in head_roles(layer, kind, causal)] for layer in weights]}
        )
    return attentions


def _largest(weights: Tensor, count: int) -> dict[str, Any]:
    """The largest weights of every query and their keys, (L, H, T, k) each, and their share of all attention."""
    values, places = weights.topk(min(count, weights.size(-1)), dim=-1)
    mass = float(values.sum(-1).mean())
    return {"values": shares(values, False), "places": np.asarray(places.numpy(), np.uint16), "kept": mass}


def sound_heads(weights: Tensor) -> list[tuple[int, int]]:
    """(L, H, T, S) cross-attention -> the heads that words are timed by, as (layer, head)."""
    layers, heads = weights.shape[:2]
    return upper_heads([(layer, head) for layer in range(layers) for head in range(heads)])


def sound(run: RecordedRun) -> dict[str, Any] | None:
    """The spectrogram of a recording, and where each token and each word of its transcript was heard."""
    if run.sound is None or run.target is None:
        return None
    weights = attention_weights(run, "decoder", "cross")  # (L, H, T, S)
    heads = sound_heads(weights)
    chosen = torch.stack([weights[layer, head] for layer, head in heads])  # (heads, T, S)
    pieces = TokenReader(run.folder.tokenizer).side(run.labels).pieces
    tokens: list[dict[str, Any]] = [{"text": text} for text in pieces]
    rows = run.sound.text_rows
    path = _sound_path(run.sound, chosen)
    for place, row in enumerate(rows):
        tokens[row] |= dict(zip(("start", "end"), path.times([place]), strict=True))
    words = token_words(*run.folder.tokenizer.decode_spans([run.labels[row] for row in rows]))
    return {
        "spectrogram": np.asarray(run.sound.frames, np.float16),
        "seconds": len(run.sound.frames) / FRAMES_PER_SECOND,
        "weights": half(chosen.mean(0)),
        "tokens": tokens,
        "words": [
            {"text": word.text.strip()} | dict(zip(("start", "end"), path.times(word.tokens), strict=True))
            for word in words
        ],
        "heads": [f"decoder.{layer}.cross.{head}" for layer, head in heads],
    }


def _sound_path(sound: RecordedSound, weights: Tensor) -> SoundPath:
    """The path of the tokens of a text through its sound, from the (H, T, S) attention of all rows."""
    end = range(max(sound.text_rows, default=-1) + 1, weights.size(1))  # of the transcript, unless it was cut off
    features = FeatureFrames.of(sound.frames, round(sound.step * FRAMES_PER_SECOND))
    attention = weights[:, [*sound.text_rows, *end]].float().cpu().numpy()
    return SoundPath(attention, len(sound.text_rows), features, len(sound.frames) / FRAMES_PER_SECOND)


def steps(run: RecordedRun) -> dict[str, Any] | None:
    """The intermediate vectors of each stack; None for layers other than the paper's."""
    config = run.folder.model.config
    if config.architecture != "transformer" or config.universal or config.attention == "linformer" or config.features:
        return None
    room = STEPS
    stacks: dict[str, Any] = {}
    for stack, side in (("encoder", run.source), ("decoder", run.target)):
        if side is not None:
            stacks[stack], room = _stack_steps(run, stack, room)
    return stacks


def _stack_steps(run: RecordedRun, stack: str, room: int) -> tuple[dict[str, Any], int]:
    trace, config = run.trace, run.folder.model.config
    embedded, placed = trace[f"{stack}.embedded"], trace[f"{stack}.placed"]
    attention_kind = config.attention_of_decoder if stack == "decoder" else config.attention
    scheme = config.positions_of_decoder if stack == "decoder" else config.positions
    module = stack_of(run, stack)
    tree = run.dependency_tree if scheme == "syntax" else None
    additive = scheme in ("sinusoidal", "learned", "syntax")
    position = module.position.of_batch(tree).embed(torch.zeros_like(embedded)[None])[0] if additive else None
    layers, x = [], placed
    for index, block in enumerate(module.blocks):
        layer: dict[str, Any] = {}
        for part in ("self", "cross", "feed") if block.cross is not None else ("self", "feed"):
            layer[part], x = _sublayer(run, f"{stack}.{index}", part, x)
            if part == "feed":
                layer[part] |= _feed_forward(run, f"{stack}.{index}.feed")
                continue
            arrays = {name: trace[f"{stack}.{index}.{part}.{name}"] for name in ("queries", "keys", "values")}
            room -= sum(array.numel() for array in arrays.values())
            if room >= 0 and (part == "cross" or attention_kind == "full"):
                layer[part] |= {name: half(array) for name, array in arrays.items()}
        layers.append(layer)
    stack_data = {
        "embedded": _shown(embedded),
        "position": None if position is None else _shown(position),
        "placed": _shown(placed),
        "norm": NORMS[config.norm_of_decoder if stack == "decoder" else config.norm].__name__,
        "layers": layers,
        "final": _shown(trace[stack]),
    }
    if scheme == "alibi":
        stack_data["slopes"] = module.position.get_buffer("slopes").tolist()
    if scheme == "relative" or tree is not None:
        tables = [relative_table(module.position, index) for index in range(len(layers))]
        stack_data["tables"] = half(torch.stack(tables))  # (L, 2w + 1, d)
    if tree is not None:
        relative = structural_positions(tree)[1][0]  # (S, S)
        stack_data["relative"] = np.asarray(relative.numpy(), np.int32)
    return stack_data, room


def _sublayer(run: RecordedRun, block: str, part: str, x: Tensor) -> tuple[dict[str, Any], Tensor]:
    """The output of a sublayer, and the result of its residual connection and norm."""
    trace, pre = run.trace, run.folder.model.config.pre_norm
    out = trace[f"{block}.feed" if part == "feed" else f"{block}.{part}.output"]
    after = trace[f"{block}.{part}_residual"]
    before = x if pre else x + out  # what the norm sees
    normed = trace[f"{block}.{part}_residual.norm"]
    sublayer = {
        "normed": _shown(normed) if pre else None,
        "out": _shown(out),
        "after": _shown(after),
        "mean": np.asarray(before.mean(-1).numpy(), np.float32),
        "deviation": np.asarray(before.std(-1, correction=0).numpy(), np.float32),
    }
    return sublayer, after


def _feed_forward(run: RecordedRun, name: str) -> dict[str, Any]:
    """The hidden units of a feed-forward layer; of a mixture of experts, the experts instead."""
    if f"{name}.gates" in run.trace:
        return chosen_experts(run.trace[f"{name}.gates"], run.folder.model.config.experts_per_token)
    return _units(run.trace[f"{name}.inner"])


def _units(inner: Tensor) -> dict[str, Any]:
    """(T, F) -> the most active hidden units at each position, and the share of units above zero."""
    places = inner.abs().topk(min(UNITS, inner.size(-1)), dim=-1).indices
    return {
        "units": np.asarray(places.numpy(), np.int32),
        "values": half(inner.gather(-1, places)),
        "active": np.asarray((inner > 0).float().mean(-1).numpy(), np.float32),
    }


@torch.inference_mode()
def outputs(run: RecordedRun, reader: TokenReader) -> dict[str, Any] | None:
    """The largest logits at every position, and the sum of all others at every temperature of the slider."""
    model = run.folder.model
    if model.config.head == "none" or model.config.sentence_input:
        return None
    hidden = run.hidden
    top = min(TOP if len(hidden) <= 300 else TOP // 4, model.config.vocab_size)
    ids, values, rest, ranks, log_probs = [], [], [], [], []
    labels = run.labels[: len(hidden)]
    for start in range(0, len(hidden), 64):
        logits = run.logits(start, start + 64)  # (n, V)
        best, places = logits.topk(top, dim=-1)
        others = (logits - best[:, :1]).scatter(1, places, -math.inf)
        rest.append(torch.stack([(others / t).logsumexp(-1) for t in TEMPERATURES], -1))  # (n, temperatures)
        written = torch.tensor(labels[start : start + 64], dtype=torch.long)
        written_logits = logits[: len(written)].gather(1, written[:, None])
        ranks += (logits[: len(written)] > written_logits).sum(-1).tolist()
        log_probs += logits[: len(written)].log_softmax(-1).gather(1, written[:, None]).squeeze(1).tolist()
        ids.append(places)
        values.append(best)
    used = sorted({*labels, *torch.cat(ids).flatten().tolist()})
    return {
        "ids": np.asarray(torch.cat(ids).numpy(), np.int32),
        "logits": np.asarray(torch.cat(values).numpy(), np.float32),
        "rest": np.asarray(torch.cat(rest).clamp(min=-1e4).numpy(), np.float32),
        "temperatures": TEMPERATURES,
        "labels": labels,
        "ranks": ranks,
        "logProbs": log_probs,
        "words": {str(token): reader.label(token) for token in used},
    }


def stack_of(run: RecordedRun, stack: str) -> Stack:
    module = run.folder.model.get_submodule(stack)
    assert isinstance(module, Stack)
    return module


def _shown(tensor: Tensor) -> Any:
    return half(tensor[..., :SHOWN])
