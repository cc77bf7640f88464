"""Shortlists: learned as the textbook says, kept and opened with care, and used alike by every search."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from heedful import demo
from heedful.config import ModelConfig, SearchSettings
from heedful.errors import DataError, FolderError
from heedful.inference import shortlist
from heedful.inference.shortlist import Pair, Shortlist
from heedful.inference.translator import Translator
from heedful.model.transformer import build_model
from heedful.native import library
from heedful.search.observer import Observer
from heedful.storage.folder import ModelFolder, save_folder
from heedful.text import train_vocabulary

PAIRS = [(pair.source, pair.target) for pair in demo.generate(700, seed=3)]
TRAIN, TEST = PAIRS[:600], PAIRS[600:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    """An untrained translator with a vocabulary of the demo's language, and its shortlist."""
    tokenizer = train_vocabulary([text for pair in TRAIN for text in pair], 800)
    torch.manual_seed(1)
    config = ModelConfig(
        vocab_size=800, d_model=32, d_ff=48, n_heads=2, encoder_layers=1, decoder_layers=1, max_length=128, dropout=0.0
    )
    model = build_model(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    made = ModelFolder(model, tokenizer, tokenizer, SearchSettings(beam=3), tmp_path_factory.mktemp("model"))
    save_folder(made)
    pairs = shortlist.encode_pairs(TRAIN, made)
    shortlist.save_shortlist(shortlist.build_shortlist(pairs, tokenizer, tokenizer), made)
    return made


def textbook(pairs: list[Pair], rounds: int) -> dict[tuple[int, int], float]:
    """IBM model 1 in plain loops; nothing gives a target token with the probability that it has in the text."""
    words = [t for _, target in pairs for t in target]
    nothing = {t: words.count(t) / len(words) for t in set(words)}
    table: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(rounds):
        count: dict[tuple[int, int], float] = defaultdict(float)
        total: dict[int, float] = defaultdict(float)
        for source, target in pairs:
            for t in target:
                z = nothing[t] + sum(table[s, t] for s in source)
                for s in source:
                    count[s, t] += table[s, t] / z
                    total[s] += table[s, t] / z
        table = defaultdict(float, {(s, t): c / total[s] for (s, t), c in count.items()})
    return dict(table)


def test_probabilities_are_those_of_ibm_model_1() -> None:
    random = np.random.default_rng(1)
    pairs: list[Pair] = [
        (random.integers(0, 9, a).tolist(), random.integers(0, 7, b).tolist())
        for a, b in random.integers(1, 6, (40, 2))
    ]
    expected = textbook(pairs, shortlist.ROUNDS)
    probability, source, target = shortlist.estimate_ibm1(pairs, 7)
    result = dict(zip(zip(source.tolist(), target.tolist(), strict=True), probability.tolist(), strict=True))
    assert result.keys() == expected.keys()
    for link, value in expected.items():
        assert result[link] == pytest.approx(value, rel=1e-9)


def test_it_knows_the_words_of_a_language(folder: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """New sentences of the grammar are translated by few tokens, far fewer than there are."""
    monkeypatch.setattr(shortlist, "LIKELY", 10)
    monkeypatch.setattr(shortlist, "FREQUENT", 10)
    train, test = shortlist.encode_pairs(TRAIN, folder), shortlist.encode_pairs(TEST, folder)
    strangers: list[Pair] = [(a, b) for (a, _), (_, b) in zip(train, train[1:] + train[:1], strict=True)]

    def held(pairs: list[Pair]) -> tuple[float, float]:
        """The share of new targets that a shortlist holds, and its size without the bytes."""
        learned = shortlist.build_shortlist(pairs, folder.tokenizer, folder.tokenizer)
        lists = [(ids, target) for source, target in test if (ids := learned.tokens(source)) is not None]
        share = np.concatenate([np.isin(target, ids) for ids, target in lists]).mean()
        return float(share), float(np.mean([len(ids) - 260 for ids, _ in lists]))

    (share, size), (by_chance, _) = held(train), held(strangers)
    assert share > 0.9 and size < 100
    assert by_chance < 0.7


def test_tokens_are_in_order_with_all_that_may_be_needed(folder: ModelFolder) -> None:
    learned, tokenizer = shortlist.load_shortlist(folder), folder.tokenizer
    source = tokenizer.encode(TRAIN[0][0])
    ids = learned.tokens(source, prefix=[799, 700])
    assert ids is not None and ids.dtype == np.int32 and (np.diff(ids) > 0).all()
    specials, spelled = tokenizer.specials, tokenizer.encode("𓀀")
    assert {specials.pad, specials.bos, specials.eos, tokenizer.unk_id, *spelled, 799, 700, *source} <= set(
        ids.tolist()
    )
    unseen = [token for token in range(800) if learned.first[token] == learned.first[token + 1]]
    assert learned.tokens([*source, unseen[0]]) is None
    assert learned.size([([], []), (source, [])]) == pytest.approx((len(learned.always) + len(ids) - 2) / 2, abs=1)


def test_too_many_pairs_are_read_in_part(folder: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = shortlist.encode_pairs([*TRAIN, ("", ""), ("", "Ja."), ("Yes.", "")], folder)
    seen: list[int] = []
    real = shortlist.estimate_ibm1
    monkeypatch.setattr(shortlist, "estimate_ibm1", lambda some, size: (seen.append(len(some)), real(some, size))[1])
    monkeypatch.setattr(shortlist, "MOST_LINKS", sum(len(a) * len(b) for a, b in pairs) // 3 + 1)
    shortlist.build_shortlist(pairs, folder.tokenizer, folder.tokenizer)
    assert seen == [200]
    with pytest.raises(DataError, match="shortlist cannot be built: no pair has text"):
        shortlist.build_shortlist([([], [5])], folder.tokenizer, folder.tokenizer)


def test_a_saved_shortlist_is_loaded_unchanged(folder: ModelFolder, tmp_path: Path) -> None:
    made = shortlist.build_shortlist(shortlist.encode_pairs(TRAIN, folder), folder.tokenizer, folder.tokenizer)
    result = shortlist.load_shortlist(folder)
    for name in shortlist.TENSORS:
        np.testing.assert_array_equal(getattr(result, name), getattr(made, name))


def changed(**tensors: Any) -> Any:
    def damage(path: Path, metadata: dict[str, str]) -> None:
        save_file(
            load_file(path) | {name: change(load_file(path)[name]) for name, change in tensors.items()}, path, metadata
        )

    return damage


DAMAGE = [
    (lambda path, metadata: path.unlink(), "has no shortlist; build one with `heedful shortlist"),
    (lambda path, metadata: path.write_bytes(path.read_bytes()[:1000]), "is damaged"),
    (lambda path, metadata: save_file({"first": torch.zeros(1)}, path, metadata), "is damaged"),
    (lambda path, metadata: save_file(load_file(path), path, metadata | {"format": "7"}), "format 7"),
    (lambda path, metadata: save_file(load_file(path), path, metadata | {"vocabulary": "x"}), "another vocabulary"),
    (changed(likely=lambda x: x + 800), "do not fit together"),
    (changed(likely=lambda x: x - 800), "do not fit together"),
    (changed(always=lambda x: x[1:]), "do not fit together"),
    (changed(first=lambda x: x.flip(0)), "do not fit together"),
    (changed(first=lambda x: x[:-1]), "do not fit together"),
    (changed(first=lambda x: x.float()), "do not fit together"),
    (changed(likely=lambda x: x.bfloat16()), "do not fit together"),
    (changed(likely=lambda x: x[:0]), "do not fit together"),
]


@pytest.mark.parametrize(("damage", "log"), DAMAGE, ids=[f"{n}-{log}" for n, (_, log) in enumerate(DAMAGE)])
def test_a_damaged_shortlist_is_one_sentence(folder: ModelFolder, tmp_path: Path, damage: Any, log: str) -> None:
    broken = replace(folder, path=tmp_path)
    path = shortlist.save_shortlist(shortlist.load_shortlist(folder), broken)
    damage(path, {"format": shortlist.FORMAT, "vocabulary": shortlist.vocabulary_hash(folder)})
    with pytest.raises(FolderError, match=log) as error:
        Translator([broken], shortlist=True)
    assert "\n" not in str(error.value)


# ---- searches


ASKED: list[dict[str, Any]] = [
    {},
    {"beam": 1},
    {"n_best": 3, "length_penalty": 1.0},
    {"prefix": "Der Hund schläft"},
    {"alignments": True},
    {"sampling": True, "n_best": 2, "seed": 3},
    {"sampling": True, "top_k": 5, "prefix": "Bär"},
]
LINES = [source for source, _ in TEST[:12]] + ["", "Zyx 𓀀 qoph!"]


@pytest.mark.skipif(library() is None, reason="there is no compiled engine")
@pytest.mark.parametrize("requested", ASKED, ids=str)
def test_the_engine_and_torch_agree_in_every_search(
    folder: ModelFolder, requested: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    actual = Translator([folder], "float32", shortlist=True)
    assert actual.engines
    result = actual.translations(LINES, max_length=20, **requested)
    alone = [actual.translations([line], max_length=20, **requested)[0] for line in LINES]
    assert result == alone
    plain = Translator([folder], "float32", shortlist=True)
    monkeypatch.setattr(Translator, "engines", [])
    expected = plain.translations(LINES, max_length=20, **requested)
    assert [[item.text for item in row] for row in result] == [[value.text for value in row] for row in expected]
    for row, others in zip(result, expected, strict=True):
        for a, b in zip(row, others, strict=True):
            assert (a.ids, a.alignment) == (b.ids, b.alignment)
            assert a.token_log_probs == pytest.approx(b.token_log_probs, abs=1e-4)


def test_only_shortlisted_tokens_are_written_and_probabilities_sum_to_one(folder: ModelFolder) -> None:
    translator = Translator([folder], "float32", shortlist=True)
    lists, seen = shortlist.load_shortlist(folder), []

    class Watching(Observer):
        def step(self, sentence: torch.Tensor, prefix: torch.Tensor, log_probs: torch.Tensor) -> None:
            seen.append(log_probs)

    result = translator.translations(LINES, n_best=3, max_length=20)
    for line, alternatives in zip(LINES, result, strict=True):
        ids = lists.tokens(translator.source_tokenizer.encode(line))
        for way in alternatives:
            assert ids is None or set(way.ids) <= set(ids.tolist())
    free = Translator([folder], "float32").translations(LINES, n_best=3, max_length=20)
    assert [[way.ids for way in alternatives] for alternatives in result] != [
        [way.ids for way in alternatives] for alternatives in free
    ]
    translator.observer = Watching()
    translator.translations(LINES[:1], max_length=5, loop_guard=False)
    some = lists.tokens(translator.source_tokenizer.encode(LINES[0]))
    assert some is not None
    for log_probs in seen:
        frame = log_probs.isfinite().sum(1)
        assert (frame == len(some) - 2).all()  # bos and pad have their share, and are never written
        assert ((log_probs.exp().sum(1) - 1).abs() < 0.1).all()


@pytest.mark.parametrize("beam", [1, 4])
def test_ctranslate2_chooses_the_same(folder: ModelFolder, beam: int, tmp_path: Path) -> None:
    """Its lists are those of a batch, so every sentence comes alone."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    from heedful.interop.conversion import convert

    convert(folder.path, tmp_path / "theirs", "ctranslate2")
    lists = shortlist.load_shortlist(folder)
    (tmp_path / "theirs" / "vmap.txt").write_text(shortlist.vocabulary_map(lists, folder), encoding="utf-8")
    reference = ctranslate2.Translator(str(tmp_path / "theirs"), compute_type="float32", intra_threads=1)
    options = {"beam_size": beam, "length_penalty": 0, "max_decoding_length": 20, "return_scores": True}
    actual = Translator([folder], "float32", shortlist=True)
    known = [line for line in LINES if line and lists.tokens(folder.tokenizer.encode(line)) is not None]
    assert len(known) > 8
    for line in known:
        pieces = folder.tokenizer.pieces(folder.tokenizer.encode(line))
        (expected,) = reference.translate_batch([pieces], use_vmap=True, **options)
        (result,) = actual.translations([line], beam=beam, length_penalty=0.0, max_length=20, loop_guard=False)[0]
        assert list(result.tokens) == expected.hypotheses[0]
        assert result.log_prob == pytest.approx(expected.scores[0], abs=1e-3)


def test_an_ensemble_uses_a_shortlist_too(folder: ModelFolder) -> None:
    both = Translator([folder, folder], "float32", shortlist=True).translations(LINES, max_length=12)
    one = Translator([folder], "float32", shortlist=True).translations(LINES, max_length=12)
    assert [item[0].ids for item in both] == [value[0].ids for value in one]


def test_a_shortlist_of_everything_changes_nothing(folder: ModelFolder) -> None:
    translator = Translator([folder], "float32", shortlist=True)
    every = np.arange(800, dtype=np.int32)
    translator.shortlist = Shortlist(800, every, np.arange(801, dtype=np.int32), every)
    free = Translator([folder], "float32").translations(LINES, n_best=2, max_length=20)
    for row, others in zip(translator.translations(LINES, n_best=2, max_length=20), free, strict=True):
        assert [item.ids for item in row] == [other.ids for other in others]
        assert [value.score for value in row] == pytest.approx([entry.score for entry in others], abs=1e-4)
