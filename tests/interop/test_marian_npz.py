"""Folders of the Marian toolkit are opened, and compute what other readers of them compute."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from heedful.errors import FolderError, HeedfulError, SettingError
from heedful.inference.translator import Translator
from heedful.interop import flat_yaml, marian_npz, marian_writer, open_folder
from heedful.interop.conversion import convert
from heedful.storage.folder import load_folder

from .makers import TEXTS, spm, table
from .mutate import mutate
from .test_convert import ours
from .test_ctranslate2_reader import check_same_tokens

D, F, LAYERS = 16, 24, {"encoder": 2, "decoder": 1}
SETTINGS: dict[str, Any] = {
    "type": "transformer", "dim-emb": D, "transformer-dim-ffn": F, "transformer-heads": 4,
    "enc-depth": LAYERS["encoder"], "dec-depth": LAYERS["decoder"], "input-types": [],
    "tied-embeddings": False, "tied-embeddings-all": True, "tied-embeddings-src": False,
    "transformer-preprocess": "", "transformer-postprocess": "dan", "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "", "transformer-ffn-activation": "swish", "transformer-ffn-depth": 2,
    "transformer-decoder-autoreg": "self-attention", "transformer-no-projection": False,
    "transformer-guided-alignment-layer": "last", "transformer-train-position-embeddings": False,
    "transformer-tied-layers": [], "lemma-dim-emb": 0, "right-left": False, "ulr": False, "skip": False,
    "layer-normalization": False, "dec-cell": "gru", "version": "v1.12.0 0 2024",
}  # fmt: skip
PRE_NORM = {"transformer-preprocess": "n", "transformer-postprocess": "da", "transformer-postprocess-top": "n"}
VARIANTS: dict[str, dict[str, Any]] = {
    "opus-mt": {},
    "pre-norm": PRE_NORM | {"transformer-ffn-activation": "relu", "transformer-postprocess-emb": "nd"},
    "target": {"tied-embeddings-all": False, "tied-embeddings": True},
    "untied": {"tied-embeddings-all": False},
    "two vocabularies": {"tied-embeddings-all": False, "tied-embeddings": True},
}


def yaml(settings: dict[str, Any]) -> str:
    lines = []
    for name, value in settings.items():
        items = "".join(f"\n  - {item}" for item in value) if isinstance(value, list) else ""
        plain = items or f" {json.dumps(value) if value == '' or not isinstance(value, str) else value}"
        lines.append(f"{name}:{plain}")
    return "\n".join(lines)


def arrays(settings: dict[str, Any], sizes: tuple[int, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights under the names that Marian's transformer.h gives them."""
    generator = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (generator.standard_normal((rows, columns)) * 1.2 * min(rows, columns) ** -0.5).astype(np.float32)

    def vector(size: int, mean: float = 0.0) -> np.ndarray:
        return (generator.standard_normal((1, size)) * 0.2 + mean).astype(np.float32)

    def norm(name: str, suffix: str = "") -> None:
        result[f"{name}_ln_scale{suffix}"], result[f"{name}_ln_bias{suffix}"] = vector(D, 1.0), vector(D)

    result: dict[str, np.ndarray] = {"decoder_ff_logit_out_b": vector(sizes[1])}
    result["decoder_ff_logit_out_b"][0, 0] += 0.5  # an output may end
    if settings["tied-embeddings-all"]:
        result["Wemb"] = matrix(sizes[0], D)
    else:
        result |= {"encoder_Wemb": matrix(sizes[0], D), "decoder_Wemb": matrix(sizes[1], D)}
        if not settings["tied-embeddings"]:
            result["decoder_ff_logit_out_W"] = matrix(D, sizes[1])
    suffix = "_pre" if settings["transformer-preprocess"] else ""
    for side, layers in LAYERS.items():
        if "n" in settings["transformer-postprocess-emb"]:
            norm(f"{side}_emb", "_pre")
        if settings["transformer-postprocess-top"]:
            norm(f"{side}_top")
        for block in (f"{side}_l{number + 1}" for number in range(layers)):
            for part in ("self", "context")[: 1 + (side == "decoder")]:
                for letter in "qkvo":
                    result[f"{block}_{part}_W{letter}"], result[f"{block}_{part}_b{letter}"] = matrix(D, D), vector(D)
                norm(f"{block}_{part}_Wo", suffix)
            result |= {f"{block}_ffn_W1": matrix(D, F), f"{block}_ffn_b1": vector(F)}
            result |= {f"{block}_ffn_W2": matrix(F, D), f"{block}_ffn_b2": vector(D)}
            norm(f"{block}_ffn_ffn", suffix)
    return result


def made(path: Path, two: bool = False, seed: int = 0, **changes: Any) -> Path:
    """A folder as OPUS-MT publishes it."""
    settings = SETTINGS | changes
    both = table(spm(0), spm(1))
    tables = [table(spm(0)), table(spm(1))] if two else [both, both]
    for item in tables:
        item.pop("<pad>", None)
    if two:  # the source has more tokens
        tables[0] |= {piece: len(tables[0]) + number for number, piece in enumerate(("▁more", "▁most"))}
    path.mkdir()
    text = np.frombuffer(yaml(settings | {"dim-vocabs": list(map(len, tables))}).encode() + b"\0", np.int8)
    content = arrays(settings, (len(tables[0]), len(tables[1])), seed)
    np.savez(path / "model.npz", **{marian_npz.MODEL: text}, **content)
    vocabularies = ["source.vocab.yml", "target.vocab.yml"] if two else ["vocab.yml"] * 2
    for name, entries in zip(vocabularies, tables, strict=True):
        lines = (f"{json.dumps(token, ensure_ascii=False)}: {number}\n" for token, number in entries.items())
        (path / name).write_text("".join(lines), encoding="utf-8")
    (path / "decoder.yml").write_text(yaml({"models": ["model.npz"], "vocabs": vocabularies, "beam-size": 6}))
    (path / "source.spm").write_bytes(spm(0))
    (path / "target.spm").write_bytes(spm(1))
    return path


def by_ctranslate2(path: Path, out: Path) -> Path:
    """Converted by ctranslate2; we give it Marian's positions and epsilon, for which it takes those of transformers."""
    converters = pytest.importorskip("ctranslate2").converters
    copy = Path(shutil.copytree(path, out.with_name("copy")))
    with np.load(copy / "model.npz") as archive:
        content = dict(archive)
    np.savez(copy / "model.npz", Wpos=marian_npz.positions(marian_npz.MAX_LENGTH, D), **content)
    converters.OpusMTConverter(str(copy)).convert(str(out))
    settings = json.loads((out / "config.json").read_text()) | {"layer_norm_epsilon": marian_npz.NORM_EPS}
    (out / "config.json").write_text(json.dumps(settings))
    return out


@pytest.mark.parametrize("name", VARIANTS)
def test_it_computes_what_ctranslate2_computes(tmp_path: Path, name: str) -> None:
    path = made(tmp_path / "marian", name == "two vocabularies", **VARIANTS[name])
    opened = open_folder(path)
    assert opened.config.bos_id == opened.config.vocab_size - 1 and opened.search.beam == 6
    check_same_tokens(opened, by_ctranslate2(path, tmp_path / "theirs"))


def test_padding_is_no_word_of_the_larger_vocabulary(tmp_path: Path) -> None:
    """Sources of several lengths are padded where torch scores them."""
    opened = open_folder(made(tmp_path / "marian", two=True, **VARIANTS["two vocabularies"]))
    sizes = [len((tmp_path / "marian" / f"{side}.vocab.yml").read_text().splitlines()) for side in ("source", "target")]
    assert sizes[0] != sizes[1] and opened.config.pad_id == opened.config.bos_id == max(sizes)
    rows = [[sizes[0] - 1, 3, 0], [4, 0]]
    target = torch.tensor([[opened.config.bos_id, 5]])
    padded = torch.tensor([rows[0], [*rows[1], opened.config.pad_id]])
    together = opened.model.target_logits(padded, target.repeat(2, 1), torch.tensor([3, 2]))
    for row, logits in zip(rows, together, strict=True):
        alone = opened.model.target_logits(torch.tensor([row]), target, torch.tensor([len(row)]))
        assert torch.allclose(alone[0], logits, atol=1e-5)


def test_a_folder_is_translated_and_converted(tmp_path: Path) -> None:
    path = made(tmp_path / "marian", two=True, **VARIANTS["two vocabularies"])
    lines = Translator([open_folder(path)], "float32").translate(TEXTS)
    assert len(lines) == len(TEXTS) and any(lines)
    assert convert(path, tmp_path / "ours").difference < 1e-6
    assert Translator.load(tmp_path / "ours", precision="float32").translate(TEXTS) == lines


def test_positions_have_the_frequencies_of_marian() -> None:
    """As tensor_operators.cpp computes them: frequency i is 10000^(-i / (D/2 - 1))."""
    rows = marian_npz.positions(4, 6)
    expected = [[f(p * 10_000 ** (-i / 2)) for f in (np.sin, np.cos) for i in range(3)] for p in range(4)]
    assert np.allclose(rows, expected, atol=1e-6)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "recurrent": ({"type": "s2s"}, "type is 's2s', but heedful only supports 'transformer'"),
    "ssru": ({"transformer-decoder-autoreg": "rnn"}, "autoreg is 'rnn', but heedful only supports 'self-attention'"),
    "norms": ({"transformer-preprocess": "nd"}, "are .*nd.*; heedful computes"),
    "gelu": ({"transformer-ffn-activation": "gelu"}, "activation is 'gelu'; it must be one of swish, relu"),
    "reversed": ({"right-left": True}, "right-left is True"),
    "tied layers": ({"transformer-tied-layers": [1, 1]}, "tied-layers is"),
    "embeddings": ({"tied-embeddings-all": False, "tied-embeddings-src": True}, "tied-embeddings-src without"),
    "depth": ({"enc-depth": 3}, "lacks the tensor encoder_l3_self_Wq"),
    "width": ({"transformer-dim-ffn": 32}, "has shape .* but the configuration requires"),
    "heads": ({"transformer-heads": 5}, "contradicts itself"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_another_model_of_marian_gets_a_sentence(tmp_path: Path, name: str) -> None:
    changes, message = REFUSED[name]
    path = made(tmp_path / "marian")
    with np.load(path / "model.npz") as archive:
        content = dict(archive)
    content[marian_npz.MODEL] = np.frombuffer(yaml(SETTINGS | changes).encode() + b"\0", np.int8)
    np.savez(path / "model.npz", **content)
    with pytest.raises(FolderError, match=message):
        open_folder(path)


@pytest.mark.parametrize("name", ["opus-mt", "pre-norm", "two vocabularies"])
def test_a_model_of_marian_is_written_back_unchanged(tmp_path: Path, name: str) -> None:
    path = made(tmp_path / "marian", name == "two vocabularies", **VARIANTS[name])
    assert convert(path, tmp_path / "back", "marian").difference == 0
    with np.load(path / "model.npz") as before, np.load(tmp_path / "back" / "model.npz") as after:
        assert set(before) == set(after)
        for key in before.keys() - {marian_npz.MODEL}:
            assert np.array_equal(before[key], after[key]), key
    check_same_tokens(open_folder(path), by_ctranslate2(tmp_path / "back", tmp_path / "theirs"))


def test_only_what_starts_from_zero_is_written(tmp_path: Path) -> None:
    convert(made(tmp_path / "marian"), tmp_path / "ours")
    opened = load_folder(tmp_path / "ours")
    opened.model.state_dict()["embedding.weight"][opened.config.bos_id] = 1.0
    with pytest.raises(SettingError, match="in Marian from a zero vector"):
        marian_writer.write(opened, tmp_path)
    opened.model.state_dict()["decoder.position.table"][1] += 1.0
    with pytest.raises(SettingError, match=r"model.positions is 'learned', but Marian computes them"):
        marian_writer.write(opened, tmp_path)
    with pytest.raises(SettingError, match=r"model.norm_eps is .* always 1e-06"):
        convert(ours(tmp_path / "trained"), tmp_path / "never", "marian")
    assert not (tmp_path / "never").exists()


def changed_file(path: Path, name: str, content: str) -> Path:
    (path / name).write_text(content)
    return path


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("decoder.yml", "models: [a.npz, b.npz]\nvocabs: [vocab.yml]", "lists 2 models"),
        ("decoder.yml", "models:\n  - ../model.npz\nvocabs: [vocab.yml]", "only plain file names"),
        ("decoder.yml", "vocabs: [vocab.yml]", "models is None; it must be a list of files"),
        ("decoder.yml", "models: [model.npz]\nvocabs: [model.npz]", "is no .yml file"),
        ("vocab.yml", "a: 0\n</s>: 2\n", "number its 2 tokens from 0 without gaps"),
        ("vocab.yml", "</s>: 0\na: 1\n", "and its vocabulary has 2"),
        ("vocab.yml", "a: 0\na: 1\n", "so does another line"),
        ("vocab.yml", " a: 0\n", "is no YAML of the kind"),
        pytest.param("vocab.yml", f"a{' ' * 1_000_000}b\n", "is no YAML of the kind", id="spaces"),
        ("model.npz", "no archive", "is damaged or no model of Marian"),
    ],
)
def test_a_damaged_file_gets_a_sentence(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(FolderError, match=message):
        open_folder(changed_file(made(tmp_path / "marian"), name, content))


@pytest.mark.parametrize("kind", ["compressed", "pickled", "no configuration"])
def test_nothing_is_unpickled_or_decompressed(tmp_path: Path, kind: str) -> None:
    path = made(tmp_path / "marian")
    with np.load(path / "model.npz") as archive:
        content = dict(archive)
    if kind == "compressed":
        np.savez_compressed(path / "model.npz", **content)
    elif kind == "pickled":
        np.savez(path / "model.npz", **(content | {"Wemb": np.array([{}], dtype=object)}))
    else:
        np.savez(path / "model.npz", Wemb=content["Wemb"])
    message = {"compressed": "is compressed", "pickled": "another size", "no configuration": "has no special:model.yml"}
    with pytest.raises(FolderError, match=message[kind]):
        open_folder(path)


def test_damage_at_random_is_a_model_or_a_sentence(tmp_path: Path) -> None:
    clean, draw = made(tmp_path / "marian"), random.Random(1)
    for number in range(20):
        path = Path(shutil.copytree(clean, tmp_path / str(number)))
        mutate(path, draw)
        try:
            Translator([open_folder(path)]).translate(TEXTS[:1], max_length=4)
        except HeedfulError as error:
            assert "\n" not in str(error)
        shutil.rmtree(path)


def test_tokens_are_read_as_yaml_writes_them() -> None:
    text = '? "a \\"b\\""\n: 0\n\'it\'\'s\': 1\na:b: 2\n"\\x41\\u00e9\\U0001F642\\n": 3\n": ": 4\nno: 5\n'
    expected = ['a "b"', "it's", "a:b", "Aé🙂\n", ": ", "no"]
    assert list(flat_yaml.parse(text, "here")) == expected
    lists = flat_yaml.parse("a:\n- 1\n- x\nb: [true, -2]\nc: ''\n# no\nd: []\n", "here")
    assert flat_yaml.parse(flat_yaml.dump(lists), "here") == lists
    assert lists == {"a": [1, "x"], "b": [True, -2], "c": "", "d": []}
