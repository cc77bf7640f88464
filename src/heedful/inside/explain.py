"""Everything about one text in one model, for a page, for a file of numbers, for a picture."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful import folder as model_folder
from heedful.disk import write_file
from heedful.folder import Folder, parameter_count
from heedful.inside.aligner import alignment
from heedful.inside.numbers import attention_weights, attentions, outputs, steps
from heedful.inside.pieces import Reader
from heedful.inside.places import positions
from heedful.inside.render import render
from heedful.inside.run import Run, kinds, run
from heedful.inside.work import KINDS, work


@dataclass(frozen=True)
class Explanation:
    """A run, ready to be shown."""

    run: Run

    def html(self) -> str:
        """One page that needs nothing but a browser."""
        return render(self.data())

    def save(self, path: Path | str) -> None:
        write_file(Path(path), self.html())

    @torch.inference_mode()
    def data(self) -> dict[str, Any]:
        """What the page is made of: words and arrays."""
        found, folder = self.run, self.run.folder
        reader = Reader(folder.tokenizer)
        sides = {"source": found.source, "target": found.target}
        return {
            "text": found.text,
            "output": found.output,
            "note": found.note,
            "model": _card(folder),
            "kinds": KINDS,
            "sides": {name: None if side is None else side.as_json() for name, side in sides.items()},
            "attentions": attentions(found),
            "steps": steps(found),
            "outputs": outputs(found, reader),
            "tree": found.tree.as_json(reader, folder.search.alpha) if found.tree is not None else None,
            "alignment": alignment(found),
            "positions": positions(found),
        }

    @torch.inference_mode()
    def numbers(self) -> dict[str, Any]:
        """The raw numbers: tokens, every attention weight, what heads do, scores, alignment."""
        found, reader = self.run, Reader(self.run.folder.tokenizer)
        weights: dict[str, Any] = {}
        for stack, kind, rows, columns, causal in kinds(found.folder.model):
            for layer, heads in enumerate(attention_weights(found, stack, kind)):
                weights[f"{stack}.{layer}.{kind}.weights"] = {
                    "axes": ["head", "query", "key"],
                    "queries": rows,
                    "keys": columns,
                    "values": _rounded(heads),
                    "work": [head.as_json() for head in work(heads, kind, causal)],
                }
        sides, links = {"source": found.source, "target": found.target}, alignment(found)
        return {
            "text": found.text,
            "output": found.output,
            "note": found.note,
            "model": _card(found.folder),
            "tokens": {name: None if side is None else side.as_json() for name, side in sides.items()},
            "attention": weights,
            "alignment": None if links is None else links | {"matrix": links["matrix"].astype(float).round(4).tolist()},
            "search": found.tree.as_json(reader, found.folder.search.alpha) if found.tree is not None else None,
        }

    def save_numbers(self, path: Path | str) -> None:
        write_file(Path(path), json.dumps(self.numbers(), ensure_ascii=False, allow_nan=False))


def explain(model: Folder | Path | str, text: str, target: str | None = None, **search: Any) -> Explanation:
    """Look at what a model does with a text; `target` is an output to look at instead of the model's own."""
    folder = model if isinstance(model, Folder) else model_folder.load(model)
    return Explanation(run(folder, text, target, **search))


def _card(folder: Folder) -> dict[str, Any]:
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
        "norm": config.norm if config.architecture == "transformer" else None,
        "activation": config.activation,
        "positions": config.positions if config.architecture != "rnn" else None,
        "scaled": config.scale_embedding,
        "embeddingNorm": config.embedding_norm,
        "beam": folder.search.beam,
    }


def _rounded(weights: Tensor) -> list[Any]:
    rounded: list[Any] = weights.double().mul(1e6).round().div(1e6).tolist()
    return rounded
