"""Switching heads off, one by one, is what it says."""

from __future__ import annotations

import pytest
import torch

from heedful.errors import DataError, SettingError
from heedful.inference.translator import Translator
from heedful.inside import Head, heads, heads_off, importance

SOURCES = ["The old man sleeps.", "She reads a book.", "I know it."]
REFERENCES = ["Der alte Mann schläft.", "Sie liest ein Buch.", "Ich weiß es."]


def test_the_loss_is_the_log_probability_of_the_references(translator_folder):
    result = importance(translator_folder, SOURCES, REFERENCES)
    translator = Translator([translator_folder])
    tokens = sum(len(ids) + 1 for ids in translator_folder.tokenizer.encode_batch(REFERENCES))
    pairs = list(zip(SOURCES, REFERENCES, strict=True))
    assert result.whole.loss == pytest.approx(-sum(translator.score(pairs)) / tokens, rel=1e-5)
    assert list(result.without) == heads(translator_folder)
    head = Head("decoder", 1, "cross", 2)
    with heads_off(translator_folder, [head]):
        assert result.without[head].loss == pytest.approx(-sum(translator.score(pairs)) / tokens, rel=1e-5)
    assert result.rise(head) == result.without[head].loss - result.whole.loss
    assert result.ranked()[0] == max(result.without, key=result.rise)
    assert result.drop(head) is None


def test_ablating_a_head_without_output_changes_nothing(make_folder):
    folder = make_folder()
    with torch.no_grad():
        folder.model.encoder.get_submodule("0").self.output.weight[:, 4:8] = 0
    result = importance(folder, SOURCES, REFERENCES)
    assert result.rise(Head("encoder", 0, "self", 1)) == 0
    assert sum(result.rise(head) == 0 for head in result.without) == 1


def test_bleu_is_measured_if_asked(translator_folder):
    seen = []
    result = importance(translator_folder, SOURCES, REFERENCES, bleu=True, progress=lambda head, n: seen.append(n))
    assert seen == list(range(1, 25))
    numbers = result.as_json()
    assert set(numbers["whole"]) == {"loss", "bleu"}
    assert all(number["drop"] == result.whole.bleu - number["bleu"] for number in numbers["heads"])


@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_language_models_are_measured_on_text_alone(make_folder, family):
    folder = make_folder(family)
    result = importance(folder, [*SOURCES, "", "word " * 100])
    assert len(result.without) == 8
    assert all(measure.loss > 0 for measure in result.without.values())
    with pytest.raises(
        SettingError, match=r"a (GPT|BERT) is measured on its text alone; leave out references and BLEU"
    ):
        importance(folder, SOURCES, REFERENCES)


def test_what_cannot_be_measured_is_refused(translator_folder):
    with pytest.raises(SettingError, match="a translator is measured against references"):
        importance(translator_folder, SOURCES)
    with pytest.raises(DataError, match="3 sentences and 2 references"):
        importance(translator_folder, SOURCES, REFERENCES[:2])
    with pytest.raises(DataError, match="there is nothing to measure on"):
        importance(translator_folder, [""], [""])
