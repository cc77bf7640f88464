"""Weights so large that numbers overflow are told of in every precision."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from heedful.errors import HeedfulError
from heedful.inference.translator import Translator
from heedful.native import library
from heedful.storage import folder

from .own import make


@pytest.mark.skipif(library() is None, reason="there is no compiled engine here")
@pytest.mark.parametrize("precision", ["float32", "int8", "bfloat16"])
@pytest.mark.parametrize("stored", folder.STORED_PRECISIONS)
@pytest.mark.parametrize("scale", [1e13, 1e20, 1e30])
def test_probabilities_that_are_not_finite_are_reported(
    tmp_path: Path, precision: str, stored: str, scale: float
) -> None:
    make(tmp_path / "model", stored)
    file = tmp_path / "model" / folder.WEIGHTS
    weights = load_file(file)
    name = "embedding.weight" if stored == "float32" else "embedding.weight_scale"
    save_file(weights | {name: weights[name] * scale}, file)
    translator = Translator([folder.load_folder(tmp_path / "model")], precision)
    if scale < 1e20:  # large, but not too large: they have a translation in every precision
        assert translator.translate("the town", max_length=4)
        return
    with pytest.raises(HeedfulError, match=r"probabilities are not numbers.*weights are damaged or overflow"):
        translator.translate("the town", max_length=4)
