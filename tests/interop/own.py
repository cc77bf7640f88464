"""Small model folders of our own format, one of each family, without the digests that would catch every change."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import torch

from heedful.config import ModelConfig, SearchSettings
from heedful.inference import shortlist
from heedful.model.transformer import build_model
from heedful.storage import folder
from heedful.storage.folder import ModelFolder
from heedful.text import Tokenizer, train_vocabulary

from .makers import LINES

SIZES = {"d_model": 8, "d_ff": 16, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "max_length": 64}


@cache
def vocabulary() -> Tokenizer:
    return train_vocabulary(LINES, None, False, ["<mask>"])


def make(path: Path, precision: str = "float32", likely: bool = False, **changes: object) -> ModelFolder:
    """A model of random weights, with a run.json, and with a shortlist if `likely`."""
    tokenizer = vocabulary()
    torch.manual_seed(1)
    model = build_model(ModelConfig(**SIZES | {"vocab_size": tokenizer.vocab_size} | changes)).eval()
    saved = ModelFolder(model, tokenizer, tokenizer, SearchSettings(beam=2), path)
    folder.save_folder(saved, precision=precision)
    description = json.loads((path / "config.json").read_text())
    del description["sha256"]
    (path / "config.json").write_text(json.dumps(description))
    files = {"source": "train.en", "target": "train.de"}
    (path / "run.json").write_text(json.dumps({"corpus": "x", "config": {"data": files}, "asked": {}}))
    if likely:
        pairs = shortlist.encode_pairs(zip(LINES, reversed(LINES), strict=True), saved)
        shortlist.save_shortlist(shortlist.build_shortlist(pairs, tokenizer, tokenizer), saved)
    return saved


OWN: dict[str, Callable[[Path], ModelFolder]] = {
    "own-translator": partial(make, likely=True),
    "own-int8": partial(make, precision="int8"),
    "own-rnn": partial(make, architecture="rnn"),
    "own-decoder": partial(make, family="decoder"),
    "own-encoder": partial(make, family="encoder"),
    "own-classifier": partial(make, family="encoder", token_types=2, pooler=True, labels=("yes", "no")),
}
