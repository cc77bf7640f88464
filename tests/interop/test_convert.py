"""Conversions, both ways: the same bytes come back, what cannot be expressed is refused, what differs does not stay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file

import heedful
from heedful import interop, native
from heedful.config import ModelConfig, SearchSettings
from heedful.errors import FolderError, HeedfulError, SettingError
from heedful.inference.generator import Generator
from heedful.inference.translator import Translator
from heedful.interop import agreement
from heedful.interop.conversion import convert
from heedful.model.transformer import build_model
from heedful.storage import folder
from heedful.storage.folder import ModelFolder
from heedful.text import train_vocabulary

from .makers import LINES, TEXTS, bert, gpt2, marian

TOKENIZER, OTHER = train_vocabulary(LINES, None, False), train_vocabulary(LINES[::2], None, False)
MASKED = train_vocabulary(LINES, None, False, extra=["<mask>"])


def ours(path: Path, search: SearchSettings | None = None, **changes: Any) -> Path:
    """A model of ours with random weights, saved."""
    family = changes.get("family", "encoder-decoder")
    tokenizer = MASKED if family == "encoder" else TOKENIZER
    source = OTHER if changes.get("source_vocab_size") else tokenizer
    sizes = {"d_model": 16, "d_ff": 24, "n_heads": 4, "max_length": 160}
    sizes |= {f"{side}_layers": 2 for side in family.split("-")}
    config = ModelConfig(vocab_size=tokenizer.vocab_size, **sizes | changes)
    torch.manual_seed(7)
    model = build_model(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    folder.save_folder(ModelFolder(model, tokenizer, source, search or SearchSettings(), path))
    return path


GPT: dict[str, Any] = {
    "family": "decoder", "pre_norm": True, "positions": "learned", "scale_embedding": False, "activation": "gelu_tanh",
}  # fmt: skip
BERT: dict[str, Any] = {
    "family": "encoder", "positions": "learned", "scale_embedding": False, "activation": "gelu", "norm_eps": 1e-12,
    "embedding_norm": True, "token_types": 2, "head": "transform",
}  # fmt: skip
EXPRESSIBLE: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "tied on one side": {"tie": "target"},
    "untied, biased": {"tie": "none", "output_bias": True, "scale_embedding": False, "activation": "silu"},
    "two vocabularies": {"tie": "target", "source_vocab_size": OTHER.vocab_size},
    "from pad": {"bos_id": 0, "activation": "gelu_tanh"},
    "norms first": {"pre_norm": True},
    "norms first, untied, biased": {"pre_norm": True, "tie": "none", "output_bias": True, "activation": "gelu"},
    "GPT": GPT,
    "untied GPT": GPT | {"tie": "none", "norm_eps": 1e-3},
    "BERT": BERT | {"output_bias": True},
    "BERT with a pooler": BERT | {"pooler": True, "token_types": 1},
    "classifier": BERT | {"head": "none", "pooler": True, "labels": ("bad", "so so", "good")},
    "regression": BERT | {"head": "none", "pooler": True, "labels": ("score",), "label_kind": "regression"},
    "tagger": BERT | {"head": "none", "labels": ("O", "B-PER", "I-PER"), "label_kind": "tagging"},
    "answers": BERT | {"head": "none", "labels": ("start", "end"), "label_kind": "question-answering"},
    "BERT without a head": BERT | {"head": "none", "pooler": True},
}


def weights(path: Path) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in load_file(path / "model.safetensors").items()}


@pytest.mark.parametrize("name", EXPRESSIBLE)
def test_our_folders_come_back_from_transformers_byte_for_byte(tmp_path: Path, name: str) -> None:
    saved = ours(tmp_path / "ours", **EXPRESSIBLE[name])
    agreement = convert(saved, tmp_path / "theirs", "huggingface")
    assert agreement.sequences >= 10 and agreement.difference < 1e-4
    convert(tmp_path / "theirs", tmp_path / "again")
    assert weights(saved) == weights(tmp_path / "again")
    before, after = (folder.load_folder(path) for path in (saved, tmp_path / "again"))
    assert before.model.config.model_dump() == after.model.config.model_dump()
    assert before.tokenizer.encode_batch(TEXTS) == after.tokenizer.encode_batch(TEXTS)
    assert before.source_tokenizer.encode_batch(TEXTS) == after.source_tokenizer.encode_batch(TEXTS)


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        (marian, {}),
        (marian, {"separate": True}),
        (gpt2, {}),
        (bert, {}),
        (bert, {"kind": "BertModel"}),
        (bert, {"kind": "BertForSequenceClassification", "num_labels": 3}),
    ],
)
def test_foreign_folders_come_back_byte_for_byte(tmp_path: Path, make: Any, changes: dict[str, Any]) -> None:
    make(tmp_path / "theirs", **changes)
    convert(tmp_path / "theirs", tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "again", "huggingface")
    assert (tmp_path / "again/model.safetensors").read_bytes() == (tmp_path / "theirs/model.safetensors").read_bytes()
    config = json.loads((tmp_path / "theirs/config.json").read_text())
    for key, value in json.loads((tmp_path / "again/config.json").read_text()).items():
        if config.get(key) is not None and key not in ("activation_function",):
            assert config[key] == value, key


def test_an_opus_folder_keeps_its_vocabularies(tmp_path: Path) -> None:
    marian(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "again", "huggingface")
    for name in ("source.spm", "target.spm"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()
    assert json.loads((tmp_path / "again/vocab.json").read_text()) == json.loads(
        (tmp_path / "theirs/vocab.json").read_text()
    )
    one, two = (Translator([interop.open_folder(tmp_path / name)]) for name in ("theirs", "ours"))
    assert one.translate(TEXTS, max_length=20) == two.translate(TEXTS, max_length=20)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_what_transformers_loads_translates_as_we_do(tmp_path: Path, norm: str) -> None:
    saved = ours(
        tmp_path / "ours", SearchSettings(beam=3, length_penalty=0.0), output_bias=True, pre_norm=norm == "pre"
    )
    convert(saved, tmp_path / "theirs", "huggingface")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "theirs")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    assert model.generation_config.num_beams == 3
    translator = Translator.load(saved, precision="float32")
    texts = [*TEXTS, "A man."]
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    ids = model.generate(**inputs, num_beams=1, max_length=21, forced_eos_token_id=None)
    expected = [" ".join(text.splitlines()) for text in tokenizer.decode(ids, skip_special_tokens=True)]
    assert translator.translate(texts, beam=1, max_length=20, loop_guard=False) == expected


def classifier(path: Path, **changes: Any) -> Any:
    return bert(path, "BertForSequenceClassification", **changes)


FREE: dict[str, dict[str, Any]] = EXPRESSIBLE | {
    "pre-norm, gated": {"pre_norm": True, "activation": "swiglu", "bias": False},
    "rotary positions": {"positions": "rotary"},
    "relative positions": {"positions": "relative", "relative_window": 3},
    "learned positions": {"positions": "learned", "embedding_norm": True, "norm_eps": 1e-6, "activation": "gelu"},
}


@pytest.mark.parametrize("name", [name for name, changes in FREE.items() if "family" not in changes])
def test_ctranslate2_computes_the_same(tmp_path: Path, name: str) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    saved = ours(tmp_path / "ours", **FREE[name])
    agreement = convert(saved, tmp_path / "theirs", "ctranslate2")
    assert 0 < agreement.difference < 1e-4
    reference = ctranslate2.Translator(str(tmp_path / "theirs"), compute_type="float32", intra_threads=1)
    mine = Translator.load(saved, precision="float32")
    source = [mine.source_tokenizer.pieces(ids) for ids in mine.source_tokenizer.encode_batch(TEXTS)]
    config = mine.modules[0].config
    banned = [[piece] for piece in mine.tokenizer.pieces(sorted({config.pad_id, config.bos_id}))]
    results = reference.translate_batch(source, beam_size=1, max_decoding_length=20, suppress_sequences=banned)
    translations = mine.translations(TEXTS, beam=1, max_length=20, loop_guard=False)
    assert [list(n_best[0].tokens) for n_best in translations] == [result.hypotheses[0] for result in results]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("huggingface", {"pre_norm": True, "tie": "target"}, "tie"),
    ("huggingface", {"pre_norm": True, "tie": "none", "source_vocab_size": OTHER.vocab_size}, "source_vocab_size"),
    ("huggingface", {"positions": "rotary"}, "positions"),
    ("huggingface", {"norm_eps": 1e-6}, "norm_eps"),
    ("huggingface", {"embedding_norm": True}, "positions"),  # BART has that norm, and learned positions
    ("huggingface", {"bias": False}, "bias"),
    ("huggingface", {"d_key": 2}, "d_key"),
    ("huggingface", {"activation": "swiglu"}, "activation"),
    ("huggingface", GPT | {"pre_norm": False}, "pre_norm"),
    ("huggingface", GPT | {"positions": "alibi"}, "positions"),
    ("huggingface", GPT | {"scale_embedding": True}, "scale_embedding"),
    ("huggingface", GPT | {"output_bias": True}, "output_bias"),
    ("huggingface", BERT | {"head": "linear"}, "head"),
    ("huggingface", BERT | {"tie": "none"}, "tie"),
    ("huggingface", BERT | {"labels": ("yes", "no")}, "pooler"),
    ("huggingface", BERT | {"token_types": 0}, "token_types"),
    ("huggingface", BERT | {"embedding_norm": False}, "embedding_norm"),
    ("ctranslate2", {"positions": "alibi"}, "positions"),
    ("ctranslate2", {"d_key": 2}, "d_key"),
    ("ctranslate2", GPT, "family"),
    ("huggingface", {"architecture": "rnn"}, "architecture"),
    ("huggingface", GPT | {"attention": "window"}, "attention"),
    ("huggingface", BERT | {"attention": "linformer"}, "attention"),
    ("ctranslate2", {"architecture": "conv"}, "architecture"),
    ("ctranslate2", {"decoder_attention": "linear"}, "decoder_attention"),
    ("ctranslate2", {"universal": True}, "universal"),
]


@pytest.mark.parametrize(("to", "changes", "setting"), REFUSED)
def test_what_the_other_side_cannot_express_is_refused_by_name(
    tmp_path: Path, to: str, changes: dict[str, Any], setting: str
) -> None:
    saved = ours(tmp_path / "ours", **changes)
    with pytest.raises(SettingError, match=rf"^model\.{setting} is "):
        convert(saved, tmp_path / "theirs", to)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours"]


@pytest.mark.parametrize("to", ["heedful", "huggingface", "ctranslate2"])
def test_a_conversion_with_other_outputs_is_removed(tmp_path: Path, to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = ours(tmp_path / "ours")
    rows = agreement._rows

    def rows_and_a_change(opened: ModelFolder) -> list[list[int]]:
        with torch.no_grad():
            opened.model.embedding.weight[5] += 0.5
        return rows(opened)

    monkeypatch.setattr(agreement, "_rows", rows_and_a_change)
    with pytest.raises(FolderError, match="the conversion is discarded"):
        convert(saved, tmp_path / "theirs", to)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours"]


def test_a_vocabulary_that_tokenizes_differently_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = ours(tmp_path / "ours")
    monkeypatch.setattr(agreement, "_unframed", lambda tokenizer, text: [1])
    with pytest.raises(FolderError, match=r"tokenizes .* differently"):
        convert(saved, tmp_path / "theirs", "huggingface")
    assert not (tmp_path / "theirs").exists()


@pytest.mark.parametrize(("to", "package"), [("huggingface", "transformers"), ("ctranslate2", "ctranslate2")])
def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, package: str) -> None:
    saved = ours(tmp_path / "ours")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SettingError, match=rf"pip install 'heedful\[{to}\]'"):
        convert(saved, tmp_path / "theirs", to)
    assert not (tmp_path / "theirs").exists()


def test_sentencepiece_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marian(tmp_path / "theirs")
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(FolderError, match=r"pip install 'heedful\[sentencepiece\]'"):
        interop.open_folder(tmp_path / "theirs")


def test_a_folder_that_exists_is_not_touched(tmp_path: Path) -> None:
    saved = ours(tmp_path / "ours")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/letter.txt").write_text("keep me")
    for out in (tmp_path / "out", tmp_path / "out/letter.txt", saved):
        with pytest.raises(SettingError, match="exists already"):
            convert(saved, out)
    assert (tmp_path / "out/letter.txt").read_text() == "keep me"
    with pytest.raises(SettingError, match="the format to convert to is 'onnx'"):
        convert(saved, tmp_path / "new", "onnx")


def test_older_weight_files_and_shards_are_opened(tmp_path: Path) -> None:
    marian(tmp_path / "safe")
    expected = weights_of(tmp_path / "safe")
    tensors = load_file(tmp_path / "safe/model.safetensors")
    names = sorted(tensors)
    for form in ("sharded", "zip", "legacy", "half", "sharded zip"):
        path = tmp_path / form
        path.mkdir()
        for file in (tmp_path / "safe").iterdir():
            if file.name != "model.safetensors":
                (path / file.name).write_bytes(file.read_bytes())
        parts = [{name: tensors[name] for name in names[i::3]} for i in range(3)]
        if form == "sharded":
            table = {name: f"model-{i}.safetensors" for i, part in enumerate(parts) for name in part}
            for i, part in enumerate(parts):
                save_file(part, path / f"model-{i}.safetensors")
            (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
        elif form == "sharded zip":
            table = {name: f"pytorch_model-{i}.bin" for i, part in enumerate(parts) for name in part}
            for i, part in enumerate(parts):
                torch.save(part, path / f"pytorch_model-{i}.bin")
            (path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": table}))
        elif form == "half":
            save_file({name: tensor.half() for name, tensor in tensors.items()}, path / "model.safetensors")
        else:
            tied = {"lm_head.weight": tensors["model.shared.weight"], **tensors}
            parameters = {name: torch.nn.Parameter(tensor) for name, tensor in tied.items()}
            torch.save(parameters, path / "pytorch_model.bin", _use_new_zipfile_serialization=form == "zip")
        for name, tensor in weights_of(path).items():
            torch.testing.assert_close(tensor, expected[name], atol=2e-3 if form == "half" else 0.0, rtol=0)


def weights_of(path: Path) -> dict[str, torch.Tensor]:
    return interop.open_folder(path).model.state_dict()


def test_unprefixed_and_older_tensor_names_are_understood(tmp_path: Path) -> None:
    for make, prefix in ((gpt2, "transformer."), (bert, "bert.")):
        path = tmp_path / prefix
        make(path)
        expected = weights_of(path)
        tensors = load_file(path / "model.safetensors")
        renamed = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
        renamed = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
            for name, tensor in renamed.items()
        }
        renamed["h.0.attn.bias" if prefix == "transformer." else "embeddings.position_ids"] = torch.ones(1, 64)
        save_file(renamed, path / "model.safetensors")
        for name, tensor in weights_of(path).items():
            assert torch.equal(tensor, expected[name])


def test_alternative_names_of_settings_are_understood(tmp_path: Path) -> None:
    gpt2(tmp_path)
    expected = interop.open_folder(tmp_path).model.config
    config = json.loads((tmp_path / "config.json").read_text())
    for alias, name in {
        "hidden_size": "n_embd",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    }.items():
        config[alias] = config.pop(name)
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_beams": 7}))
    (tmp_path / "generation_config.json").unlink()  # where it exists, it alone counts
    opened = interop.open_folder(tmp_path)
    assert opened.model.config == expected
    assert opened.search.beam == 7


def test_load_returns_the_class_of_the_family(tmp_path: Path) -> None:
    marian(tmp_path / "m")
    assert isinstance(heedful.load(tmp_path / "m"), Translator)
    assert len(heedful.load(tmp_path / "m", tmp_path / "m").modules) == 2
    with pytest.raises(SettingError, match="no model folder"):
        heedful.load()
    gpt2(tmp_path / "g")
    bert(tmp_path / "b")
    assert isinstance(heedful.load(tmp_path / "g"), Generator)
    assert len(heedful.load(tmp_path / "b").fill_mask("a man [MASK] in the garden.")[0]) == 5
    with pytest.raises(SettingError, match="only translators"):
        heedful.load(tmp_path / "g", tmp_path / "g")


def test_a_known_head_without_a_place_is_named(tmp_path: Path) -> None:
    bert(tmp_path, "BertForMultipleChoice")
    with pytest.raises(FolderError, match=r"holds 'classifier\.(weight|bias)', a tensor that heedful does not know"):
        interop.open_folder(tmp_path)


@pytest.mark.parametrize(
    ("make", "changes", "message"),
    [
        (marian, {"decoder_ffn_dim": 30}, r"decoder_ffn_dim \(30\) differs from encoder_ffn_dim \(24\)"),
        (marian, {"decoder_attention_heads": 2}, "decoder_attention_heads"),
        (marian, {"activation_function": "tanh"}, "activation_function is 'tanh'"),
        (gpt2, {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
        (gpt2, {"scale_attn_weights": False}, "scale_attn_weights is False"),
        (bert, {"hidden_act": "tanh"}, "hidden_act is 'tanh'"),
        (classifier, {"problem_type": "multi_label_classification"}, "problem_type is 'multi_label_classification'"),
        (classifier, {"num_labels": 1}, "id2label .* two labels or more"),
    ],
)
def test_a_setting_that_we_cannot_express_is_named(tmp_path: Path, make: Any, changes: Any, message: str) -> None:
    make(tmp_path, **changes)
    with pytest.raises(FolderError, match=message):
        interop.open_folder(tmp_path)


def test_the_command_converts_and_translates(tmp_path: Path) -> None:
    marian(tmp_path / "opus")
    expected = heedful.load(tmp_path / "opus").translate(TEXTS, beam=2, max_length=9)
    run = [sys.executable, "-m", "heedful"]
    settings: dict[str, Any] = {"cwd": tmp_path, "capture_output": True, "env": os.environ | {"OMP_NUM_THREADS": "1"}}
    done = subprocess.run([*run, "convert", "opus", "runs/y"], check=True, **settings)
    assert (
        done.stdout.startswith(b"runs/y holds the same model: for 10 sequences, the new folder gives")
        and not done.stderr
    )
    command = [*run, "translate", "runs/y", "--beam", "2", "--max-length", "9"]
    done = subprocess.run(command, input="".join(f"{text}\n" for text in TEXTS).encode(), check=True, **settings)
    assert done.stdout.decode().splitlines() == expected


def test_an_error_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(
        HeedfulError, match=r"type 'llama'; heedful opens its own and marian, pegasus, bart, gpt2, bert, whisper\.$"
    ):
        interop.open_folder(tmp_path)


CARD = """---
license: cc-by-4.0
library_name: transformers
language:
- en
---

# opus-mt-en-de

Trained by others, of whom this card speaks.
"""


def test_the_card_goes_along_and_names_the_library_that_opens_the_folder(tmp_path: Path) -> None:
    foreign = tmp_path / "theirs"
    marian(foreign)
    (foreign / "README.md").write_text(CARD, encoding="utf-8")
    for source, to, library in (
        ("theirs", "heedful", "heedful"),
        ("heedful", "huggingface", "transformers"),
        ("heedful", "ctranslate2", "ctranslate2"),
    ):
        convert(tmp_path / source, tmp_path / to, to)
        loaded_card = ModelCard.load(tmp_path / to / "README.md")
        assert loaded_card.data.to_dict() == {
            "library_name": library, "pipeline_tag": "translation", "license": "cc-by-4.0", "language": ["en"],
        }  # fmt: skip
        assert loaded_card.text == ModelCard(CARD).text


@pytest.mark.parametrize("card", [None, "", "# Mine\n", "---\nnever: closed\n", "# Mine\n\n---\nnot: front\n---\n"])
def test_a_folder_without_front_matter_keeps_its_words(tmp_path: Path, card: str | None) -> None:
    foreign = tmp_path / "theirs"
    gpt2(foreign)
    if card is not None:
        (foreign / "README.md").write_text(card, encoding="utf-8")
    convert(foreign, tmp_path / "ours")
    written = (tmp_path / "ours" / "README.md").read_text(encoding="utf-8")
    assert written == "---\nlibrary_name: heedful\npipeline_tag: text-generation\n---\n" + (card or "")


@pytest.mark.skipif(native.library() is None, reason="only the engine computes int8")
def test_a_folder_of_hugging_face_is_computed_as_its_conversion(tmp_path: Path) -> None:
    for write, name in ((bert, "bert"), (gpt2, "gpt2")):
        write(tmp_path / name)
        convert(tmp_path / name, tmp_path / f"{name}-ours")
    for precision in ("float32", "int8"):
        encoders = [heedful.load(tmp_path / name, precision=precision) for name in ("bert", "bert-ours")]
        theirs, ours = (encoder.embed(["a dog", "two dogs and a cat"]) for encoder in encoders)
        assert (theirs == ours).all()
        gpts = [heedful.load(tmp_path / name, precision=precision) for name in ("gpt2", "gpt2-ours")]
        assert len({gpt.generate("a dog", max_tokens=20) for gpt in gpts}) == 1
        assert all(loaded.engine is not None for loaded in (*encoders, *gpts))
