"""What the page and the file of numbers are made of."""

from __future__ import annotations

import base64
import gzip
import json
import re
from importlib.resources import files

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from heedful.data.token_trees import TokenTrees
from heedful.errors import SettingError
from heedful.formats.conllu import ROOT, DependencyTree
from heedful.inference.record import record
from heedful.inference.translator import Translator
from heedful.inside import explain, record_run
from heedful.inside.hops import hop_table
from heedful.inside.page_packing import TYPES, half, pack, shares
from heedful.inside.tokens import TokenReader
from heedful.text import train_plain_vocabulary

PAGE = files("heedful.inside") / "page"
BROWSER = {"decodeURIComponent", "getComputedStyle", "matchMedia", "setTimeout"}  # what the scripts call of it

TEXT = "The old man sleeps while the children read a book."
KINDS = {"encoder-decoder": 3, "decoder": 1, "encoder": 1}


def unpack(text: str):
    """What page/data.js does."""
    whole = gzip.decompress(base64.b64decode(text))
    length = int.from_bytes(whole[:4], "little")
    types = {short: name for name, short in TYPES.items()}

    def placed(value):
        if "$" not in value:
            return value
        kind, shape, start = value["$"]
        count = int(np.prod(shape)) if shape else 1
        return np.frombuffer(whole, np.dtype(types[kind]), count, 4 + length + start).reshape(shape)

    return json.loads(whole[4 : 4 + length], object_hook=placed)


def test_packed_arrays_are_unpacked_unchanged():
    arrays = [np.arange(7, dtype=kind).reshape(7, 1) for kind in ("float16", "float32", "uint8", "uint16", "int32")]
    data = {"a": arrays, "text": "</script>\u2028 ü 👩‍👧", "none": None, "deep": [{"b": arrays[1]}, (1, 2.5)]}
    packed = pack(data)
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", packed)
    assert pack(data) == packed
    back = unpack(packed)
    assert back["text"] == data["text"]
    assert back["deep"][1] == [1, 2.5]
    for actual, expected in zip(back["a"], arrays, strict=True):
        assert actual.dtype == expected.dtype
        assert np.array_equal(actual, expected)


def test_numbers_are_rounded_and_never_infinite():
    assert np.isfinite(half(torch.tensor([1e9, -1e9, 0.1234567]))).all()
    weights = torch.rand(100)
    assert np.abs(shares(weights, True) / 65535 - weights.numpy()).max() < 1e-5
    assert np.abs(shares(weights, False) / 255 - weights.numpy()).max() < 0.002


def test_a_page_holds_the_recorded_weights(folder):
    result = explain(folder, TEXT)
    page = result.html()
    data = unpack(re.search(r'<script id="data" type="text/plain">([^<]+)</script>', page)[1])
    assert data["text"] == TEXT
    assert len(data["attentions"]) == KINDS[folder.model.config.family]
    for item in data["attentions"]:
        for layer in range(2):
            weights = result.run.trace[f"{item['stack']}.{layer}.{item['kind']}.weights"].numpy()
            assert np.abs(item["weights"][layer] / 65535 - weights).max() < 1e-5
            assert len(item["work"][layer]) == 4
    assert page.count("<script") == 2
    assert set(re.findall(r"\w+://[^\s\"']*", page)) == {"http://www.w3.org/2000/svg"}  # a name, which is never opened


def test_the_numbers_of_a_run_are_those_of_its_search(translator_folder):
    """One pass over the result equals what the beam computed on its way."""
    translator = Translator([translator_folder])
    with record(translator, "*") as trace:
        translator.translate(TEXT)
    searched, result = trace.sentence(0), record_run(translator_folder, TEXT)
    assert set(searched) - {"logits"} <= set(result.trace)
    for name, activation in searched.items():
        if name != "logits":
            assert_close(activation + 0, result.trace[name], atol=1e-4, rtol=1e-4)


def test_the_translation_is_the_one_that_users_get(translator_folder):
    assert record_run(translator_folder, TEXT).output == Translator([translator_folder]).translate(TEXT)
    assert record_run(translator_folder, TEXT, beam=1).output == Translator([translator_folder]).translate(TEXT, beam=1)
    assert record_run(translator_folder, TEXT, beam=1).folder.search.beam == 1  # which the page speaks of
    inputs = record_run(translator_folder, TEXT, target="Der alte Mann schläft.")
    assert inputs.output == "Der alte Mann schläft."
    assert inputs.tree is None


def test_a_gpt_goes_on_and_its_positions_predict_the_next(make_folder):
    result = record_run(make_folder("decoder"), TEXT)
    ids = result.folder.tokenizer.encode(TEXT)
    assert result.target.ids[: len(ids)] == ids
    assert result.labels == [*result.target.ids[1:], result.labels[-1]]
    assert len(result.labels) == len(result.target.ids) == len(result.hidden)
    assert result.tree.hypotheses[0].ids[0] == result.labels[len(ids) - 1]


@pytest.mark.parametrize("mask", ["<mask>", "[MASK]"])  # as for `heedful fill-mask`
def test_an_encoder_guesses_what_is_masked(make_folder, mask):
    folder = make_folder("encoder")
    result = record_run(folder, f"The old {mask} sleeps.")
    assert result.source.ids.count(folder.tokenizer.mask_id) == 1
    assert result.source.words[3] == "<mask>"
    assert result.source.special[0] and result.source.special[-1]
    with pytest.raises(SettingError, match="an encoder generates no text"):
        record_run(folder, TEXT, target="x")
    with pytest.raises(SettingError, match="an encoder generates no text"):
        record_run(folder, TEXT, beam=2)


def test_a_long_text_is_truncated_with_a_notice(folder):
    result = record_run(folder, "The old man sleeps. " * 60)
    assert "shown is its first part" in result.note
    longest = max(len(side.ids) for side in (result.source, result.target) if side is not None)
    assert longest <= 64
    with pytest.raises(SettingError, match="the text is empty"):
        record_run(folder, "  ")


def test_the_rest_of_the_vocabulary_is_counted_at_every_temperature(folder):
    result = explain(folder, TEXT)
    outputs = result.data()["outputs"]
    with torch.inference_mode():
        logits = folder.model.project(result.run.hidden).float()
    for place, temperature in enumerate(outputs["temperatures"]):
        best = torch.from_numpy(outputs["logits"])
        remaining = ((best - best[:, :1]) / temperature).exp()
        rest = torch.from_numpy(outputs["rest"])[:, place].exp()
        whole = ((logits - best[:, :1]) / temperature).exp().sum(-1)
        assert_close(remaining.sum(-1) + rest, whole, rtol=1e-4, atol=1e-4)


def test_long_texts_keep_the_largest_weights(make_folder, monkeypatch):
    monkeypatch.setattr("heedful.inside.page_data.DENSE", 100)
    monkeypatch.setattr("heedful.inside.page_data.SPARSE", 2000)
    monkeypatch.setattr("heedful.inside.page_data.STEPS", 1000)
    result = explain(make_folder("decoder"), TEXT)
    data = result.data()
    (attention,) = data["attentions"]
    assert "weights" not in attention
    assert 0 < attention["kept"] < 1
    weights = result.run.trace["decoder.1.self.weights"].numpy()
    back = np.zeros_like(weights)
    np.put_along_axis(back, attention["places"][1].astype(int), attention["values"][1] / 255, -1)
    assert np.abs(np.sort(back, -1)[..., -4:] - np.sort(weights, -1)[..., -4:]).max() < 0.003
    assert "queries" not in data["steps"]["decoder"]["layers"][1]["self"]


def test_the_raw_numbers_are_plain_json(folder, tmp_path):
    result = explain(folder, TEXT)
    result.save_numbers(tmp_path / "x.json")
    numbers = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    for name, attention in numbers["attention"].items():
        assert_close(torch.tensor(attention["values"]), result.run.trace[name], atol=1e-6, rtol=0)
        assert attention["axes"] == ["head", "query", "key"]
    translates = folder.model.config.family == "encoder-decoder"
    assert (numbers["alignment"] is not None) == translates
    assert (numbers["search"] is not None) == (folder.model.config.family != "encoder")


def test_pieces_become_words_whatever_they_are_spelled_with(tokenizer):
    side = TokenReader(tokenizer).side([tokenizer.bos_id, *tokenizer.encode("Größe 🙂 x<y"), tokenizer.eos_id])
    assert side.words == ["<s>", "Größe", "🙂", "x<y", "</s>"]
    assert side.special == [True, *[False] * (len(side.ids) - 2), True]
    assert TokenReader(tokenizer).side([]).words == []
    by_character = train_plain_vocabulary(["To be\nor not To be\n"] * 9, "characters")
    spaced = TokenReader(by_character).side(by_character.encode("To be\nor"))
    assert spaced.pieces == ["T", "o", "␣", "b", "e", "↵", "o", "r"]
    assert spaced.words == ["To", "be", "or"]
    inside = tokenizer.encode("xx")[-1]
    assert TokenReader(tokenizer).label(inside).startswith("·")


@pytest.mark.parametrize(
    ("changes", "shown", "stepped", "placed"),
    [
        ({"architecture": "rnn"}, ["decoder.cross"], False, False),
        ({"architecture": "rnn", "source_attention": "dot"}, ["decoder.cross"], False, False),
        ({"architecture": "conv"}, ["decoder.cross"], False, True),
        ({"universal": True}, ["encoder.self", "decoder.self", "decoder.cross"], False, True),
        ({"attention": "linformer", "decoder_attention": "full"}, ["decoder.self", "decoder.cross"], False, True),
        ({"attention": "linear"}, ["encoder.self", "decoder.self", "decoder.cross"], True, True),
        ({"experts": 3}, ["encoder.self", "decoder.self", "decoder.cross"], True, True),
        ({"positions": "syntax"}, ["encoder.self", "decoder.self", "decoder.cross"], True, True),
        ({"experts": 3, "universal": True}, ["encoder.self", "decoder.self", "decoder.cross"], False, True),
    ],
)
def test_every_system_shows_the_attention_it_has(make_folder, changes, shown, stepped, placed):
    result = explain(make_folder(**changes), TEXT)
    data, numbers = result.data(), result.numbers()
    assert [f"{item['stack']}.{item['kind']}" for item in data["attentions"]] == shown
    assert (data["steps"] is not None, data["positions"] is not None) == (stepped, placed)
    assert data["alignment"]["links"]
    for values in (np.array(number["values"]) for number in numbers["attention"].values()):
        assert np.allclose(values.sum(-1), 1, atol=1e-4)
    assert result.html()


class EachWordBelowTheLast:
    def parse(self, sentence: str) -> DependencyTree:
        words = tuple(sentence.split())
        return DependencyTree(words, (ROOT, *range(len(words) - 1)))


def test_the_steps_of_syntax_positions_come_to_the_recorded_weights(make_folder):
    """The sum of tables and tree that the page makes gives the embedding and the weights of the model."""
    folder = make_folder(positions="syntax", relative_window=3)
    folder.model.trees = TokenTrees(EachWordBelowTheLast(), folder.source_tokenizer)
    result = explain(folder, TEXT)
    stack = result.data()["steps"]["encoder"]
    assert np.allclose(stack["embedded"] + stack["position"], stack["placed"], atol=1e-2)  # float16
    depths = stack["relative"][:, 0]  # the first word is the root, and all are on one path
    assert depths[0] == 0 and depths[:-1].max() == len(TEXT.split()) - 1
    part = {name: result.run.trace[f"encoder.1.self.{name}"].numpy() for name in ("queries", "keys", "weights")}
    vectors = stack["tables"][1].astype(np.float64)[stack["relative"].clip(-3, 3) + 3]  # (S, S, d)
    scores = np.einsum("hid,hjd->hij", part["queries"], part["keys"]) + np.einsum(
        "hid,ijd->hij", part["queries"], vectors
    )
    powers = np.exp(scores / 2 - (scores / 2).max(-1, keepdims=True))
    assert np.abs(powers / powers.sum(-1, keepdims=True) - part["weights"]).max() < 2e-3
    assert "relative" not in explain(make_folder(positions="syntax"), TEXT).data()["steps"]["encoder"]
    names = [panel["name"] for panel in result.data()["positions"]["panels"]]
    assert names == [
        "position in the sequence", "depth in the tree", "encoder, layer 1", "encoder, layer 2", "decoder"
    ]  # fmt: skip


@pytest.mark.parametrize("family", KINDS)
def test_the_experts_of_every_token_are_those_with_the_recorded_gates(make_folder, family):
    folder = make_folder(family, experts=5, experts_per_token=2)
    with torch.no_grad():
        for name, parameter in folder.model.named_parameters():
            if name.endswith("gating"):
                parameter.normal_()  # so that tokens go to different experts
    result = explain(folder, TEXT)
    data, numbers = result.data(), result.numbers()
    assert [use["stack"] for use in data["experts"]] == family.split("-")
    for use in data["experts"]:
        stepped = data["steps"][use["stack"]]["layers"]
        for layer, shown in enumerate(use["layers"]):
            name = f"{use['stack']}.{layer}.feed.gates"
            gates = result.run.trace[name].numpy()  # (T, E)
            assert len(gates) == len(data["sides"][use["side"]]["pieces"])
            back = np.zeros_like(gates)
            np.put_along_axis(back, shown["experts"].astype(int), shown["gates"] / 65535, -1)
            assert np.abs(back - gates).max() < 1e-5
            assert np.array_equal(shown["experts"], stepped[layer]["feed"]["experts"])
            assert np.allclose(numbers["experts"][name]["values"], gates, atol=1e-6)
    assert explain(make_folder(family), TEXT).data()["experts"] is None


def test_a_memory_network_prints_the_tokens_that_each_hop_reads(make_folder):
    folder = make_folder("decoder", architecture="memory-network", memory_size=5, decoder_layers=3)
    run = explain(folder, TEXT).run
    table, last = hop_table(run), len(folder.tokenizer.encode(TEXT)) - 1
    assert table[0] == "hop 1  hop 2  hop 3"
    assert [line.split()[-1] for line in table[1:]] == run.target.pieces[last - 4 : last + 1]
    printed = np.array([[float(weight) for weight in line.split()[:3]] for line in table[1:]])
    expected = np.stack([run.trace[f"decoder.{hop}.self.weights"][0, last, last - 4 : last + 1] for hop in range(3)], 1)
    assert np.abs(printed - expected).max() < 0.006
    assert np.allclose(expected.sum(0), 1, atol=1e-5)


def test_the_scripts_of_the_page_call_only_what_they_define():
    """A misspelled name is an error only in a browser, when its view is opened."""
    code = "\n".join(re.sub(r"//.*", "", path.read_text()) for path in PAGE.iterdir() if path.name.endswith(".js"))
    called = set(re.findall(r"(?<![\w.])([a-z]+[A-Z]\w*)\(", code))
    defined = set(re.findall(r"function (\w+)", code)) | set(re.findall(r"(?<![\w.])\w+\b(?!\()", code))
    assert called - defined == BROWSER


def test_a_model_without_attention_has_no_page(make_folder):
    with pytest.raises(SettingError, match="holds a model without any attention that could be shown"):
        explain(make_folder(architecture="rnn", source_attention="none"), TEXT)


def test_attention_that_sees_less_is_shown_as_recorded(make_folder):
    data = explain(make_folder(attention="window", attention_window=1), TEXT).data()
    inside, across = data["steps"]["decoder"]["layers"][0]["self"], data["steps"]["decoder"]["layers"][0]["cross"]
    assert "queries" not in inside  # the page would come to other weights than the model
    assert "queries" in across
    weights = data["attentions"][0]["weights"][0, 0] / 65535
    assert np.abs(np.triu(weights, 2)).max() == 0
    assert np.allclose(weights.sum(-1), 1, atol=1e-3)
