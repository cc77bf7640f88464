"""BART and PEGASUS folders against transformers: the same numbers, the same summaries, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import heedful
from heedful import interop
from heedful.inference.summarizer import Summarizer
from heedful.interop.conversion import convert
from heedful.search import Observer
from tests.interop.makers import bart, pegasus

TEXTS = ["The old man sleeps.", "Where is the station? Here it is.", "Ein Hund!"]
SIZES: dict[str, dict[str, Any]] = {
    "small": {},
    "wide": {"d_model": 48, "encoder_ffn_dim": 80, "decoder_ffn_dim": 80, "decoder_layers": 3, "scale_embedding": True},
    "relu": {"encoder_layers": 1, "activation_function": "relu", "max_position_embeddings": 90},
}


PEGASUS_SIZES: dict[str, dict[str, Any]] = {
    "small": {},
    "wide": {"d_model": 48, "encoder_ffn_dim": 80, "decoder_ffn_dim": 80, "decoder_layers": 3},
    "gelu": {"encoder_layers": 1, "activation_function": "gelu", "d_model": 24},
}


STOPPING = {"never": "n-best", False: "beam", True: "first"}  # early_stopping of transformers -> of heedful
RANKING: list[dict[str, Any]] = [
    {"num_beams": 1, "length_penalty": 1.0, "early_stopping": False},
    {"num_beams": 4, "length_penalty": 0.0, "early_stopping": "never"},
    {"num_beams": 4, "length_penalty": 1.0, "early_stopping": False},
    {"num_beams": 3, "length_penalty": 0.5, "early_stopping": True},
    {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True},
]


def check_against_transformers(theirs: Any, path: Path) -> int:
    """Logits, and the tokens of greedy and beam search; how many beam searches ended before the limit."""
    theirs.generation_config.update(**dict.fromkeys(RANKING[0]))
    summarizer = heedful.load(path, kind=Summarizer, precision="float32")
    tokenizer, eos = summarizer.source_tokenizer, theirs.config.eos_token_id
    finished = 0
    for text in TEXTS:
        ids = [*tokenizer.encode(text), tokenizer.eos_id]
        assert ids[-1] == eos
        source, target = torch.tensor([ids]), torch.tensor([[theirs.config.decoder_start_token_id, 0, 9, 8, 7]])
        with torch.no_grad():
            expected = theirs(input_ids=source, decoder_input_ids=target).logits
            model = summarizer.modules[0]
            torch.testing.assert_close(model.project(model(source, target)), expected, atol=2e-4, rtol=1e-4)
        for beams in RANKING:
            for shortest, repeated in ((0, 0), (5, 2)):
                output = theirs.generate(
                    source, do_sample=False, max_length=31, min_length=shortest and shortest + 1,
                    no_repeat_ngram_size=repeated, bad_words_ids=[[theirs.config.pad_token_id]], **beams,
                )[0, 1:].tolist()  # fmt: skip
                options = {"max_length": 30, "min_length": shortest, "no_repeat_ngram": repeated, "loop_guard": False}
                options |= {"beam": beams["num_beams"], "length_penalty_form": "power"}
                options |= {
                    "length_penalty": beams["length_penalty"],
                    "early_stopping": STOPPING[beams["early_stopping"]],
                }
                best = summarizer.translations([text], **options)[0][0]
                if beams["num_beams"] == 1 or eos in output:  # at the limit they rank what is cut off with the others
                    assert list(best.ids) == [token for token in output if token != eos], beams
                    finished += beams["num_beams"] > 1
    return finished


@pytest.mark.parametrize("size", SIZES)
def test_bart_writes_the_summaries_of_transformers(tmp_path: Path, size: str) -> None:
    folders = {seed: tmp_path / str(seed) for seed in range(3)}
    models = [bart(folder, seed, size != "relu", **SIZES[size]) for seed, folder in folders.items()]
    assert sum(map(check_against_transformers, models, folders.values())) > 3


@pytest.mark.parametrize("size", PEGASUS_SIZES)
def test_pegasus_writes_the_summaries_of_transformers(tmp_path: Path, size: str) -> None:
    folders = {seed: tmp_path / str(seed) for seed in range(3)}
    models = [pegasus(folder, seed, **PEGASUS_SIZES[size]) for seed, folder in folders.items()]
    assert sum(map(check_against_transformers, models, folders.values())) > 3


@pytest.mark.parametrize("make", [bart, pegasus])
def test_a_tokenizer_file_frames_a_text_as_transformers_does(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    make(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = interop.open_folder(tmp_path).source_tokenizer
    for text in TEXTS:
        assert [*ours.encode(text), ours.eos_id] == theirs(text)["input_ids"]


def test_a_folder_converts_and_comes_back(tmp_path: Path) -> None:
    bart(tmp_path / "bart", seed=1)
    convert(tmp_path / "bart", tmp_path / "ours", "heedful")
    convert(tmp_path / "ours", tmp_path / "again", "huggingface")
    first, own, again = (heedful.load(tmp_path / name, kind=Summarizer) for name in ("bart", "ours", "again"))
    options: dict[str, Any] = {"max_length": 12, "beam": 2}
    assert first.summarize(TEXTS, **options) == own.summarize(TEXTS, **options) == again.summarize(TEXTS, **options)
    assert own.summarize("") == ""


SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {"num_beams": 1, "forced_eos_token_id": True},
    "nothing": {"num_beams": None, "forced_eos_token_id": True},
    "beam": {"num_beams": 4, "length_penalty": 0.0, "early_stopping": "never"},
    "short": {"num_beams": 1, "forced_eos_token_id": True, "min_length": 7, "max_length": 7},
    "new tokens": {"num_beams": 1, "min_length": None, "max_length": None, "min_new_tokens": 6, "max_new_tokens": 9},
}


def make_with_settings(make: Callable[[Path, int], Any], path: Path, settings: str) -> Any:
    theirs = make(path, 1)
    values = {"min_length": 8, "max_length": 40, "no_repeat_ngram_size": 3} | SETTINGS[settings]
    values["bad_words_ids"] = [[theirs.config.pad_token_id]]
    if "forced_eos_token_id" in values:
        values["forced_eos_token_id"] = theirs.config.eos_token_id
    if make is bart:
        values["forced_bos_token_id"] = theirs.config.bos_token_id
    theirs.generation_config.update(**values)
    theirs.generation_config.save_pretrained(path)
    return theirs


def generated(theirs: Any, summarizer: Summarizer, text: str) -> list[int]:
    """The tokens of generate() with the settings of the folder."""
    tokenizer = summarizer.source_tokenizer
    output = theirs.generate(torch.tensor([[*tokenizer.encode(text), tokenizer.eos_id]]))
    return [token for token in output[0, 1:].tolist() if token != tokenizer.eos_id]


@pytest.mark.parametrize("make", [bart, pegasus])
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_folder_summarizes_with_its_own_settings(
    tmp_path: Path, make: Callable[[Path, int], Any], settings: str
) -> None:
    theirs = make_with_settings(make, tmp_path, settings)
    summarizer = heedful.load(tmp_path, kind=Summarizer, precision="float32")
    for text in TEXTS:
        summary = summarizer.translations([text], loop_guard=False)[0][0]
        assert list(summary.ids) == generated(theirs, summarizer, text)
        assert "<s>" not in summary.text


@pytest.mark.parametrize("native", [True, False])
def test_the_first_token_precedes_a_prefix_and_is_in_a_shortlist(tmp_path: Path, native: bool) -> None:
    make_with_settings(bart, tmp_path, "beam")
    summarizer = heedful.load(tmp_path, kind=Summarizer, precision="float32")
    if not native:
        summarizer.observer = Observer()
    first, tokenizer = summarizer.search.first_token, summarizer.tokenizer
    assert first == 0
    (part,) = summarizer.parts(TEXTS[:1], [""])
    part = replace(part, shortlist=np.arange(5, 40, dtype=np.int32))
    request = summarizer.search_request(part, summarizer.options({}))
    assert request.prefix == (first,) and list(request.shortlist) == [first, *range(5, 40)]
    best = summarizer.translations(TEXTS[:1], prefix="The old")[0][0]
    assert best.ids[: len(tokenizer.encode("The old"))] == tuple(tokenizer.encode("The old"))
    assert tokenizer.encode("The old")[0] == first and best.ids[1] != first and best.text.startswith("The old")


def test_the_settings_of_a_folder_are_written_back(tmp_path: Path) -> None:
    theirs = make_with_settings(bart, tmp_path / "bart", "greedy")
    convert(tmp_path / "bart", tmp_path / "ours", "heedful")
    convert(tmp_path / "ours", tmp_path / "again", "huggingface")
    again = transformers.BartForConditionalGeneration.from_pretrained(tmp_path / "again")
    summarizer = heedful.load(tmp_path / "ours", kind=Summarizer)
    for text in TEXTS:
        assert generated(again, summarizer, text) == generated(theirs, summarizer, text)


@pytest.mark.parametrize("ranking", RANKING[1:], ids=str)
def test_the_ranking_of_a_folder_is_read_and_written_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ranking: dict[str, Any]
) -> None:
    theirs = bart(tmp_path / "bart")
    theirs.generation_config.update(**ranking)
    theirs.generation_config.save_pretrained(tmp_path / "bart")
    search = interop.open_folder(tmp_path / "bart").search
    assert search.length_penalty_form == "power" and search.early_stopping == STOPPING[ranking["early_stopping"]]
    assert (search.beam, search.length_penalty) == (ranking["num_beams"], ranking["length_penalty"])
    convert(tmp_path / "bart", tmp_path / "ours", "heedful")
    convert(tmp_path / "ours", tmp_path / "again", "huggingface")
    written = transformers.GenerationConfig.from_pretrained(tmp_path / "again")
    assert {name: getattr(written, name) for name in ranking} == ranking
    assert not caplog.text


def test_a_ranking_that_heedful_does_not_have_is_noted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bart(tmp_path)
    for values, note in (
        ({"num_beams": 4, "length_penalty": -1.0}, "length_penalty=-1 is read as 0, so that a beam search may"),
        ({"num_beams": 4, "early_stopping": "never"}, "early_stopping=never is read as the n best, so that"),
        ({"num_beams": 1, "length_penalty": -1.0}, ""),
    ):
        caplog.clear()
        (tmp_path / "generation_config.json").write_text(json.dumps(values))
        interop.open_folder(tmp_path)
        assert note in caplog.text and bool(note) == bool(caplog.text)
