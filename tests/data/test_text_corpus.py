"""Plain text on its way to blocks: documents, what is held out, the stream on disk, the plan."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from heedful import config
from heedful.data import documents
from heedful.data.blocks import held_out_blocks, plan_blocks, read_blocks
from heedful.data.documents import Documents, HeldOut, hold_out_documents
from heedful.data.text_corpus import TextCorpus, prepare_text
from heedful.errors import DataError, SettingError


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def texts(result: Documents) -> list[str]:
    whole: list[str] = []
    for part in result.parts():
        if part.document == len(whole):
            whole.append("")
        whole[part.document] += part.text
    return whole


def test_documents_end_at_blank_lines_and_file_ends(tmp_path: Path) -> None:
    files = (write(tmp_path, "a.txt", "\n\none\n two\n\n \t\nthree\n"), write(tmp_path, "b.gz", "four\n\nfive"))
    assert texts(Documents(files, "blank-lines")) == ["one\n two", "three", "four", "five"]
    assert texts(Documents(files, "files")) == ["\n\none\n two\n\n \t\nthree", "four\n\nfive"]


def test_long_documents_come_in_parts_that_join_to_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "PART_CHARACTERS", 20)
    text = "\n".join(f"line {i}" for i in range(50))
    result = Documents((write(tmp_path, "a.txt", text + "\n"),), "blank-lines")
    assert len(list(result.parts())) > 10
    assert texts(result) == [text]
    assert [part.last for part in result.parts()].count(True) == 1


def test_whole_documents_are_held_out_and_a_tenth_of_the_text() -> None:
    sizes = np.full(200, 50)
    held = hold_out_documents(sizes, None, seed=1)
    assert held == hold_out_documents(sizes, None, seed=1) != hold_out_documents(sizes, None, seed=2)
    assert held.tail is None
    assert len(held.documents) == 20
    assert len(hold_out_documents(sizes, 7, seed=1).documents) == 7
    with pytest.raises(SettingError, match="only 200 documents"):
        hold_out_documents(sizes, 200, seed=1)


@pytest.mark.parametrize("part", [30, 1 << 20])
def test_of_one_document_the_end_is_held_out_at_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr(documents, "PART_CHARACTERS", part)
    text = "\n".join(f"líne {i}" for i in range(100))
    result = Documents((write(tmp_path, "a.txt", text),), "files")
    held = hold_out_documents(np.array([len(text.encode())]), None, seed=1)
    stays = "".join(part.text for part, out in held.divide(result.parts()) if not out)
    goes = "".join(part.text for part, out in held.divide(result.parts()) if out)
    assert stays + goes == text
    assert stays.endswith("\n")
    assert 0.05 < len(goes) / len(text) < 0.12
    assert [part.last for part, out in held.divide(result.parts()) if not out][-1]


def test_a_text_without_line_ends_is_cut_between_characters() -> None:
    held = HeldOut(tail=(0, 4))
    divided = [(part.text, out) for part, out in held.divide(iter([documents.DocumentPart(0, "ééééé", True)]))]
    assert divided == [("éé", False), ("ééé", True)]


def test_the_end_of_the_longest_document_is_held_out() -> None:
    assert hold_out_documents(np.array([30, 5000, 8]), None, seed=1) == HeldOut(tail=(1, 5000 - 503))


def test_a_line_end_far_away_is_not_waited_for() -> None:
    text = "word " * 400 + "\nThe end."
    held = hold_out_documents(np.array([len(text)]), None, seed=1)
    goes = "".join(part.text for part, out in held.divide(iter([documents.DocumentPart(0, text, True)])) if out)
    assert 0.08 < len(goes) / len(text) < 0.12


def text_corpus(folder: Path, *settings: str, text: str = "", **data: object) -> TextCorpus:
    path = write(folder, "corpus.txt", text or "".join(f"document {i}\nhas two lines\n\n" for i in range(60)))
    return prepare_text(config.load_config(None, settings, data={"text": path, **data}), folder / "cache")


@pytest.mark.parametrize("kind", ["bpe", "bytes", "characters"])
def test_the_stream_is_the_text_and_every_document_ends(tmp_path: Path, kind: str) -> None:
    corpus = text_corpus(tmp_path, f"text.kind={kind}")
    end = corpus.tokenizer.eos_id
    for stream, count in ((corpus.train, corpus.report.documents), (corpus.valid, corpus.report.valid_documents)):
        borders = np.flatnonzero(np.asarray(stream) == end)
        assert len(borders) == count
        assert borders[-1] == len(stream) - 1
        rows = np.split(np.asarray(stream), borders + 1)[:-1]
        assert all(corpus.tokenizer.decode_text(row).endswith("\nhas two lines") for row in rows)
    assert corpus.report.documents + corpus.report.valid_documents == 60
    assert not corpus.reused
    assert text_corpus(tmp_path, f"text.kind={kind}").reused
    assert "documents held out from the training data" in corpus.report.lines()[1]


def test_other_settings_are_other_corpora_and_given_validation_is_taken(tmp_path: Path) -> None:
    first = text_corpus(tmp_path)
    inputs = text_corpus(tmp_path, valid_text=write(tmp_path, "valid.txt", "hello there\n\nand again, dear document\n"))
    assert inputs.path != first.path
    assert (inputs.report.documents, inputs.report.valid_documents) == (60, 2)
    assert text_corpus(tmp_path, "data.documents=files").report.tail
    with pytest.raises(SettingError, match="remove one of the two"):
        text_corpus(tmp_path, "data.valid_size=3", valid_text=tmp_path / "valid.txt")


@pytest.mark.parametrize("text", ["\n\n \n", "word\n"])
def test_too_little_text_is_one_sentence(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"holds no text|too short|longer text"):
        text_corpus(tmp_path, text=text)


def test_the_plan_of_blocks_is_pure_and_covers_the_stream() -> None:
    plan = plan_blocks(1000, 32, 128, seed=1, epoch=3)
    assert all(np.array_equal(a, b) for a, b in zip(plan, plan_blocks(1000, 32, 128, 1, 3), strict=True))
    assert not np.array_equal(plan[0], plan_blocks(1000, 32, 128, 1, 4)[0])
    assert {len(batch) for batch in plan[:-1]} == {4}
    starts = np.sort(np.concatenate(plan))
    assert set(np.diff(starts)) == {32}, "no token twice in an epoch"
    assert starts[0] < 32
    assert starts[-1] + 32 <= 999 < starts[-1] + 32 + 33
    assert [batch.tolist() for batch in plan_blocks(9, 8, 64, 1, 0)] == [[0]], "a text of one block"
    seen = {int(np.concatenate(plan_blocks(1000, 32, 128, 1, epoch)).min()) for epoch in range(30)}
    assert len(seen) > 10, "blocks begin elsewhere in every epoch"


@pytest.mark.parametrize("tokens", [2, 30, 33, 34, 1000])
def test_validation_reads_every_label_once(tokens: int) -> None:
    stream = np.arange(tokens).astype(np.uint16)
    batches = held_out_blocks(tokens, 32, most=10**6, batch_tokens=100)
    labels = [row[1:] for starts, length in batches for row in read_blocks(stream, starts, length + 1)]
    assert np.concatenate(labels).tolist() == list(range(1, tokens))
    assert sum(len(s) * n for s, n in held_out_blocks(tokens, 32, most=20, batch_tokens=100)) == min(20, tokens - 1)
