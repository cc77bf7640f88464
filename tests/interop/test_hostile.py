"""A foreign folder is untrusted: whatever it holds, the answer is a model or one sentence, and nothing in it runs."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from heedful import interop
from heedful.errors import FolderError, HeedfulError
from heedful.interop import pickles

from .makers import bert, gpt2, marian, word_pieces
from .mutate import mutate
from .payloads import PAYLOADS, bare, legacy, zipped

MAKERS = {"marian": marian, "gpt2": gpt2, "bert": bert}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound folder of each kind, and one of each with the weights as a pickle."""
    root = tmp_path_factory.mktemp("clean")
    small = {"marian": {"d_model": 8}, "gpt2": {"n_embd": 8, "n_layer": 1}, "bert": {"hidden_size": 8}}
    for name, make in MAKERS.items():
        make(root / name, **small[name])
        shutil.copytree(root / name, root / f"{name}-bin")
        tensors = load_file(root / name / "model.safetensors")
        torch.save(tensors, root / f"{name}-bin/pytorch_model.bin", _use_new_zipfile_serialization=name != "gpt2")
        (root / f"{name}-bin/model.safetensors").unlink()
    (root / "bert/vocab.txt").unlink()
    (root / "bert/tokenizer.json").write_text(word_pieces())
    for item in root.iterdir():
        interop.open_folder(item)
    return root


def copied(clean: Path, name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(clean / name, tmp_path / "copy"))


def check_refused(path: Path, message: str = ".") -> None:
    began = time.perf_counter()
    with pytest.raises(FolderError, match=message) as caught:
        interop.open_folder(path)
    check_sentence(caught.value)
    assert time.perf_counter() - began < 10


def check_sentence(error: HeedfulError) -> None:
    text = str(error)
    assert text.endswith(".") and "\n" not in text and len(text) < 700 and "Traceback" not in text, text


@pytest.mark.parametrize("form", [bare, legacy, zipped])
@pytest.mark.parametrize("name", PAYLOADS)
def test_no_pickle_runs(clean: Path, tmp_path: Path, name: str, form: Callable[[bytes], bytes]) -> None:
    path = copied(clean, "gpt2-bin", tmp_path)
    mark = tmp_path / "it-ran"
    (path / "pytorch_model.bin").write_bytes(form(PAYLOADS[name](str(mark))))
    check_refused(path, "not a file of weights" if form is bare else "nothing in it was run|is damaged")
    assert not mark.exists()


def test_the_payloads_are_real(tmp_path: Path) -> None:
    """Opened without care, many of them do run: the test above is about something."""
    import pickle

    ran = 0
    for name in ("eval", "exec", "os.system", "subprocess", "pathlib", "stack global", "inst", "obj"):
        mark = tmp_path / name
        pickle.loads(PAYLOADS[name](str(mark)))
        ran += mark.exists()
    assert ran == 8


def edit(**changes: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        values = json.loads((path / "config.json").read_text()) | changes
        (path / "config.json").write_text(json.dumps(values))

    return change


def rewrite(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        tensors = load_file(path / "model.safetensors")
        change(tensors)
        save_file(tensors, path / "model.safetensors")

    return edit


def put(name: str, content: bytes | str) -> Callable[[Path], object]:
    data = content.encode() if isinstance(content, str) else content
    return lambda path: (path / name).write_bytes(data)


def link(name: str, target: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        (path / name).unlink(missing_ok=True)
        (path / name).symlink_to(target)

    return change


def index(table: object) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        (path / "model.safetensors").rename(path / "model-1.safetensors")
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))

    return change


def pipe(name: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        (path / name).unlink(missing_ok=True)
        os.mkfifo(path / name)

    return change


def view_of_everything(path: Path) -> None:
    """A tensor that says it is huge and stands on one number."""
    (path / "model.safetensors").unlink()
    torch.save({"transformer.wte.weight": torch.zeros(1).expand(2**20, 2**20)}, path / "pytorch_model.bin")


def compressed(path: Path) -> None:
    (path / "model.safetensors").unlink()
    with zipfile.ZipFile(path / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 50_000_000)


def header(shape: list[int], end: int) -> bytes:
    content = json.dumps({"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}}).encode()
    return len(content).to_bytes(8, "little") + content


W, E = "model.safetensors", "transformer.wte.weight"
HOSTILE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "giant vocabulary": ("gpt2", edit(vocab_size=10**12), "vocab_size is 1000000000000; it must be a whole number"),
    "vocabulary as a float": ("gpt2", edit(vocab_size=1e12), "vocab_size is 1000000000000.0"),
    "vocabulary as text": ("bert", edit(vocab_size="many"), "vocab_size is 'many'"),
    "vocabulary as an essay": ("bert", edit(vocab_size="many" * 10**5), r"vocab_size is 'many"),
    "negative size": ("bert", edit(hidden_size=-8), "hidden_size is -8"),
    "no heads": ("marian", edit(encoder_attention_heads=0, decoder_attention_heads=0), "encoder_attention_heads is 0"),
    "heads that do not divide": ("gpt2", edit(n_head=3), "contradicts itself: d_model"),
    "a million layers": ("marian", edit(encoder_layers=10**6), "encoder_layers is 1000000"),
    "a thousand layers": ("marian", edit(encoder_layers=1000), "lacks the tensor model.encoder.layers.2"),
    "giant width": ("gpt2", edit(n_embd=65536, n_head=4), "has shape"),
    "giant feed-forward": ("bert", edit(intermediate_size=1_000_000), "has shape"),
    "giant table of positions": ("marian", edit(max_position_embeddings=2**20 * 100), "max_position_embeddings is"),
    "infinite epsilon": ("bert", edit(layer_norm_eps=float("inf")), "layer_norm_eps is inf"),
    "no number": ("bert", edit(layer_norm_eps=float("nan")), "layer_norm_eps is nan"),
    "certain dropout": ("gpt2", edit(resid_pdrop=1.0), "resid_pdrop is 1.0"),
    "pad beyond the vocabulary": ("marian", edit(pad_token_id=10**6), "contradicts itself: pad_id"),
    "heads that only one side tells": ("marian", edit(decoder_attention_heads=None), r"decoder_attention_heads \(16\)"),
    "two names that disagree": ("gpt2", edit(num_attention_heads=2), r"\(2\) differs from n_head \(4\)"),
    "labels without numbers": (
        "bert", edit(architectures=["BertForSequenceClassification"], id2label={"x": "y"}), "id2label is",
    ),
    "several ends": ("gpt2", edit(eos_token_id=[1, 2]), "eos_token_id is"),
    "a list for a flag": ("marian", edit(scale_embedding=[1]), "scale_embedding is"),
    "an object for a type": ("gpt2", edit(model_type={"a": 1}), "model of type"),
    "deep config": ("gpt2", put("config.json", "[" * 100_000), "is not valid JSON"),
    "deep object": ("gpt2", put("config.json", '{"a":' * 100_000), "is not valid JSON"),
    "long number": ("gpt2", put("config.json", '{"vocab_size": ' + "9" * 10_000 + "}"), "is not valid JSON"),
    "list for config": ("gpt2", put("config.json", "[]"), "JSON list"),
    "huge config": ("gpt2", put("config.json", " " * 5_000_000), "not that large"),
    "not text": ("gpt2", put("config.json", b"\xff\xfe\x00"), "is not valid JSON"),
    "deep vocabulary": ("gpt2", put("vocab.json", '{"a":' * 100_000), "is not valid JSON"),
    "deep tokenizer": ("bert", put("tokenizer.json", '{"a":' * 100_000), "is damaged"),
    "NaN": ("gpt2", rewrite(lambda t: t[E].view(-1)[3:4].fill_(float("nan"))), "wte.weight holds numbers"),
    "infinity": ("gpt2", rewrite(lambda t: t[E].view(-1)[3:4].fill_(float("-inf"))), "wte.weight holds numbers"),
    "beyond float32": (
        "gpt2", rewrite(lambda t: t.update({E: t[E].double() + 1e300})), "wte.weight holds .* not finite in float32",
    ),
    "integers": ("gpt2", rewrite(lambda t: t.update({E: t[E].int()})), "stored as torch.int32"),
    "missing tensor": ("gpt2", rewrite(lambda t: t.pop(E)), "lacks the tensor transformer.wte.weight"),
    "surplus tensor": ("gpt2", rewrite(lambda t: t.update(evil=torch.zeros(3))), "holds 'transformer.evil'"),
    "wrong shape": ("gpt2", rewrite(lambda t: t.update({E: t[E][:-1].clone()})), "has shape"),
    "a copy that is none": (
        "gpt2", rewrite(lambda t: t.update({"lm_head.weight": t[E] + 1})), "lm_head.weight differs from",
    ),
    "giant shape in the header": ("gpt2", put(W, header([2**40, 2**20], 8) + b"\0" * 8), "is damaged"),
    "giant header": ("gpt2", put(W, (2**62).to_bytes(8, "little") + b"{}"), "its header has more than"),
    "empty weights": ("gpt2", put(W, b""), "is damaged"),
    "no weights": ("gpt2", lambda p: (p / W).unlink(), "has neither model.safetensors nor pytorch_model.bin"),
    "a folder for weights": ("gpt2", lambda p: ((p / W).unlink(), (p / W).mkdir()), "is not a plain file"),
    "a pipe for weights": ("gpt2", pipe(W), "is not a plain file"),
    "a pipe for a vocabulary": ("gpt2", pipe("vocab.json"), "is not a plain file"),
    "a pipe for settings": ("gpt2", pipe("config.json"), "is not a plain file"),
    "a device": ("gpt2", link(W, "/dev/zero"), "is a link out of its folder"),
    "a link out": ("gpt2", link("vocab.json", "/etc/passwd"), "is a link out of its folder"),
    "a link for settings": ("gpt2", link("generation_config.json", "../../etc/hosts"), "is a link"),
    "a link to itself": ("gpt2", link("vocab.json", "vocab.json"), "leads nowhere|not there"),
    "a link to nothing": ("gpt2", link("vocab.json", "nothing"), "not there"),
    "index out of the folder": ("gpt2", index({"a": "../model-1.safetensors"}), "only plain file names"),
    "index from the root": ("gpt2", index({"a": "/etc/passwd.safetensors"}), "only plain file names"),
    "index of something else": ("gpt2", index({"a": "config.json"}), "which is not a .safetensors file"),
    "index of nothing": ("gpt2", index({}), "lists 0 files"),
    "index of numbers": ("gpt2", index({"a": 1}), "weight_map is not a table"),
    "index of a missing file": ("gpt2", index({"a": "model-9.safetensors"}), "index.json names"),
    "index of many files": ("gpt2", index({str(i): f"{i}.safetensors" for i in range(5000)}), "lists 5,000 files"),
    "a view of everything": ("gpt2", view_of_everything, "describes tensors larger"),
    "a compressed pickle": ("gpt2", compressed, "is compressed"),
    "damaged spm": ("marian", put("source.spm", b"\x0a\xff\xff\xff\xff\x0f" * 50), "source.spm is damaged"),
    "empty spm": ("marian", put("target.spm", b""), "target.spm is damaged"),
    "no target spm": ("marian", lambda p: (p / "target.spm").unlink(), "has no target.spm"),
    "ids beyond the model": ("marian", put("vocab.json", '{"</s>": 0, "<unk>": 1, "a": 999}'), "tokens, and"),
    "ids that are none": ("marian", put("vocab.json", '{"</s>": 0, "<unk>": -5}'), "is not a token id"),
    "ids twice": ("marian", put("vocab.json", '{"</s>": 0, "<unk>": 0}'), "same id to several"),
    "no unknown": ("marian", put("vocab.json", '{"</s>": 0, "a": 1}'), "no token for unk"),
    "merges of one": ("gpt2", put("merges.txt", "a b\nc\n"), "not two pieces"),
    "merges of strangers": ("gpt2", put("merges.txt", "日 本\n"), "is damaged"),
    "no vocabulary": ("gpt2", lambda p: (p / "vocab.json").unlink(), "vocab.json"),
    "beams without end": ("marian", put("generation_config.json", '{"num_beams": 100000}'), "num_beams is 100000"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_folder_gets_one_sentence(clean: Path, tmp_path: Path, name: str) -> None:
    kind, change, message = HOSTILE[name]
    path = copied(clean, kind, tmp_path)
    change(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    check_refused(path, message)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kilobytes


def test_links_of_a_download_cache_are_followed(clean: Path, tmp_path: Path) -> None:
    """models--x/snapshots/<commit>/name -> ../../blobs/<hash>, as Hugging Face's downloader lays it out."""
    path, blobs = tmp_path / "models--x/snapshots/abc", tmp_path / "models--x/blobs"
    path.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate((clean / "gpt2").iterdir()):
        shutil.copy(file, blobs / str(number))
        (path / file.name).symlink_to(f"../../blobs/{number}")
    assert interop.open_folder(path).model.config.family == "decoder"
    (path / "vocab.json").unlink()
    (path / "vocab.json").symlink_to("../../blobs/../../secret")
    (tmp_path / "secret").write_text("{}")
    check_refused(path, "is a link out of its folder")


def test_a_pickle_may_mention_a_string_twice_but_not_a_tuple(tmp_path: Path) -> None:
    """Tuples of tuples of tuples take no room in a file and all the time in the world to hash."""
    twice = b"\x80\x02" + b"(" + b"K\x01K\x02\x86q\x00" + b"h\x00h\x00\x86q\x01" * 60 + b"t."
    (tmp_path / "x.bin").write_bytes(zipped(twice))
    with pytest.raises(FolderError, match="same number or tuple twice"):
        pickles.load(tmp_path / "x.bin")


def test_mutated_folders_load_or_get_one_sentence(clean: Path, tmp_path: Path) -> None:
    names = sorted(item.name for item in clean.iterdir())
    outcomes = {"opened": 0, "refused": 0}
    for seed in range(500):
        draw = random.Random(seed)
        path = tmp_path / str(seed)
        shutil.copytree(clean / names[seed % len(names)], path)
        mutate(path, draw)
        try:
            interop.open_folder(path)
            outcomes["opened"] += 1
        except HeedfulError as error:
            check_sentence(error)
            outcomes["refused"] += 1
        shutil.rmtree(path)
    assert outcomes["refused"] > 250 and outcomes["opened"] > 10
