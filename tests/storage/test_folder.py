"""A model folder comes back as it was saved, and a damaged one is refused in one sentence."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from heedful.config import ModelConfig, SearchSettings
from heedful.errors import FolderError, HeedfulError
from heedful.model.transformer import EncoderDecoder, build_model
from heedful.storage import folder
from heedful.storage.folder import ModelFolder
from heedful.storage.weight_file import WeightFile
from heedful.text import Tokenizer, train_vocabulary

LINES = ["the dog sleeps .", "der Hund schläft .", "the cats sleep .", "die Katzen schlafen ."] * 8


def make(path: Path, precision: str = "float32", **changes: object) -> ModelFolder:
    tokenizer = train_vocabulary(LINES, None, False)
    shape = {"d_model": 8, "d_ff": 16, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "max_length": 32}
    config = ModelConfig(**shape | {"vocab_size": tokenizer.vocab_size} | changes)
    torch.manual_seed(1)
    model = build_model(config).eval()
    saved = ModelFolder(model, tokenizer, tokenizer, SearchSettings(beam=3), path)
    folder.save_folder(saved, precision=precision)
    return saved


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return make(tmp_path_factory.mktemp("folder") / "model")


@pytest.fixture
def copy(saved: ModelFolder, tmp_path: Path) -> Path:
    shutil.copytree(saved.path, tmp_path / "copy")
    return tmp_path / "copy"


def test_what_was_saved_is_loaded(saved: ModelFolder) -> None:
    loaded = folder.load_folder(saved.path)
    assert loaded.model.config == saved.model.config
    assert loaded.search == saved.search
    assert loaded.tokenizer.to_json() == saved.tokenizer.to_json()
    for (name, a), b in zip(saved.model.state_dict().items(), loaded.model.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie": "none", "positions": "learned", "activation": "swiglu", "output_bias": True},
        {"positions": "relative", "pre_norm": True, "embedding_norm": True},
        {"architecture": "rnn"},
        {"architecture": "conv"},
        {"universal": True, "act_halting": True},
        {"attention": "linformer", "decoder_attention": "window"},
        {"family": "decoder"},
        {"family": "encoder", "token_types": 2, "pooler": True, "labels": ("yes", "no")},
    ],
    ids=str,
)
def test_int8_weights_are_loaded_as_their_rounded_values(tmp_path: Path, changes: dict[str, object]) -> None:
    saved = make(tmp_path / "model", "int8", **changes)
    stored, loaded = load_file(saved.path / W), folder.load_folder(saved.path).model.state_dict()
    for name, weight in saved.model.state_dict().items():
        if weight.dim() == 1 or "position" in name:
            assert torch.equal(stored[name], weight) and torch.equal(loaded[name], weight), name
            continue
        step = weight.abs().flatten(1).amax(1).view(-1, *[1] * (weight.dim() - 1)) / 127
        assert stored[name].dtype == torch.int8
        torch.testing.assert_close(stored[f"{name}_scale"], step.flatten(), rtol=2**-15, atol=0)
        assert ((loaded[name] - weight).abs() <= step * 0.501).all(), name
    again = ModelFolder(folder.load_folder(saved.path).model, *[saved.tokenizer] * 2, saved.search, tmp_path / "again")
    folder.save_folder(again,
                precision="int8")  # fmt: skip
    again = load_file(tmp_path / "again" / W)
    assert again.keys() == stored.keys() and all(torch.equal(again[name], stored[name]) for name in stored)


@pytest.mark.parametrize("precision", folder.STORED_PRECISIONS)
def test_weights_are_those_that_were_opened_whenever_they_are_read(tmp_path: Path, precision: str) -> None:
    saved = make(tmp_path / "model", precision)
    opened, again = folder.load_folder(saved.path), folder.load_folder(saved.path)
    expected = again.model.state_dict()
    folder.save_folder(
        replace(saved, weights=build_model(saved.config)), precision=precision
    )  # another model in the same place
    with torch.inference_mode():
        result = opened.model
    assert all(torch.equal(result.state_dict()[name], weight) for name, weight in expected.items())
    assert not any(weight.is_inference() for weight in result.parameters())
    assert not torch.equal(folder.load_folder(saved.path).model.embedding.weight, result.embedding.weight)


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.bfloat16])
def test_other_floats_are_read_as_torch_reads_them(copy: Path, kind: torch.dtype) -> None:
    weights = {name: tensor.to(kind) for name, tensor in load_file(copy / W).items()}
    save_file(weights, copy / W)
    description = json.loads((copy / "config.json").read_text())
    del description["sha256"][W]
    (copy / "config.json").write_text(json.dumps(description))
    opened = folder.load_folder(copy)
    assert isinstance(opened.weights, WeightFile)
    for name, tensor, scale in opened.weights.tensors():
        assert scale is None
        np.testing.assert_array_equal(tensor.astype(np.float32), weights[name].float().numpy())
    assert all(torch.equal(result, weights[name].float()) for name, result in opened.model.state_dict().items())
    weights["embedding.weight"][0, 0] = float("nan")
    save_file(weights, copy / W)
    with pytest.raises(FolderError, match=r"embedding\.weight holds numbers that are not finite"):
        folder.load_folder(copy)


def test_a_file_that_is_overwritten_is_not_read(copy: Path) -> None:
    opened = folder.load_folder(copy)
    content = (copy / W).read_bytes()
    for changed in (content, content[:-9]):
        (copy / W).write_bytes(changed)
        with pytest.raises(FolderError, match="was changed while it was in use"):
            assert opened.model


def test_an_int8_folder_has_about_a_quarter_of_the_size(tmp_path: Path) -> None:
    sizes = [
        (make(tmp_path / precision, precision, d_model=128, d_ff=512).path / W).stat().st_size
        for precision in ("float32", "int8")
    ]
    assert 0.25 < sizes[1] / sizes[0] < 0.29


def test_opening_a_folder_draws_no_random_numbers_and_imports_nothing_large(saved: ModelFolder) -> None:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    assert folder.load_folder(saved.path).model
    assert torch.equal(torch.get_rng_state(), state)
    code = (
        "import sys; from heedful.storage import folder; folder.load_folder(sys.argv[1]); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, saved.path], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    code = code.replace("'torch'", "'sympy'").replace("(sys.argv[1])", "(sys.argv[1]).model")
    done = subprocess.run([sys.executable, "-c", code, saved.path], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("tie", ["all", "target", "none"])
def test_tied_weights_are_stored_once(tmp_path: Path, tie: str) -> None:
    saved = make(tmp_path / "model", tie=tie)
    stored = load_file(saved.path / "model.safetensors")
    size = (saved.model.config.vocab_size, 8)
    assert sum(tuple(tensor.shape) == size for tensor in stored.values()) == {"all": 1, "target": 2, "none": 3}[tie]
    assert isinstance(folder.load_folder(saved.path).model, EncoderDecoder)


def test_separate_vocabularies_have_a_file_each(tmp_path: Path) -> None:
    source, target = train_vocabulary(LINES[::2], None, False), train_vocabulary(LINES[1::2], None, False)
    config = ModelConfig(
        vocab_size=target.vocab_size, source_vocab_size=source.vocab_size, tie="target", d_model=8, d_ff=8, n_heads=2,
        encoder_layers=1, decoder_layers=1, max_length=16,
    )  # fmt: skip
    folder.save_folder(ModelFolder(build_model(config), target, source, SearchSettings(), tmp_path / "model"))
    loaded = folder.load_folder(tmp_path / "model")
    assert loaded.source_tokenizer.to_json() == source.to_json()
    assert loaded.tokenizer.to_json() == target.to_json()


def test_one_vocabulary_may_be_cut_differently_in_two_languages(tmp_path: Path) -> None:
    saved = make(tmp_path / "model")
    other = Tokenizer.from_json(
        saved.tokenizer.to_json().replace('"prepend_scheme":"always"', '"prepend_scheme":"never"')
    )
    folder.save_folder(ModelFolder(saved.model, saved.tokenizer, other, saved.search, saved.path))
    loaded = folder.load_folder(saved.path)
    assert loaded.source_tokenizer.to_json() == other.to_json() != loaded.tokenizer.to_json()
    folder.save_folder(saved)
    loaded = folder.load_folder(saved.path)
    assert loaded.source_tokenizer is loaded.tokenizer


def test_a_vocabulary_may_be_smaller_than_the_model_but_not_larger(tmp_path: Path) -> None:
    tokenizer = train_vocabulary(LINES, None, False)
    sizes = {"d_model": 8, "d_ff": 16, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "max_length": 32}
    for extra in (3, -3):
        config = ModelConfig(vocab_size=tokenizer.vocab_size + extra, **sizes)
        folder.save_folder(
            ModelFolder(build_model(config), tokenizer, tokenizer, SearchSettings(), tmp_path / str(extra))
        )
    assert folder.load_folder(tmp_path / "3").model.config.vocab_size == tokenizer.vocab_size + 3
    with pytest.raises(FolderError, match="tokens, and the model has embeddings for"):
        folder.load_folder(tmp_path / "-3")


def test_the_model_says_which_tokens_frame_a_sequence(tmp_path: Path) -> None:
    make(tmp_path / "model", bos_id=0, eos_id=5)
    specials = folder.load_folder(tmp_path / "model").tokenizer.specials
    assert (specials.pad, specials.bos, specials.eos) == (0, 0, 5)


def edit_config(change: Callable[[dict[str, object]], object]) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        description = json.loads((path / "config.json").read_text())
        change(description)
        (path / "config.json").write_text(json.dumps(description))

    return edit


def edit_weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    """Change the weights and the digest too, so that only the deeper check can see it."""

    def edit(path: Path) -> None:
        tensors = load_file(path / "model.safetensors")
        change(tensors)
        save_file(tensors, path / "model.safetensors")
        edit_config(lambda d: d.pop("sha256"))(path)

    return edit


def flip(name: str) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        data = bytearray((path / name).read_bytes())
        data[len(data) * 2 // 3] ^= 1
        (path / name).write_bytes(data)

    return edit


def truncate(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).write_bytes((path / name).read_bytes()[:100]) and None


W, E = "model.safetensors", "embedding.weight"
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (shutil.rmtree, "does not exist"),
    "no config": (lambda p: (p / "config.json").unlink(), "is not a model folder"),
    "no weights": (lambda p: (p / W).unlink(), "has no model.safetensors"),
    "no tokenizer": (lambda p: (p / "tokenizer.json").unlink(), "has no tokenizer.json"),
    "flipped weights": (flip(W), "does not match its digest"),
    "cut weights": (truncate(W), "does not match its digest"),
    "flipped tokenizer": (flip("tokenizer.json"), "does not match its digest"),
    "cut config": (truncate("config.json"), "is not valid JSON"),
    "list for config": (lambda p: (p / "config.json").write_text("[1]"), "JSON list"),
    "huge config": (lambda p: (p / "config.json").write_text(" " * 5_000_000), "not that large"),
    "deep config": (lambda p: (p / "config.json").write_text("[" * 100_000), "is not valid JSON"),
    "other type": (edit_config(lambda d: d.update(model_type="bert")), "'bert'"),
    "newer format": (edit_config(lambda d: d.update(format=99)), "format 99"),
    "unknown key": (edit_config(lambda d: d["model"].update(d_modle=3)), "d_model"),  # type: ignore[attr-defined]
    "giant size": (edit_config(lambda d: d["model"].update(d_model=10**12)), "d_model"),  # type: ignore[attr-defined]
    "giant table": (edit_config(lambda d: d["model"].update(max_length=2**20, d_model=2**14)), "max_length"),  # type: ignore[attr-defined]
    "giant layers": (edit_config(lambda d: d["model"].update(d_ff=1_048_576)), "configuration says"),  # type: ignore[attr-defined]
    "vocabulary too large": (edit_config(lambda d: d["model"].update(vocab_size=9_999_999)), "configuration says"),  # type: ignore[attr-defined]
    "path in digests": (edit_config(lambda d: d["sha256"].update({"../../etc/passwd": "x"})), "not a file of a model"),  # type: ignore[attr-defined]
    "NaN": (edit_weights(lambda t: t[E].view(-1)[5:6].fill_(float("nan"))), "embedding.weight holds numbers"),
    "infinity": (edit_weights(lambda t: t[E].view(-1)[5:6].fill_(float("inf"))), "embedding.weight holds numbers"),
    "beyond float32": (
        edit_weights(lambda t: t.update({E: t[E].double() + 1e300})), "embedding.weight holds .* not finite in float32",
    ),
    "wrong shape": (edit_weights(lambda t: t.update({E: t[E][:-1].clone()})), "embedding.weight has shape"),
    "missing tensor": (edit_weights(lambda t: t.pop(E)), "lacks embedding.weight"),
    "surplus tensor": (edit_weights(lambda t: t.update(more=torch.zeros(3))), "holds more"),
    "not safetensors": (
        lambda p: ((p / W).write_bytes(b"\xff" * 500), edit_config(lambda d: d.pop("sha256"))(p)), "is damaged",
    ),
    "bad search": (lambda p: (p / "generation_config.json").write_text('{"beam": -1}'), "beam"),
}  # fmt: skip


S = "embedding.weight_scale"
DAMAGE_OF_8_BITS: dict[str, tuple[Callable[[Path], object], str]] = {
    "flipped weights": (flip(W), "does not match its digest"),
    "no scales": (edit_weights(lambda t: t.pop(S)), "lacks embedding.weight_scale"),
    "surplus scales": (edit_weights(lambda t: t.update({f"{S}_scale": t[S].clone()})), "holds embedding.weight_scale_"),
    "scales of another shape": (edit_weights(lambda t: t.update({S: t[S][:-1].clone()})), "weight_scale has shape"),
    "scales of halves": (edit_weights(lambda t: t.update({S: t[S].half()})), "weight_scale is of type F16.* says F32"),
    "scales that are NaN": (edit_weights(lambda t: t[S][3:4].fill_(float("nan"))), "embedding.weight holds numbers"),
    "scales that overflow": (edit_weights(lambda t: t[S][3:4].fill_(3e38)), "embedding.weight holds numbers"),
    "too small": (edit_weights(lambda t: t[E][1, 1:2].fill_(-128)), "embedding.weight holds int8 values beyond ±127"),
    "floats": (edit_weights(lambda t: t.update({E: t[E].float()})), "embedding.weight is of type F32.* says I8"),
    "unsigned": (edit_weights(lambda t: t.update({E: t[E].view(torch.uint8)})), "type U8"),
    "wrong shape": (edit_weights(lambda t: t.update({E: t[E][:-1].clone()})), "embedding.weight has shape"),
    "giant size": (edit_config(lambda d: d["model"].update(vocab_size=9_999_999)), "configuration says"),  # type: ignore[attr-defined]
    "said to be float32": (edit_config(lambda d: d.update(precision="float32")), "is of type I8"),
    "not said": (edit_config(lambda d: d.pop("precision")), "is of type I8"),
    "unknown precision": (edit_config(lambda d: d.update(precision="int4")), "'int4', but this version reads"),
    "no precision": (edit_config(lambda d: d.update(precision=[{}])), "but this version reads float32 and int8"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE_OF_8_BITS)
def test_a_damaged_int8_folder_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    path = make(tmp_path / "model", "int8").path
    damage, message = DAMAGE_OF_8_BITS[name]
    damage(path)
    with pytest.raises(HeedfulError, match=message) as caught:
        folder.load_folder(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_folder_is_refused_in_one_sentence(copy: Path, name: str) -> None:
    damage, message = DAMAGE[name]
    damage(copy)
    with pytest.raises(HeedfulError, match=message) as caught:
        folder.load_folder(copy)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_a_table_of_positions_is_no_larger_than_the_weights_justify(
    tmp_path: Path, positions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "model", d_model=64, positions=positions, max_length=2**13).path
    folder.load_folder(path)
    edit_config(lambda d: d["model"].update(max_length=2**20))(path)  # type: ignore[attr-defined]
    sentence = (
        r"config\.json: max_length is 1,048,576, .* out of proportion to the [0-9,]+ weights; it may be [0-9,]+ at most"
    )
    with pytest.raises(FolderError, match=sentence) as caught:
        folder.load_folder(path)
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(folder, "POSITIONS_PER_WEIGHT", 10**6)  # as if there were more weights
    assert folder.load_folder(path).config.max_length == 2**20


def test_a_file_is_not_a_folder(copy: Path) -> None:
    with pytest.raises(FolderError, match="is not a folder"):
        folder.load_folder(copy / "config.json")


def test_a_run_before_its_first_validation_is_told(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(FolderError, match=r"holds a run without a model yet: .* continue the run if it was stopped"):
        folder.load_folder(tmp_path)


def test_saving_over_a_model_leaves_other_files_alone(copy: Path) -> None:
    (copy / "notes.txt").write_text("mine")
    loaded = folder.load_folder(copy)
    folder.save_folder(loaded)
    assert (copy / "notes.txt").read_text() == "mine"
    assert not list(copy.glob(".*"))
    folder.load_folder(copy)


def test_a_full_disk_is_reported_with_what_to_do(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = folder.load_folder(copy)

    def full(*args: object) -> None:  # as safetensors reports it
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("heedful.storage.module_weights.save_file", full)
    with pytest.raises(FolderError, match=r"written: No space left on device; its previous .* free some space"):
        folder.save_folder(loaded)


def test_a_failed_save_leaves_the_old_model(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = folder.load_folder(copy)

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("heedful.storage.module_weights.save_file", full)
    with pytest.raises(FolderError, match="No space left on device; its previous content is unchanged"):
        folder.save_folder(loaded)
    folder.load_folder(copy)


class Killed(BaseException):
    """Stands for SIGKILL: nothing after it runs."""


def save_killed(model_folder: ModelFolder, crash: int) -> bool:
    """Save until the rename of this number; whether there was one."""
    really_replace, renames = os.replace, itertools.count()

    def replace_file(old: Path, new: Path) -> None:
        if next(renames) == crash:
            raise Killed
        really_replace(old, new)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", replace_file)
        try:
            folder.save_folder(model_folder)
        except Killed:
            return True
    return False


def changed(saved: ModelFolder, change: float) -> ModelFolder:
    other = folder.load_folder(saved.path)
    for parameter in other.model.parameters():
        parameter.data += change
    return other


def which_opens(path: Path, models: Sequence[ModelFolder]) -> int:
    """The number of the model that the folder holds."""
    weights = folder.load_folder(path).model.state_dict()
    states = [model.model.state_dict() for model in models]
    return next(n for n, state in enumerate(states) if all(torch.equal(weights[k], state[k]) for k in state))


def test_a_folder_opens_wherever_saving_over_it_is_killed(saved: ModelFolder, tmp_path: Path) -> None:
    models = [saved, changed(saved, 1)]
    opened: list[int] = []  # the model found after each crash: 0 for the old one, 1 for the new one
    for crash in itertools.count():
        path = tmp_path / str(crash)
        shutil.copytree(saved.path, path)
        killed = save_killed(replace(models[1], path=path), crash)
        opened.append(which_opens(path, models))
        if not killed:
            break
    assert opened == sorted(opened)
    assert opened[0] == 0
    assert opened[-1] == 1
    assert len(opened) == 7  # config.json, the weights and the four other files, config.json again, and none


@pytest.mark.parametrize("second", range(6))
@pytest.mark.parametrize("first", range(6))
def test_a_folder_opens_after_saving_was_killed_twice(
    saved: ModelFolder, tmp_path: Path, first: int, second: int
) -> None:
    models = [saved, changed(saved, 1), changed(saved, 2)]
    path = tmp_path / "killed"
    shutil.copytree(saved.path, path)
    assert save_killed(replace(models[1], path=path), first)
    before = which_opens(path, models)
    assert save_killed(replace(models[2], path=path), second)
    assert which_opens(path, models) == (before if second < 2 else 2)


def test_a_folder_opens_while_its_weights_are_replaced(
    saved: ModelFolder, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """config.json is read before a training run saves a better model, and the digests after it."""
    better = folder.load_folder(saved.path)
    for parameter in better.model.parameters():
        parameter.data += 1
    read = folder.read_description
    reads = itertools.count()

    def read_and_replace(path: Path) -> dict[str, object]:
        description = read(path)
        if next(reads) == 0:
            folder.save_folder(replace(better, path=path))
        return description

    monkeypatch.setattr(folder, "read_description", read_and_replace)
    weights = folder.load_folder(copy).model.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in better.model.state_dict().items())
    assert next(reads) == 2


def test_a_mixture_of_two_kinds_of_models_is_refused(copy: Path) -> None:
    def killed(*args: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder, "save_search", killed)
        with pytest.raises(Killed):
            folder.save_folder(folder.load_folder(copy), precision="int8")
    with pytest.raises(FolderError, match="does not match its digest"):
        folder.load_folder(copy)
