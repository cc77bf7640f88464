"""A line becomes the same whatever stands around it; long lines are put together again."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from heedful import demo
from heedful.config import ModelConfig, SearchSettings
from heedful.errors import SettingError
from heedful.inference.results import Translation, join_parts
from heedful.inference.scheduler import Scheduler
from heedful.inference.torch_search import TorchSearchLanes
from heedful.inference.translator import Translator
from heedful.model.transformer import build_model
from heedful.native import library
from heedful.storage.folder import ModelFolder, load_folder, save_folder
from heedful.storage.weight_file import WeightFile
from heedful.text import train_vocabulary
from heedful.text.words import words

PAIRS = demo.generate(120, seed=8)
NEEDS_COMPILER = pytest.mark.skipif(library() is None, reason="there is no compiled engine")


def folder(seed: int, **changes: object) -> ModelFolder:
    tokenizer = train_vocabulary([text for pair in PAIRS for text in (pair.source, pair.target)], 500, False)
    shape = {"d_model": 32, "d_ff": 64, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "max_length": 64}
    torch.manual_seed(seed)
    model = build_model(ModelConfig(**shape | {"vocab_size": tokenizer.vocab_size, "output_bias": True} | changes))
    for parameter in model.parameters():
        parameter.data *= 1.5  # sharper distributions than fresh weights have
    model.output_bias.data[tokenizer.eos_id] = 8.0  # and outputs that end
    return ModelFolder(model.eval(), tokenizer, tokenizer, SearchSettings(beam=3, max_extra=5), Path(f"model-{seed}"))


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator([folder(1)])


@pytest.mark.parametrize("options", [{}, {"beam": 1}, {"n_best": 3}, {"sampling": True, "seed": 4, "n_best": 2}])
def test_a_line_is_the_same_alone_and_in_any_batch(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, options: dict[str, object]
) -> None:
    lines = [pair.source for pair in PAIRS[:24]]
    reference = translator.translations(lines, **options)
    shuffled = random.Random(0).sample(range(len(lines)), len(lines))
    mixed = translator.translations([lines[index] for index in shuffled], **options)
    assert [[translation.text for translation in mixed[shuffled.index(i)]] for i in range(24)] == [
        [e.text for e in w] for w in reference
    ]
    monkeypatch.setattr("heedful.inference.torch_search.ROWS", 1)
    for index, alone in enumerate(translator.translations(lines, **options)):
        assert [translation.text for translation in alone] == [translation.text for translation in reference[index]]
        assert [translation.score for translation in alone] == pytest.approx(
            [translation.score for translation in reference[index]], abs=1e-4
        )
        assert [translation.text for translation in translator.translations([lines[index]], **options)[0]] == [
            e.text for e in alone
        ]


@pytest.mark.parametrize("texts", [3, None, b"a dog", ["a dog", 3], [b"a dog"], iter(["a dog"])])
def test_what_is_not_text_is_refused_in_one_sentence(translator: Translator, texts: Any) -> None:
    wrong = next(each for each in ([texts] if not isinstance(texts, list) else texts) if not isinstance(each, str))
    with pytest.raises(TypeError) as refused:
        translator.translate(texts)
    sentence = f"{wrong!r} is of type {type(wrong).__name__}; give a text as a str, or several in a list."
    assert str(refused.value) == sentence
    with pytest.raises(TypeError, match="'a dog' is one text; give a list"):
        translator.translations("a dog")


def test_the_repr_says_what_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.inference.native_choice.library", object)
    assert repr(Translator([folder(1), folder(2)], "int8")) == (
        "<heedful.Translator: a translator in model-1 and model-2, the native engine, int8; use translate(…)>"
    )
    monkeypatch.setattr("heedful.inference.native_choice.library", lambda: None)
    assert repr(Translator([folder(1)])) == (
        "<heedful.Translator: a translator in model-1, PyTorch on cpu (the native engine is not available), float32; "
        "use translate(…)>"
    )


@NEEDS_COMPILER
@pytest.mark.parametrize("stored", ["float32", "int8"])
@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize(
    "kind", [{}, {"tie": "none", "positions": "learned"}, {"tie": "target", "positions": "rotary"}]
)
def test_what_the_engine_computes_is_read_into_torch_only_when_torch_must_compute(
    tmp_path: Path, stored: str, precision: str, kind: dict[str, object]
) -> None:
    save_folder(replace(folder(1, **kind), path=tmp_path), precision=stored)
    opened, lines = load_folder(tmp_path), [pair.source for pair in PAIRS[:8]]
    model = load_folder(tmp_path).model
    translator, reference = Translator([opened], precision), Translator([replace(opened, weights=model)], precision)
    assert (translated := translator.translations(lines)) == reference.translations(lines)
    engines = translator.engines
    assert translator.translations(lines, alignments=True) == reference.translations(lines, alignments=True)
    assert isinstance(opened.weights, WeightFile)
    assert translator.modules and not isinstance(opened.weights, WeightFile) and translator.engines is engines
    with torch.no_grad():
        opened.model.embedding.weight.neg_()
    assert translator.engines is not engines and translator.translations(lines) != translated


def test_a_stream_gives_the_translations_of_a_list(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [pair.source for pair in PAIRS[:30]] + ["", " "]
    reference = [n_best[0].text for n_best in translator.translations(lines)]
    monkeypatch.setattr("heedful.inference.torch_search.LOOKAHEAD", 7)
    assert [n_best[0].text for n_best in translator.stream(iter(lines))] == reference
    assert translator.translate(lines) == reference
    assert translator.translate(lines[3]) == reference[3]


def test_a_long_line_is_translated_in_parts_that_are_counted_on(translator: Translator) -> None:
    said: list[str] = []
    translator.notice = said.append
    sentences = [pair.source for pair in PAIRS[:9]]
    (translated,) = translator.translations([" ".join(sentences)], alignments=True)
    assert len(said) == 1
    assert said[0].startswith("line 1 has ")
    words = " ".join(sentences).split()
    assert translated[0].alignment
    assert max(source for source, _ in translated[0].alignment) < len(words)
    assert max(target for _, target in translated[0].alignment) == len(translated[0].text.split()) - 1
    short = translator.translations(sentences[:1])[0][0]
    assert translated[0].text.startswith(short.text)
    assert len(said) == 1


def test_words_of_a_text_without_spaces_are_its_characters(translator: Translator) -> None:
    translator.notice = lambda text: None
    text = "我爱中国。" * 12 + " 他也爱。" + "你呢。" * 12
    parts = translator.parts([text], [""])
    assert len(parts) > 2
    numbers = [word for part in parts for word in part.words(translator.source_tokenizer)]
    characters = len(text.replace(" ", ""))
    assert numbers == sorted(numbers) and set(numbers) <= set(range(characters)) and max(numbers) == characters - 1
    (translated,) = translator.translations([text], alignments=True)
    assert {source for source, _ in translated[0].alignment or []} <= set(range(characters))


@pytest.mark.parametrize(
    ("texts", "whole", "links"),
    [
        (["ein Hund", "", "schläft jetzt"], "ein Hund schläft jetzt", [(0, 0), (1, 1), (2, 2), (3, 3)]),
        (["犬が", "寝る。 今"], "犬が寝る。 今", [(n, n) for n in range(6)]),
        (["10\u00a0000 €", "mehr"], "10\u00a0000 € mehr", [(0, 0), (1, 1), (2, 2), (3, 3)]),
        (["  ein", "\x0bHund ", " ", "schläft"], "  ein \x0bHund    schläft", [(0, 0), (1, 1), (2, 2)]),
    ],
)
def test_parts_are_joined_as_their_script_has_it(
    translator: Translator, texts: list[str], whole: str, links: list[tuple[int, int]]
) -> None:
    counted = iter(range(9))

    def part(text: str) -> Translation:
        count = len(words(text))
        alignment = [(next(counted), word) for word in range(count)]
        return Translation(text, 0.0, 0.0, (), (), translator.tokenizer, alignment)

    (translated,) = join_parts([[part(text)] for text in texts])
    assert (translated.text, translated.alignment) == (whole, links)


@pytest.mark.parametrize("precision", ["float32", pytest.param("int8", marks=NEEDS_COMPILER)])
def test_a_letter_with_more_accents_than_the_model_takes(precision: str) -> None:
    translator = Translator([folder(1)], precision=precision)
    said: list[str] = []
    translator.notice = said.append
    assert isinstance(translator.translate("a" + "\u0301" * 3000), str)
    assert len(said) == 1
    assert all(len(part.ids) < 32 for part in translator.parts(["a" + "\u0301" * 3000], [""]))


def test_scores_of_an_ensemble_average_probabilities() -> None:
    a, b = folder(1), folder(2)
    pairs = [(pair.source, pair.target) for pair in PAIRS[:7]]
    both = Translator([a, b])
    tokenizer = both.tokenizer
    expected = []
    for source, target in pairs:
        ids = [*tokenizer.encode(target), tokenizer.eos_id]
        inputs = (
            torch.tensor([[*tokenizer.encode(source), tokenizer.eos_id]]),
            torch.tensor([[tokenizer.bos_id, *ids[:-1]]]),
        )
        with torch.no_grad():
            probabilities = [member.model.project(member.model(*inputs))[0].double().softmax(-1) for member in (a, b)]
        mean = (probabilities[0] + probabilities[1]) / 2
        expected.append(sum(float(mean[i, id].log()) for i, id in enumerate(ids)))
    assert both.score(pairs) == pytest.approx(expected, abs=1e-3)


def test_a_log_probability_is_that_of_the_tokens_found(translator: Translator) -> None:
    lines = [pair.source for pair in PAIRS[:12]]
    model, tokenizer, ended = translator.modules[0], translator.tokenizer, 0
    for line, n_best in zip(lines, translator.translations(lines), strict=True):
        labels = list(n_best[0].ids)
        if len(n_best[0].token_log_probs) > len(labels):
            labels, ended = [*labels, tokenizer.eos_id], ended + 1
        with torch.no_grad():
            source, target = [*tokenizer.encode(line), tokenizer.eos_id], [tokenizer.bos_id, *labels[:-1]]
            log_probs = model.project(model(torch.tensor([source]), torch.tensor([target])))[0].log_softmax(-1)
        expected = [float(log_probs[i, id]) for i, id in enumerate(labels)]
        assert n_best[0].token_log_probs == pytest.approx(expected, abs=1e-3)
        assert n_best[0].log_prob == pytest.approx(sum(expected), abs=1e-3)
        assert n_best[0].score == pytest.approx(n_best[0].log_prob / ((5 + len(labels)) / 6) ** 0.6)
    assert ended


def test_wrong_use_is_explained(translator: Translator) -> None:
    with pytest.raises(SettingError, match="2 prefixes were given for 1 texts"):
        translator.translations(["a"], prefix=["b", "c"])
    with pytest.raises(SettingError, match="pair 1 has"):
        translator.score([("word " * 100, "word")])
    with pytest.raises(SettingError, match=r"unknown key search\.bream; did you mean beam\?"):
        translator.translate("a", bream=3)


def test_lanes_give_the_same_translations_and_forget_cancelled_requests(translator: Translator) -> None:
    lines = [pair.source for pair in PAIRS[:12]]
    parts = translator.parts(lines, [""] * len(lines))
    options = translator.options({"n_best": 2})
    scheduler = Scheduler(TorchSearchLanes(translator.torch, translator.next_token))
    requests = scheduler.add([translator.search_request(part, options) for part in parts])
    results = {result.queued: result.get() for result in scheduler.step()}
    cancelled = {requests[2], requests[5]} - results.keys()
    assert len(cancelled) == 2
    scheduler.cancel(cancelled)
    while not scheduler.idle():
        results |= {result.queued: result.get() for result in scheduler.step()}
    reference = translator.translations(lines, n_best=2)
    assert results.keys() == set(requests) - cancelled
    for request, hypotheses in results.items():
        assert [translation.text for translation in translator.decode(hypotheses)] == [
            translation.text for translation in reference[request.number]
        ]
