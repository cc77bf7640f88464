"""The encoded corpus: equal to encoding directly, built once, rebuilt when anything changed, damaged or was cut off."""

import json
import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from heedful.config import RunConfig
from heedful.data import parallel_corpus
from heedful.data.pairs import Pairs, id_type
from heedful.data.parallel_corpus import ParallelCorpus, prepare_parallel
from heedful.errors import DataError, FolderError, SettingError
from heedful.text import train_vocabulary
from heedful.text.placeholders import VOCABULARY_SLOTS
from heedful.text.vocabulary import slot_ids

from .files import config, sentence_pairs, told, write, write_gz, write_tsv


@pytest.fixture
def pairs_file(tmp_path: Path) -> Path:
    return write_tsv(tmp_path / "corpus.tsv", sentence_pairs())


def lists(pairs: Pairs) -> list[tuple[list[int], list[int]]]:
    return [(pairs.sources[i].tolist(), pairs.targets[i].tolist()) for i in range(len(pairs))]


def texts(corpus: ParallelCorpus) -> list[tuple[str, str]]:
    return [
        (corpus.source_tokenizer.decode(source), corpus.target_tokenizer.decode(target))
        for source, target in lists(corpus.train)
    ]


@pytest.mark.parametrize("joint", [True, False])
def test_the_corpus_equals_direct_encoding(pairs_file: Path, tmp_path: Path, joint: bool) -> None:
    corpus = prepare_parallel(config(pairs=pairs_file, text={"joint": joint}), tmp_path / "cache")
    assert corpus.joint is joint and not corpus.reused
    assert (corpus.source_tokenizer is corpus.target_tokenizer) is joint
    left = [pair for pair in sentence_pairs() if pair not in corpus.valid_text]
    assert texts(corpus) == left  # nothing lost, in order
    for rows, pairs in ((lists(corpus.train), left), (lists(corpus.valid), corpus.valid_text)):
        for (source, target), (source_text, target_text) in zip(rows, pairs, strict=True):
            assert source == corpus.source_tokenizer.encode(source_text)
            assert target == corpus.target_tokenizer.encode(target_text)
    assert corpus.train.sources.lengths.tolist() == [len(source) for source, _ in lists(corpus.train)]
    assert isinstance(corpus.train.sources.ids, np.memmap) and corpus.train.sources.ids.dtype == np.uint16


def test_the_vocabulary_is_learned_from_training_pairs_only(pairs_file: Path, tmp_path: Path) -> None:
    corpus = prepare_parallel(config(pairs=pairs_file), tmp_path / "cache")
    lines = [text for pair in texts(corpus) for text in pair]
    assert corpus.source_tokenizer.to_json() == train_vocabulary(lines).to_json()


def test_two_files_and_one_gzipped_tsv_give_the_same_pairs(pairs_file: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "a.en", "".join(f"{source}\r\n" for source, _ in sentence_pairs()))
    target = write_gz(tmp_path / "a.de", "\n".join(target for _, target in sentence_pairs()))
    tsv = write_gz(tmp_path / "b.tsv", pairs_file.read_text(encoding="utf-8"))
    corpora = [
        prepare_parallel(config(**data), tmp_path / "cache")
        for data in ({"pairs": tsv}, {"source": source, "target": target})
    ]
    assert lists(corpora[0].train) == lists(corpora[1].train)
    assert corpora[0].valid_text == corpora[1].valid_text


def test_a_second_run_reuses_the_cache(pairs_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepare_parallel(config(pairs=pairs_file), tmp_path / "cache")
    monkeypatch.setattr(parallel_corpus.ParallelBuilder, "build", None)  # calling it would fail
    os.utime(pairs_file, (1, 1))
    moved = pairs_file.rename(tmp_path / "moved.tsv")
    second = prepare_parallel(config(pairs=moved, train={"batch_tokens": 99}), tmp_path / "cache")
    assert second.reused and second.path == first.path
    assert lists(second.train) == lists(first.train) and lists(second.valid) == lists(first.valid)
    assert second.valid_text == first.valid_text
    assert second.source_tokenizer is second.target_tokenizer
    assert str(moved) in second.report.lines()[0]
    second.report.corpus, second.report.files = first.report.corpus, first.report.files
    assert second.report == first.report


def test_a_setting_that_changes_the_result_builds_a_new_corpus(pairs_file: Path, tmp_path: Path) -> None:
    valid = write_tsv(tmp_path / "valid.tsv", sentence_pairs()[:3])
    variants: list[RunConfig] = [
        config(pairs=pairs_file),
        config(pairs=pairs_file, max_length=20),
        config(pairs=pairs_file, max_ratio=3),
        config(pairs=pairs_file, deduplicate=False),
        config(pairs=pairs_file, valid_size=5),
        config(pairs=pairs_file, valid_pairs=valid),
        config(pairs=pairs_file, train={"seed": 2}),
        config(pairs=pairs_file, text={"joint": False}),
        config(pairs=pairs_file, text={"lowercase": True}),
        config(pairs=pairs_file, text={"vocab_size": 300}),
    ]
    corpora = [prepare_parallel(variant, tmp_path / "cache") for variant in variants]
    assert not any(corpus.reused for corpus in corpora)
    assert len({corpus.path for corpus in corpora}) == len(corpora)
    content = pairs_file.read_text(encoding="utf-8")
    write(pairs_file, content.replace("Hund", "Hond", 1))
    assert not prepare_parallel(config(pairs=pairs_file), tmp_path / "cache").reused
    write(pairs_file, content)
    assert prepare_parallel(config(pairs=pairs_file), tmp_path / "cache").reused
    assert not prepare_parallel(config(pairs=pairs_file), tmp_path / "elsewhere").reused


@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "manifest", "empty", "file"])
def test_a_damaged_corpus_is_built_again(pairs_file: Path, tmp_path: Path, damage: str) -> None:
    first = prepare_parallel(config(pairs=pairs_file), tmp_path / "cache")
    rows, path = lists(first.train), first.path / "train.target.ids"
    content = path.read_bytes()
    del first
    if damage == "cut":
        path.write_bytes(content[:-2])
    elif damage == "flip":
        path.write_bytes(content[:-2] + b"\xff\xff")
    elif damage == "gone":
        path.unlink()
    elif damage == "file":
        (path.parent / "report.json").write_text("{}")
    else:
        (path.parent / "manifest.json").write_text("[1]" if damage == "manifest" else "")
    second = prepare_parallel(config(pairs=pairs_file), tmp_path / "cache")
    assert not second.reused
    assert lists(second.train) == rows
    assert prepare_parallel(config(pairs=pairs_file), tmp_path / "cache").reused


def test_a_run_that_is_cut_off_leaves_no_corpus(
    pairs_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(parallel_corpus.ParallelBuilder, "_encode", stop)
        with pytest.raises(KeyboardInterrupt):
            prepare_parallel(config(pairs=pairs_file), tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    corpus = prepare_parallel(config(pairs=pairs_file), tmp_path / "cache")
    (tmp_path / "cache" / f".{corpus.path.name}.host.1.tmp").mkdir()  # as a killed process leaves it
    (corpus.path / "manifest.json").unlink()
    assert not prepare_parallel(config(pairs=pairs_file), tmp_path / "cache").reused


def _prepare_in_process(pairs_file: Path, folder: Path) -> bool:
    return prepare_parallel(config(pairs=pairs_file), folder).reused


def test_one_of_two_processes_builds_the_corpus(pairs_file: Path, tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        reused = pool.starmap(_prepare_in_process, [(pairs_file, tmp_path / "cache")] * 2)
    assert sorted(reused) == [False, True]


def test_given_tokenizers_are_used(pairs_file: Path, tmp_path: Path) -> None:
    one, two = train_vocabulary(["the dog " * 50]), train_vocabulary(["Der Hund " * 50])
    corpus = prepare_parallel(config(pairs=pairs_file), tmp_path / "cache", tokenizers=(one, two))
    assert corpus.source_tokenizer.to_json() == one.to_json() and corpus.target_tokenizer.to_json() == two.to_json()
    assert corpus.train.targets[0].tolist() == two.encode(texts(corpus)[0][1])
    joint = prepare_parallel(config(pairs=pairs_file), tmp_path / "cache", tokenizers=(one, one))
    assert joint.joint and joint.path != corpus.path
    assert prepare_parallel(
        config(pairs=pairs_file, text={"vocab_size": 999}), tmp_path / "cache", tokenizers=(one, two)
    ).reused


def test_validation_files_and_held_out_sources_exclude_each_other(pairs_file: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError) as caught:
        prepare_parallel(config(pairs=pairs_file, valid_pairs=pairs_file, valid_size=9), tmp_path / "cache")
    told(caught, "data.valid_size (9)", f"({pairs_file})", "remove one of the two")


def test_held_out_sources_are_not_trained_on(tmp_path: Path) -> None:
    pairs = [(source, f"{target} {i}") for source, target in sentence_pairs() for i in range(3)]
    pairs += [(f"  {source} ", target) for source, target in sentence_pairs()]  # the same source to a model
    pairs_file = write_tsv(tmp_path / "corpus.tsv", pairs + pairs + [(source, "") for source, _ in sentence_pairs()])
    corpus = prepare_parallel(config(pairs=pairs_file, valid_size=7), tmp_path / "cache")
    held = {source.strip() for source, _ in corpus.valid_text}
    assert len(held) == corpus.report.valid_sources == 7
    assert not held & {source for source, _ in texts(corpus)}
    assert len(corpus.valid) == len(corpus.valid_text) == 7 * 4 == corpus.report.held_out
    assert len(corpus.train) == len(pairs) - 28
    again = prepare_parallel(config(pairs=pairs_file, valid_size=7), tmp_path / "again")
    assert again.valid_text == corpus.valid_text
    other = prepare_parallel(config(pairs=pairs_file, valid_size=7, train={"seed": 5}), tmp_path / "cache")
    assert other.valid_text != corpus.valid_text


@pytest.mark.parametrize(("sources", "held"), [(320, 32), (8000, 80), (2000, 50), (11, 1)])
def test_the_size_of_the_held_out_set(tmp_path: Path, sources: int, held: int) -> None:
    pairs_file = write_tsv(tmp_path / "corpus.tsv", [(f"word {i}", f"Wort {i}") for i in range(sources)])
    assert prepare_parallel(config(pairs=pairs_file), tmp_path / "cache").report.valid_sources == held


def test_validation_files_are_kept_as_they_are(pairs_file: Path, tmp_path: Path) -> None:
    raw = [(" The dog  sees\u2028it. ", "x"), ("", "leer"), ("a", "b " * 12), ("a", "b " * 12), ("lang " * 300, "lang")]
    valid = write_tsv(tmp_path / "valid.tsv", [*raw, sentence_pairs()[0]])
    corpus = prepare_parallel(
        config(pairs=pairs_file, valid_pairs=valid, max_length=60, max_ratio=2), tmp_path / "cache"
    )
    assert corpus.valid_text == [raw[0], raw[2], raw[3], sentence_pairs()[0]]  # neither ratio nor duplicates matter
    assert len(corpus.valid) == 4 and len(corpus.train) == len(sentence_pairs())
    report = corpus.report
    assert (report.valid_read, report.valid_kept, report.valid_overlap, report.held_out) == (6, 4, 1, 0)
    assert report.valid_dropped == {"empty side": 1, "too long": 1}


def test_a_corpus_is_read_in_chunks(pairs_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = prepare_parallel(config(pairs=pairs_file), tmp_path / "whole")
    said: list[str] = []
    monkeypatch.setattr(parallel_corpus, "CHUNK_PAIRS", 7)
    by_count = prepare_parallel(config(pairs=pairs_file), tmp_path / "count", said.append)
    assert sum(message.startswith("encoded") for message in said) == 46
    said.clear()
    monkeypatch.setattr(parallel_corpus, "CHUNK_CHARACTERS", 100)
    by_characters = prepare_parallel(config(pairs=pairs_file), tmp_path / "characters", said.append)
    assert 46 < sum(message.startswith("encoded") for message in said) < 160
    assert lists(whole.train) == lists(by_count.train) == lists(by_characters.train)


def test_a_large_corpus_teaches_the_vocabulary_by_sample(
    pairs_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel_corpus, "MAX_VOCABULARY_PAIRS", 100)
    corpus = prepare_parallel(config(pairs=pairs_file), tmp_path / "cache")
    assert corpus.report.sampled == 3
    assert "trained on one pair in 3" in "\n".join(corpus.report.lines())
    assert len(corpus.train) == 288


def test_large_vocabularies_need_larger_numbers(tmp_path: Path) -> None:
    assert id_type(65_536) is np.uint16
    assert id_type(65_537) is np.uint32


def test_progress_is_reported(pairs_file: Path, tmp_path: Path) -> None:
    said: list[str] = []
    prepare_parallel(config(pairs=pairs_file), tmp_path / "cache", said.append)
    assert said[0].startswith("checking") and said[-1] == "encoded 320 of 320 pairs"
    assert any("training a joint vocabulary on 288 pairs" in message for message in said)


def test_an_empty_corpus_is_reported(tmp_path: Path) -> None:
    pairs_file = write(tmp_path / "corpus.tsv", "")
    with pytest.raises(DataError) as caught:
        prepare_parallel(config(pairs=pairs_file), tmp_path / "cache")
    told(caught, pairs_file, "no lines in")


def test_a_catalog_of_unfinished_translations_gets_advice_of_its_own(tmp_path: Path) -> None:
    catalog = write(tmp_path / "a.po", '#, fuzzy\nmsgid "dog"\nmsgstr "Hund"\n')
    with pytest.raises(DataError) as caught:
        prepare_parallel(config(pairs=catalog), tmp_path / "cache")
    told(caught, catalog, "1 dropped: fuzzy", "only finished translations are read")


@pytest.mark.parametrize(
    ("pairs", "settings", "words"),
    [
        ([("", "a"), (" \u00a0", "b")], {}, ["2 read", "2 dropped: empty side"]),
        (sentence_pairs(), {"max_length": 1}, ["320 read", "320 dropped: too long", "or raise data.max_length and"]),
        (sentence_pairs(), {"max_source_length": 1}, ["or raise data.max_source_length, data.max_length and"]),
        ([("a b c d", f"{'x ' * 50}{i}") for i in range(50)], {"max_ratio": 2}, ["50 dropped: length ratio"]),
    ],
)
def test_a_corpus_of_which_nothing_is_left_is_reported(
    tmp_path: Path, pairs: list[tuple[str, str]], settings: dict[str, object], words: list[str]
) -> None:
    pairs_file = write_tsv(tmp_path / "corpus.tsv", pairs)
    valid = write_tsv(tmp_path / "valid.tsv", [("a", "b")])
    with pytest.raises(DataError) as caught:
        prepare_parallel(config(pairs=pairs_file, valid_pairs=valid, **settings), tmp_path / "cache")
    told(caught, pairs_file, "no pair", "left for training", *words)


def test_a_validation_set_of_which_nothing_is_left_is_reported(pairs_file: Path, tmp_path: Path) -> None:
    valid = write_tsv(tmp_path / "valid.tsv", [("", "b")])
    with pytest.raises(DataError) as caught:
        prepare_parallel(config(pairs=pairs_file, valid_pairs=valid), tmp_path / "cache")
    told(caught, valid, "1 dropped from validation: empty side")


def test_too_few_sources_to_hold_out_are_reported(pairs_file: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError) as caught:
        prepare_parallel(config(pairs=pairs_file, valid_size=320), tmp_path / "cache")
    told(caught, "data.valid_size is 320", "only 320 different sources")
    one = write_tsv(tmp_path / "one.tsv", [("a", "b"), ("a", "c")])
    with pytest.raises(DataError) as caught:
        prepare_parallel(config(pairs=one), tmp_path / "cache")
    told(caught, "1 different source,", "data.valid_source")


def test_misaligned_files_are_reported(tmp_path: Path) -> None:
    source, target = write(tmp_path / "s", "a\nb\nc\n"), write(tmp_path / "t", "a\nb\n")
    with pytest.raises(DataError) as caught:
        prepare_parallel(config(source=source, target=target), tmp_path / "cache")
    told(caught, f"{source} has 3 lines", f"{target} has 2")


def test_files_that_cannot_be_kept_or_read_twice_are_reported(pairs_file: Path, tmp_path: Path) -> None:
    with pytest.raises(FolderError) as caught:
        prepare_parallel(config(pairs=pairs_file), pairs_file / "cache")
    told(caught, pairs_file / "cache", "data.cache_dir")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError) as caught:
        prepare_parallel(config(pairs=tmp_path / "pipe"), tmp_path / "cache")
    told(caught, tmp_path / "pipe", "is a pipe")
    with pytest.raises(DataError) as caught:
        prepare_parallel(config(pairs=tmp_path / "nowhere"), tmp_path / "cache")
    told(caught, tmp_path / "nowhere", "does not exist")
    with pytest.raises(DataError) as caught:
        prepare_parallel(config(source=tmp_path, target=tmp_path), tmp_path / "cache")
    told(caught, tmp_path, "is a folder")


def test_a_corpus_that_changes_while_it_is_read_is_reported(
    pairs_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assign = parallel_corpus.ParallelBuilder._assign

    def grow(*arguments: object) -> object:
        assignment = assign(*arguments)  # type: ignore[arg-type]
        with pairs_file.open("a") as file:
            file.write("one\tmore\n")
        return assignment

    monkeypatch.setattr(parallel_corpus.ParallelBuilder, "_assign", grow)
    with pytest.raises(DataError) as caught:
        prepare_parallel(config(pairs=pairs_file), tmp_path / "cache")
    told(caught, pairs_file, "changed while it was read")


def test_the_manifest_names_every_file(pairs_file: Path, tmp_path: Path) -> None:
    path = prepare_parallel(config(pairs=pairs_file, text={"joint": False}), tmp_path / "cache").path
    named = set(json.loads((path / "manifest.json").read_text()))
    assert named | {"manifest.json"} == {file.name for file in path.iterdir()}
    assert {"report.json", "valid.json", "source.tokenizer.json", "target.tokenizer.json"} <= named


def test_placeholders_of_pairs_become_slots_if_there_are_enough_of_them(tmp_path: Path) -> None:
    def build(count: int) -> ParallelCorpus:
        rows = [(f"copy file {i} to {{name}}, please", f"kopiere {{name}}, bitte, Datei {i}") for i in range(count)]
        rows += [(f"the dog reads book {i}", f"der Hund liest Buch {i}") for i in range(150)]
        return prepare_parallel(config(pairs=write_tsv(tmp_path / f"{count}.tsv", rows), valid_size=5), tmp_path / "c")

    corpus = build(150)
    ids = slot_ids(corpus.target_tokenizer)
    assert ids is not None and 100 <= corpus.report.masked <= 150
    slots = [tuple(set(ids) & set(side) for side in pair) for pair in lists(corpus.train)]
    assert all(source == target and len(source) <= 1 for source, target in slots) and any(a for a, _ in slots)
    assert not set(VOCABULARY_SLOTS) & set("".join(text for pair in corpus.valid_text for text in pair))
    assert "placeholders become slots" in "\n".join(corpus.report.lines())
    few = build(60)
    assert slot_ids(few.target_tokenizer) is None and few.report.masked == 0
