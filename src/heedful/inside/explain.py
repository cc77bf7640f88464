"""Explains how a model processes a text: as an HTML page, as JSON, or as a figure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.inside.expert_use import expert_use, recorded_gates
from heedful.inside.head_roles import KINDS, head_roles
from heedful.inside.hops import hops
from heedful.inside.html_page import render
from heedful.inside.page_data import all_attention, attention_weights, outputs, sound, steps
from heedful.inside.position_figures import positions
from heedful.inside.recorded_run import RecordedRun, kinds, record_run
from heedful.inside.run_alignment import alignment
from heedful.inside.tokens import TokenReader
from heedful.storage import folder as model_folder
from heedful.storage.atomic import atomic_write
from heedful.storage.folder import ModelFolder, parameter_count


@dataclass(frozen=True)
class Explanation:
    """A recorded run with everything that the page shows."""

    run: RecordedRun

    def html(self) -> str:
        """The self-contained HTML page."""
        return render(self.data())

    def save(self, path: Path | str) -> None:
        atomic_write(Path(path), self.html())

    @torch.inference_mode()
    def data(self) -> dict[str, Any]:
        """The data of the page: strings and arrays."""
        run, folder = self.run, self.run.folder
        reader = TokenReader(folder.tokenizer)
        sides = {"source": run.source, "target": run.target}
        return {
            "text": run.text,
            "output": run.output,
            "note": run.note,
            "model": _card(folder),
            "kinds": KINDS,
            "sides": {name: None if side is None else side.as_json() for name, side in sides.items()},
            "attentions": all_attention(run),
            "steps": steps(run),
            "outputs": outputs(run, reader),
            "tree": run.tree.as_json(reader, folder.search) if run.tree is not None else None,
            "alignment": alignment(run),
            "positions": positions(run),
            "sound": sound(run),
            "hops": hops(run),
            "experts": expert_use(run),
        }

    @torch.inference_mode()
    def numbers(self) -> dict[str, Any]:
        """The numbers as JSON: tokens, attention weights, head roles, gates of experts, scores, alignment."""
        run, reader = self.run, TokenReader(self.run.folder.tokenizer)
        weights: dict[str, Any] = {}
        for stack, kind, rows, columns, causal in kinds(run.folder.model):
            for layer, heads in enumerate(attention_weights(run, stack, kind)):
                weights[f"{stack}.{layer}.{kind}.weights"] = {
                    "axes": ["head", "query", "key"],
                    "queries": rows,
                    "keys": columns,
                    "values": _rounded(heads),
                    "work": [head.as_json() for head in head_roles(heads, kind, causal)],
                }
        gates = {
            name: {"axes": ["position", "expert"], "values": _rounded(values)}
            for stack in ("encoder", "decoder")
            for name, values in recorded_gates(run, stack).items()
        }
        sides, links = {"source": run.source, "target": run.target}, alignment(run)
        return {
            "text": run.text,
            "output": run.output,
            "note": run.note,
            "model": _card(run.folder),
            "tokens": {name: None if side is None else side.as_json() for name, side in sides.items()},
            "attention": weights,
            "experts": gates or None,
            "alignment": None if links is None else links | {"matrix": links["matrix"].astype(float).round(4).tolist()},
            "search": run.tree.as_json(reader, run.folder.search) if run.tree is not None else None,
        }

    def save_numbers(self, path: Path | str) -> None:
        atomic_write(Path(path), json.dumps(self.numbers(), ensure_ascii=False, allow_nan=False))


def explain(model: ModelFolder | Path | str, text: str, target: str | None = None, **search: Any) -> Explanation:
    """Explain how a model processes a text; `target` is an output to explain instead of the model's own."""
    folder = model if isinstance(model, ModelFolder) else model_folder.load_folder(model)
    return Explanation(record_run(folder, text, target, **search))


def _card(folder: ModelFolder) -> dict[str, Any]:
    config = folder.model.config
    layers = [config.encoder_layers] * (config.family != "decoder") + [config.decoder_layers] * (
        config.family != "encoder"
    )
    return {
        "name": folder.path.name or str(folder.path),
        "family": config.family if config.architecture == "transformer" else f"{config.family}, {config.architecture}",
        "layers": layers,
        "heads": config.n_heads if config.architecture == "transformer" else 1,
        "dModel": config.d_model,
        "dFf": config.d_ff,
        "vocabulary": config.vocab_size,
        "parameters": parameter_count(folder.model),
        "attention": {"encoder": config.attention, "decoder": config.attention_of_decoder},
        "norm": ("pre" if config.pre_norm else "post") if config.architecture == "transformer" else None,
        "activation": config.activation,
        "experts": config.experts or None,
        "positions": config.positions if config.has_positions else None,
        "scaled": config.scale_embedding,
        "embeddingNorm": config.embedding_norm,
        "beam": folder.search.beam,
    }


def _rounded(weights: Tensor) -> list[Any]:
    rounded: list[Any] = weights.double().mul(1e6).round().div(1e6).tolist()
    return rounded
