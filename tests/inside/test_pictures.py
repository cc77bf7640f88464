"""Pictures for papers: they are written, hold their words, and stumble over nothing that a token may be."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from heedful.errors import SettingError
from heedful.inference.translator import Translator
from heedful.inside import Importance, draw_attention, draw_cross_attention, draw_heads, heads, record_run
from heedful.inside.importance import Measure

HOSTILE = "$\\frac{a $x$ _^ 日本 🙂 <b> & % שלום"


@pytest.mark.parametrize(
    ("family", "ending"), [("encoder-decoder", ".png"), ("decoder", ".svg"), ("encoder", ".pdf"), ("encoder", ".png")]
)
def test_any_text_can_be_drawn(make_folder, tmp_path, family, ending):
    path = tmp_path / f"x{ending}"
    draw_attention(record_run(make_folder(family, max_length=100), HOSTILE), path)
    assert path.stat().st_size > 2000
    if ending == ".png":
        with Image.open(path) as image:
            assert min(image.size) > 200


def test_words_stay_words_in_an_svg(translator_folder, tmp_path):
    path = tmp_path / "x.svg"
    draw_attention(record_run(translator_folder, "A man & a $dog$ <here>."), path, "decoder.1.cross.3")
    text = path.read_text(encoding="utf-8")
    assert ">&lt;" in text or "&lt;" in text
    assert "decoder.1.cross.3" in text
    draw_attention(record_run(translator_folder, "A man & a $dog$ <here>."), tmp_path / "y.svg", "decoder.1.cross.3")
    assert (tmp_path / "y.svg").read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    "what", ["encoder.self", "decoder.self", "decoder.cross", "encoder.1.self", "decoder.0.cross.3"]
)
def test_what_is_drawn_has_a_name(translator_folder, tmp_path, what):
    draw_attention(record_run(translator_folder, "She reads."), tmp_path / "x.png", what)
    assert (tmp_path / "x.png").exists()


@pytest.mark.parametrize("what", ["encoder.cross", "decoder.2.cross", "decoder.0.cross.4", "decoder.cross.0", "x", ""])
def test_a_wrong_name_is_explained(translator_folder, tmp_path, what):
    with pytest.raises(SettingError, match=r"give decoder\.cross for all heads, decoder\.0\.cross for a layer"):
        draw_attention(record_run(translator_folder, "She reads."), tmp_path / "x.png", what)
    with pytest.raises(SettingError, match=r"a picture ends in \.png, \.svg or \.pdf"):
        draw_attention(record_run(translator_folder, "She reads."), tmp_path / "x.jpeg")


def test_the_demo_has_its_picture(translator_folder, tmp_path):
    translator = Translator([translator_folder])
    text = draw_cross_attention(translator, "She reads.", tmp_path / "x.png")
    assert text == translator.translate("She reads.")
    assert (tmp_path / "x.png").stat().st_size > 2000


def test_heads_are_drawn(translator_folder, tmp_path):
    whole, off = Measure(1.0, 30.0), [Measure(1 + 0.1 * number, 30.0 - number) for number in range(24)]
    without = dict(zip(heads(translator_folder), off, strict=True))
    loss_only = {head: Measure(measure.loss) for head, measure in without.items()}
    for number, result in enumerate((Importance(whole, without), Importance(Measure(1.0), loss_only))):
        draw_heads(result, tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").stat().st_size > 2000


@pytest.mark.parametrize("text", ["I know.", "The old man sleeps while the children read a book."])
def test_nothing_is_cut_off_at_an_edge(make_folder, tmp_path, text):
    """A frame of white remains, also around the names of many heads."""
    draw_attention(record_run(make_folder(n_heads=16, decoder_layers=3), text), tmp_path / "x.png")
    with Image.open(tmp_path / "x.png") as image:
        pixels = np.asarray(image.convert("L"))
    for edge in (pixels[:3], pixels[-3:], pixels[:, :3], pixels[:, -3:]):
        assert (edge == 255).all()
