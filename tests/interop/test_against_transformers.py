"""Models that transformers made give the numbers that transformers gets, and decode to the same tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import heedful
from heedful import interop
from heedful.files import read_json
from heedful.inference.scheduler import search_in_order
from heedful.inference.torch_backend import ModelNextToken
from heedful.inference.translator import Translator
from heedful.interop.huggingface import read_model
from heedful.model.transformer import DecoderModel, EncoderDecoder, EncoderModel
from heedful.search import SearchOptions
from heedful.search.beam import beam_search
from heedful.text import NO_WORD, Tokenizer

from .makers import TEXTS, bert, gpt2, marian, padded

LENGTHS = [[7, 3, 1], [1], [13, 13, 2, 9, 5]]

PEGASUS = "PegasusForConditionalGeneration"
MARIAN: dict[str, dict[str, Any]] = {
    "as OPUS-MT": {},
    "wide": {"d_model": 48, "encoder_attention_heads": 6, "decoder_attention_heads": 6, "activation_function": "relu"},
    "narrow": {"d_model": 6, "encoder_attention_heads": 1, "decoder_attention_heads": 1, "decoder_layers": 3},
    "unscaled": {"scale_embedding": False, "activation_function": "gelu"},
    "untied": {"tie_word_embeddings": False, "activation_function": "gelu_new"},
    "separate": {"separate": True},
    "separate and untied": {"separate": True, "tie_word_embeddings": False},
    "as PEGASUS": {"kind": PEGASUS, "activation_function": "relu"},
    "untied PEGASUS": {"kind": PEGASUS, "tie_word_embeddings": False, "scale_embedding": False, "decoder_layers": 2},
}
GPT2: dict[str, dict[str, Any]] = {
    "as GPT-2": {},
    "wide": {"n_embd": 40, "n_head": 5, "n_inner": 24, "activation_function": "relu"},
    "one layer": {"n_layer": 1, "n_head": 1, "layer_norm_epsilon": 1e-3},
    "untied": {"tie_word_embeddings": False},
}
BERT: dict[str, dict[str, Any]] = {
    "masked": {},
    "wide": {"hidden_size": 40, "num_attention_heads": 5, "hidden_act": "relu"},
    "headless": {"kind": "BertModel", "type_vocab_size": 3},
    "pretraining": {"kind": "BertForPreTraining", "layer_norm_eps": 1e-3},
    "untied": {"tie_word_embeddings": False},
}


def opened(path: Path) -> Any:
    return read_model(path, read_json(path, "config.json") or {})


def close(actuall: torch.Tensor, expectednce: torch.Tensor) -> None:
    assert expectednce.abs().max() > 0.1  # numbers worth comparing
    torch.testing.assert_close(actuall, expectednce, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", MARIAN)
@torch.inference_mode()
def test_marian_gives_the_same_logits(tmp_path: Path, name: str) -> None:
    reference = marian(tmp_path, seed=len(name), **MARIAN[name])
    model = opened(tmp_path)
    assert isinstance(model, EncoderDecoder)
    pad, config = reference.config.pad_token_id, reference.config
    for lengths in LENGTHS:
        source = padded(lengths, config.vocab_size, pad)
        target = padded([length + 1 for length in lengths], config.decoder_vocab_size, pad, seed=1)
        target[:, 0] = pad
        keep = (source != pad).long()
        expected = reference(input_ids=source, attention_mask=keep, decoder_input_ids=target).logits
        close(model.project(model(source, target)), expected)


@pytest.mark.parametrize("name", MARIAN)
@torch.inference_mode()
def test_marian_decodes_to_the_same_tokens(tmp_path: Path, name: str) -> None:
    whole_lists = 0
    for seed in range(4):
        reference = marian(tmp_path / str(seed), seed, **MARIAN[name])
        model = opened(tmp_path / str(seed))
        source = padded([7, 3, 1, 12], reference.config.vocab_size, reference.config.pad_token_id)
        source[range(4), [6, 2, 0, 11]] = 0  # eos
        whole_lists += sum(check_same_search(model, reference, source, *sizes) for sizes in ((1, 12), (4, 5), (3, 20)))
    assert whole_lists > 1


def check_same_search(model: EncoderDecoder, reference: Any, source: torch.Tensor, beam: int, length: int) -> int:
    """How many n-best lists were whole, and so equal too."""
    pad, eos = reference.config.pad_token_id, reference.config.eos_token_id
    options = SearchOptions(beam=beam, length_penalty=0.0, n_best=beam, max_length=length, loop_guard=False)
    n_best_lists = beam_search(ModelNextToken(model), source, (source != pad).sum(1), options)
    settings: dict[str, Any] = {"num_return_sequences": beam, "length_penalty": 0.0, "early_stopping": False}
    result = reference.generate(
        input_ids=source, attention_mask=(source != pad).long(), num_beams=beam, do_sample=False,
        max_length=length + 1, forced_eos_token_id=None, **settings if beam > 1 else {},
    )  # fmt: skip
    whole_lists = 0
    for row, hypotheses in enumerate(n_best_lists):
        sequences = [ids[1:].tolist() for ids in result[row * beam : (row + 1) * beam]]
        expected = [ids[: ids.index(eos)] if eos in ids else [i for i in ids if i != pad] for ids in sequences]
        if eos in sequences[0] or beam == 1:  # at the limit they rank what is cut off with what is finished
            assert list(hypotheses[0].ids) == expected[0]
        if all(eos in ids for ids in sequences):
            assert {hypothesis.ids for hypothesis in hypotheses} == set(map(tuple, expected))
            whole_lists += beam > 1
    return whole_lists


@pytest.mark.parametrize("name", GPT2)
@torch.inference_mode()
def test_gpt2_gives_the_same_logits_and_the_same_continuation(tmp_path: Path, name: str) -> None:
    reference = gpt2(tmp_path, seed=len(name), **GPT2[name])
    model = opened(tmp_path)
    assert isinstance(model, DecoderModel)
    for lengths in LENGTHS:
        ids = padded(lengths, reference.config.vocab_size, reference.config.eos_token_id)
        keep = ids != reference.config.eos_token_id
        close(model.project(model(ids))[keep], reference(input_ids=ids, attention_mask=keep.long()).logits[keep])
    for length in (1, 6):
        ids = padded([length], reference.config.vocab_size, reference.config.eos_token_id, seed=length)
        options = {"max_length": length + 20, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        expected = reference.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options)
        cache, step = model.start(), ids
        for _ in range(20):
            step = model.project(model.step(step, cache))[:, -1:].argmax(-1)
            ids = torch.cat((ids, step), 1)
        assert ids.tolist() == expected.tolist()


@pytest.mark.parametrize("name", BERT)
@torch.inference_mode()
def test_bert_gives_the_same_hidden_states_and_logits(tmp_path: Path, name: str) -> None:
    reference = bert(tmp_path, seed=len(name), **BERT[name])
    model = opened(tmp_path)
    assert isinstance(model, EncoderModel)
    inner = getattr(reference, "bert", reference)
    for lengths in LENGTHS:
        ids = padded(lengths, reference.config.vocab_size, 0)
        keep = ids != 0
        types = torch.randint(reference.config.type_vocab_size, ids.shape)
        inputs = {"input_ids": ids, "attention_mask": keep.long(), "token_type_ids": types}
        states, hidden = inner(**inputs), model(ids, types=types)
        close(hidden[keep], states.last_hidden_state[keep])
        if states.pooler_output is not None:
            close(model.pool(hidden), states.pooler_output)
        if reference is not inner:
            close(model.project(hidden)[keep], reference(**inputs)[0][keep])


@torch.inference_mode()
def test_a_classifier_gives_the_same_probabilities(tmp_path: Path) -> None:
    labels = {"id2label": {0: "bad", 1: "so so", 2: "good"}, "label2id": {"bad": 0, "so so": 1, "good": 2}}
    reference = bert(tmp_path, "BertForSequenceClassification", **labels)
    tokenizer = transformers.BertTokenizer.from_pretrained(tmp_path)
    encoder = heedful.load(tmp_path)
    expected = reference(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits.softmax(-1)
    for prediction, row in zip(encoder.classify(TEXTS), expected, strict=True):
        assert list(prediction.probabilities) == ["bad", "so so", "good"]
        close(torch.tensor(list(prediction.probabilities.values())), row)


@torch.inference_mode()
def test_a_tagger_gives_the_same_logits(tmp_path: Path) -> None:
    labels = {"id2label": {0: "O", 1: "B-X", 2: "I-X"}, "label2id": {"O": 0, "B-X": 1, "I-X": 2}}
    reference = bert(tmp_path, "BertForTokenClassification", **labels)
    model = opened(tmp_path)
    assert isinstance(model, EncoderModel)
    assert (model.config.label_kind, model.config.labels) == ("tagging", ("O", "B-X", "I-X"))
    ids = padded([5, 9], reference.config.vocab_size, 0)
    keep = ids != 0
    close(model.classify(model(ids), keep)[keep], reference(input_ids=ids, attention_mask=keep.long()).logits[keep])


@torch.inference_mode()
def test_questions_get_the_span_with_the_highest_logits(tmp_path: Path) -> None:
    reference = bert(tmp_path, "BertForQuestionAnswering", seed=5)
    tokenizer = transformers.BertTokenizerFast.from_pretrained(tmp_path)
    encoder = heedful.load(tmp_path)
    question, context = TEXTS[0], " ".join(TEXTS[1:] * 2)
    inputs = tokenizer(question, context, return_tensors="pt", return_offsets_mapping=True)
    offsets, types = inputs.pop("offset_mapping")[0].tolist(), inputs["token_type_ids"][0].tolist()
    output = reference(**inputs)
    starts, ends = output.start_logits[0], output.end_logits[0]
    inside = [i for i, kind in enumerate(types) if kind == 1][:-1]
    spans = [(float(starts[a] + ends[b]), a, b) for a in inside for b in inside if a <= b < a + 30]
    score, a, b = max(spans)
    answer = encoder.answer(question, context, allow_empty=False)
    assert answer.text == context[offsets[a][0] : offsets[b][1]]
    assert answer.score == pytest.approx(score - float(starts[0] + ends[0]), abs=1e-4)


def test_the_head_of_a_bert_is_recognized(tmp_path: Path) -> None:
    for kind, head, pooler in (
        ("BertForMaskedLM", "transform", False), ("BertModel", "none", True), ("BertForPreTraining", "transform", True),
    ):  # fmt: skip
        bert(tmp_path / kind, kind)
        config = opened(tmp_path / kind).config
        assert (config.head, config.pooler) == (head, pooler)


@pytest.mark.parametrize("separate", [False, True])
def test_an_opus_folder_translates_as_transformers_does(tmp_path: Path, separate: bool) -> None:
    reference = marian(tmp_path, separate=separate)
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path)
    translator = Translator([interop.open_folder(tmp_path)])
    assert translator.search.beam == 3
    options = {"num_beams": 1, "do_sample": False, "max_length": 31, "forced_eos_token_id": None}
    for text in TEXTS:
        inputs = tokenizer(text, return_tensors="pt")
        assert translator.source_tokenizer.encode(text) == inputs["input_ids"][0, :-1].tolist()
        ids = reference.generate(**inputs, **options)[0]
        expected = tokenizer.decode(ids, skip_special_tokens=True)
        assert translator.translate(text, beam=1, max_length=30, loop_guard=False) == expected
    assert translator.translate(["", TEXTS[0]], beam=2, max_length=9)[0] == ""


def test_a_configuration_as_opus_models_have_it_is_understood(tmp_path: Path) -> None:
    """Settings of old that transformers reads no more, decoding beside the model, and weights with every copy."""
    reference = marian(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {
        "_num_labels": 3, "add_bias_logits": False, "add_final_layer_norm": False, "bad_words_ids": [[5]],
        "classif_dropout": 0.0, "extra_pos_embeddings": 1, "gradient_checkpointing": False,
        "max_length": 512, "normalize_before": False, "normalize_embedding": False, "num_beams": 6,
        "num_hidden_layers": 2, "static_position_embeddings": True, "use_cache": True,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "generation_config.json").unlink()
    (tmp_path / "model.safetensors").unlink()
    state = reference.state_dict()
    assert {"lm_head.weight", "model.encoder.embed_tokens.weight", "model.encoder.embed_positions.weight"} <= set(state)
    torch.save(state, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    opened = interop.open_folder(tmp_path)
    assert opened.search.beam == 6
    ids = padded([5], reference.config.vocab_size, reference.config.pad_token_id)
    with torch.inference_mode():
        close(opened.model.project(opened.model(ids, ids)), reference(input_ids=ids, decoder_input_ids=ids).logits)


def test_a_language_code_is_one_token(tmp_path: Path) -> None:
    marian(tmp_path)
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path)
    model = interop.open_folder(tmp_path).source_tokenizer
    for text in (">>fr<< A man", ">>fr<<A man", ">>fr<<"):
        assert model.encode(text) == tokenizer(text)["input_ids"][:-1]
        assert model.pieces(model.encode(text))[0] == ">>fr<<"
    assert model.encode(">>xx<< A man")[-2:] == model.encode(" A man")[-2:]  # no such language: it is text


def test_every_part_of_a_long_line_has_its_language_code(tmp_path: Path) -> None:
    marian(tmp_path)
    translator = Translator([interop.open_folder(tmp_path)])
    translator.notice = lambda text: None
    text = " ".join(["A man plays in the garden.", "Two children ride."] * 8)
    (code,) = translator.source_tokenizer.encode(">>fr<<")
    plain, coded = translator.parts([text], [""]), translator.parts([f">>fr<< {text}"], [""])
    assert len(coded) > 2 and all(part.ids[0] == code and code not in part.ids[1:] for part in coded)
    assert [id for part in coded for id in part.ids[1:]] == [id for part in plain for id in part.ids]
    assert [part.added for part in coded] == [0] + [1] * (len(coded) - 1)
    words = [[word for part in parts for word in part.words(translator.source_tokenizer)] for parts in (plain, coded)]
    assert words[1][0] == 0  # the code is a word of its line
    assert [word - 1 for word in words[1][1:] if word != NO_WORD] == words[0]


def test_sentences_have_the_language_code_that_their_text_opens_with(tmp_path: Path) -> None:
    marian(tmp_path)
    translator = Translator([interop.open_folder(tmp_path)])
    translator.notice = lambda text: None
    tokenizer = translator.source_tokenizer
    (code,) = tokenizer.encode(">>fr<<")
    texts = [">>fr<< A man.", "Two children ride.", "A man plays in the garden. " * 16, ">>fr<<", ""]
    plain, opened = (translator.parts(texts, [""] * 5, openings=openings) for openings in ((), [texts[0][:8]] * 5))
    assert [part.line for part in opened[:3]] == [0, 1, 2] and {part.line for part in opened} == {0, 1, 2}
    assert all(part.ids.count(code) == 1 and part.ids[0] == code for part in opened)
    for line in range(3):
        ids = [
            [id for part in parts if part.line == line for id in part.ids if id != code] for parts in (plain, opened)
        ]
        assert ids[0] == ids[1]
    options = translator.options({})
    requests = [translator.search_request(part, options) for part in opened]
    searched = [translator.decode(hypotheses) for hypotheses in search_in_order(translator.shared_backend(), requests)]
    translations = translator.aligned(opened, searched)
    for part, ways in zip(opened, translations, strict=True):
        assert all(0 <= source < len(texts[part.line].split()) for source, _ in ways[0].alignment)
    assert opened[1].words(tokenizer) == [NO_WORD, *plain[1].words(tokenizer)]


def test_gpt2_vocabularies_tokenize_as_transformers_does(tmp_path: Path) -> None:
    gpt2(tmp_path)
    check_same_cuts(transformers.GPT2Tokenizer.from_pretrained(tmp_path), interop.open_folder(tmp_path).tokenizer)
    whole_lists = transformers.GPT2Tokenizer.from_pretrained(tmp_path)
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).unlink()
    whole_lists.save_pretrained(tmp_path)  # a tokenizer.json instead
    assert (tmp_path / "tokenizer.json").exists()
    check_same_cuts(whole_lists, interop.open_folder(tmp_path).tokenizer)


@pytest.mark.parametrize("lowercase", [True, False])
def test_bert_vocabularies_tokenize_as_transformers_does(tmp_path: Path, lowercase: bool) -> None:
    bert(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(f'{{"do_lower_case": {str(lowercase).lower()}}}')
    whole_lists = transformers.BertTokenizer.from_pretrained(tmp_path)
    opened = interop.open_folder(tmp_path)
    check_same_cuts(whole_lists, opened.tokenizer)
    config, names = opened.model.config, ("[PAD]", "[CLS]", "[SEP]", "[MASK]")
    ids = (config.pad_id, config.bos_id, config.eos_id, opened.tokenizer.mask_id)
    assert ids == tuple(whole_lists.convert_tokens_to_ids(list(names)))
    (tmp_path / "vocab.txt").unlink()
    whole_lists.save_pretrained(tmp_path)
    assert (tmp_path / "tokenizer.json").exists()
    check_same_cuts(whole_lists, interop.open_folder(tmp_path).tokenizer)


def check_same_cuts(reference: Any, model: Tokenizer) -> None:
    for text in TEXTS:
        ids = reference(text, add_special_tokens=False)["input_ids"]
        assert model.encode(text) == ids
        assert model.decode(ids) == reference.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
