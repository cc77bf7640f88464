"""Bad input gets one clear sentence, exit code 2, no traceback, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import heedful
from heedful.storage.folder import load_folder, save_folder
from tests.cli.conftest import Call, process, training


def assert_one_sentence(err: str, *parts: str) -> None:
    last = err.strip().splitlines()[-1]
    assert last.startswith("error: "), err
    assert "Traceback" not in err
    for part in parts:
        assert part in last, f"{part!r} is not in {last!r}"


def write(folder: Path, source: bytes, target: bytes) -> list[object]:
    (folder / "a.en").write_bytes(source)
    (folder / "a.de").write_bytes(target)
    return ["train", "--source", folder / "a.en", "--target", folder / "a.de", "--out", folder / "out"]


GOOD = b"".join(b"the dog number %d sleeps\n" % i for i in range(60))
CORPORA: dict[str, tuple[bytes, bytes, tuple[str, ...]]] = {
    "unequal line counts": (b"a\nb\nc\n", b"a\nb\n", ("a.en has 3 lines", "a.de has 2")),
    "invalid UTF-8": (b"\xff\n\xff\xfe\n", b"a\nb\n", ("2 dropped: not UTF-8", "first: line 1 of", "a.en")),
    "NUL": (b"a\0\nb\0c\n", b"a\nb\n", ("2 dropped: a NUL", "first: line 1 of", "a.en")),
    "empty corpus": (b"", b"", ("a.en",)),
    "nothing but empty lines": (b"\n\n\n", b"\n\n\n", ("empty",)),
}


@pytest.mark.parametrize("name", CORPORA)
def test_a_bad_corpus_is_one_sentence(call: Call, tmp_path: Path, name: str) -> None:
    source, target, parts = CORPORA[name]
    done = call(*write(tmp_path, source, target))
    assert done.code == 2
    assert_one_sentence(done.err, *parts)
    assert not (tmp_path / "out").exists()


def test_line_separators_inside_lines_do_not_shift_pairs(call: Call, tmp_path: Path) -> None:
    odd = GOOD.replace(b"number 5 ", "number\u2028five\u0085\x0b\x0c ".encode())
    done = call(
        *write(tmp_path, odd, GOOD), *training(tmp_path, tmp_path)[1:11], "train.max_updates=1", "data.valid_size=5"
    )
    assert done.code == 0, done.err
    assert "60 pairs read" in done.err
    assert "U+2028" in done.err


WORDS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "missing file": (["--source", "nowhere.en", "--target", "nowhere.de"], ("nowhere.en",)),
    "a folder for a file": (["--source", ".", "--target", "."], (".",)),
    "no corpus": ([], ("no corpus",)),
    "one side": (["--source", "GOOD"], ("target",)),
    "both forms": (["--source", "GOOD", "--target", "GOOD", "--pairs", "GOOD"], ("pairs",)),
    "mistyped key": (["train.warmpu=3"], ("train.warmpu", "did you mean train.warmup?")),
    "mistyped section": (["trian.warmup=3"], ("trian", "train")),
    "no such setting": (["train.zzzzzzzz=3"], ("train.zzzzzzzz", "heedful settings")),
    "out of range": (["model.dropout=1.5"], ("model.dropout is 1.5", "less than 1")),
    "not a number": (["train.seed=many"], ("train.seed is 'many'; it must be a whole number.",)),
    "a fraction": (["train.seed=1.5"], ("train.seed is 1.5; it must be a whole number.",)),
    "neither true nor false": (["data.strict=maybe"], ("data.strict is 'maybe'; it must be true or false.",)),
    "no such choice": (["text.kind=xx"], ("text.kind is 'xx'; it must be 'bpe', 'bytes' or 'characters'.",)),
    "too large": (["train.seed=9999999999"], ("train.seed is 9999999999; it must be less than 2147483648.",)),
    "too many": (["data.speed_perturbation=[9]"], ("data.speed_perturbation is 9; it must be 2 or less.",)),
    "heads": (["--source", "GOOD", "--target", "GOOD", "model.d_model=30", "model.n_heads=4"], ("30", "divisible")),
    "time": (["--time", "soon"], ("train.time", "30m")),
    "preset": (["--preset", "huge"], ("preset", "tiny")),
    "no such TOML": (["nowhere.toml"], ("nowhere.toml", "does not exist")),
    "a setting without a value": (["model.d_model"], ("model.d_model is a setting without a value", "=VALUE")),
    "a preset without a value": (["preset"], ("preset is a setting without a value",)),
    "vocabulary too large": (["--source", "GOOD", "--target", "GOOD", "text.vocab_size=90000"], ("90000",)),
    "vectors of another width": (
        ["--source", "GOOD", "--target", "GOOD", "train.pretrained_embeddings=GOOD"], ("d_model",),
    ),
    "pairs that do not fit": (["--source", "GOOD", "--target", "GOOD", "model.max_length=4"],
                              ("tokens, and the model takes 4", "data.max_length=3")),
    "documents that do not fit": (
        ["--source", "GOOD", "--target", "GOOD", "--task", "summarization", "model.max_length=4"],
        ("tokens, and the model takes 4", "data.max_source_length=3")),
    "what the corpus says": (["--source", "GOOD", "--target", "GOOD", "model.vocab_size=77"],
                             ("model.vocab_size is 77", "set text.vocab_size instead")),
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_bad_arguments_of_train_are_one_sentence(call: Call, tmp_path: Path, name: str) -> None:
    (tmp_path / "good").write_bytes(GOOD)
    words, parts = WORDS[name]
    done = call("train", *(word.replace("GOOD", str(tmp_path / "good")) for word in words), "--out", tmp_path / "out")
    assert done.code == 2, done.err
    assert_one_sentence(done.err, *parts)


PAIRS = ["--source", "GOOD", "--target", "GOOD"]
GPT = ["--text", "GOOD", "task=language-model"]
EARLY: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "heads": ([*PAIRS, "model.d_model=100", "model.n_heads=8"], ("d_model (100) must be divisible by n_heads (8)",)),
    "heads of a preset": ([*PAIRS, "--preset", "base", "model.d_model=100"], ("d_model (100)", "n_heads (8)")),
    "positions": ([*PAIRS, "model.d_model=9", "model.n_heads=3"], ("sinusoidal positions need an even d_model",)),
    "kinds of attention": ([*PAIRS, "model.attention=linear", "model.positions=alibi"], ("linear attention",)),
    "heads of a GPT": ([*GPT, "model.d_model=100", "model.n_heads=8"], ("divisible by n_heads (8)",)),
    "vocabularies": ([*PAIRS, "text.joint=false", "model.tie=all"], ("set model.tie=target",)),
    "lengths": ([*PAIRS, "data.max_length=900000"], ("max_length",)),
    "act_halting": ([*PAIRS, "model.act_halting=true"], ("model.universal=true",)),
    "R-Drop with act_halting": (
        [*PAIRS, "model.act_halting=true", "model.universal=true", "train.rdrop=5"], ("train.rdrop",)),
    "subwords of a GPT": ([*GPT, "train.bpe_dropout=0.1"], ("train.bpe_dropout is for a translator",)),
    "pairs for a GPT": (
        [*GPT, "train.embedding_init=lsa"],
        ("train.embedding_init is 'lsa'", "leave it out"),
    ),
    "a BERT without a head": (["--text", "GOOD", "task=masked-lm", "model.head=none"], ("model.head is none",)),
    "size of bytes": ([*GPT, "text.kind=bytes", "text.vocab_size=300"], ("text.vocab_size is 300",)),
    "small vocabulary": ([*PAIRS, "text.vocab_size=100"], ("text.vocab_size is 100", "260")),
    "family": ([*PAIRS, "model.family=decoder"], ("model.family is decoder", "set task")),
    "no validation source": ([*PAIRS, "--valid-source", "no.en", "--valid-target", "GOOD"], ("no.en does not exist",)),
    "no validation text": ([*GPT, "--valid-text", "no.txt"], ("no.txt does not exist",)),
    "validation of another kind": ([*PAIRS, "--valid-text", "GOOD"], ("data.valid_text", "or give data.valid_source")),
    "one language of line-aligned files": (
        [*PAIRS, "--source-language", "en"], ("data.source_language is en without data.target_language", "give both")),
    "languages of a GPT": ([*GPT, "--target-language", "de"], ("data.target_language is de", "only pairs")),
    "no vectors": ([*PAIRS, "train.pretrained_embeddings=no.vec"], ("no.vec does not exist",)),
}  # fmt: skip


@pytest.mark.parametrize("name", EARLY)
def test_wrong_settings_are_refused_before_the_corpus_is_read(call: Call, tmp_path: Path, name: str) -> None:
    (tmp_path / "good").write_bytes(GOOD)
    words, parts = EARLY[name]
    words = [*(word.replace("GOOD", str(tmp_path / "good")) for word in words), "train.max_updates=1"]
    done = call("train", *words, "--out", tmp_path / "out")
    assert done.code == 2, done.err
    assert_one_sentence(done.err, *parts)
    assert "checking" not in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good"]


def test_an_output_folder_that_cannot_be_made_is_refused_first(call: Call, tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(GOOD)
    files = ["--source", tmp_path / "good", "--target", tmp_path / "good", f"data.cache_dir={tmp_path / 'store'}"]
    for out, part in ((tmp_path / "good/out", "a part of the path is a file"), (Path("/proc/no/out"), "/proc/no/out")):
        done = call("train", *files, "--out", out)
        assert done.code == 2
        assert_one_sentence(done.err, part)
        assert "checking" not in done.err
        assert not (tmp_path / "store").exists()


def test_validation_files_are_read_first(call: Call, tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(GOOD)
    (tmp_path / "few").write_bytes(b"one line\n")
    (tmp_path / "none").write_bytes(b"")
    good, few, none = (tmp_path / name for name in ("good", "few", "none"))
    bad = ["--source", good, "--target", few, "--valid-source", good, "--valid-target", few]
    done = call("train", *bad, "--valid-target", none, "--out", tmp_path / "out")
    assert_one_sentence(done.err, f"{good} has 60 lines but {none} has 0")
    done = call(
        "train",
        "--task",
        "language-model",
        "--text",
        good,
        "--valid-text",
        none,
        "text.vocab_size=9000",
        "train.max_updates=1",
        "--out",
        tmp_path / "out",
    )
    assert_one_sentence(done.err, f"{none} holds no text")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_refused_by_train(call: Call, corpus: Path, tmp_path: Path) -> None:
    done = call(*training(corpus, tmp_path / "out"), "train.device=cuda")
    assert done.code == 2
    assert_one_sentence(done.err, "train.device is cuda", "no GPU")


@pytest.mark.parametrize("device", ["cuda", "cuda:7", "gpu"])
@pytest.mark.parametrize(
    "words",
    [
        ["translate", "FOLDER"],
        ["evaluate", "FOLDER", "--source", "TEXT", "--reference", "TEXT"],
        ["score", "FOLDER", "--source", "TEXT", "--target", "TEXT"],
        ["generate", "FOLDER", "Once"],
        ["embed", "FOLDER", "-i", "TEXT"],
        ["fill-mask", "FOLDER", "a [MASK]"],
        ["classify", "FOLDER", "-i", "TEXT"],
    ],
    ids=lambda words: words[0],
)
def test_a_missing_device_is_refused(
    call: Call, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], device: str
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1 if device == "cuda:7" else 0)
    text = tmp_path / "text"
    text.write_text("Hello.\n", encoding="utf-8")
    names = {"FOLDER": trained, "TEXT": text}
    done = call(*(names.get(word, word) for word in words), "--device", device)
    assert done.code == 2
    message = {"cuda": "torch finds no GPU here", "cuda:7": "torch finds 1 GPU here", "gpu": "must be cpu, cuda"}
    assert_one_sentence(done.err, "--device is", message[device])


def test_int8_needs_a_cpu(call: Call, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    done = call("translate", trained, "--precision", "int8", "--device", "cuda")
    assert done.code == 2
    assert_one_sentence(done.err, "precision is int8", "needs a CPU")


@pytest.mark.parametrize("name", ["x" * 300, "file/inside"])
def test_paths_that_cannot_be_opened_are_one_sentence(call: Call, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("no folder")
    for words in (["translate", tmp_path / name], ["demo", "--out", tmp_path / name]):
        done = call(*words)
        assert done.code == 2
        assert_one_sentence(done.err, name[:3])


def test_bad_toml_names_the_file(call: Call, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("[train\nseed = 1")
    done = call("train", tmp_path / "run.toml", "--out", tmp_path / "out")
    assert done.code == 2
    assert_one_sentence(done.err, "run.toml", "TOML")


def test_out_is_needed_and_must_be_new_and_writable(call: Call, corpus: Path, trained: Path) -> None:
    assert_one_sentence(call("train", "--source", corpus / "train.en", "--target", corpus / "train.de").err, "--out")
    before = (trained / "model.safetensors").read_bytes()
    done = call(*training(corpus, trained))
    assert done.code == 2
    assert_one_sentence(done.err, str(trained), "--resume")
    assert (trained / "model.safetensors").read_bytes() == before
    done = call(*training(corpus, Path("/proc/nowhere/out")))
    assert done.code == 2
    assert_one_sentence(done.err, "/proc/nowhere")


def test_a_disk_that_fills_up_leaves_the_last_checkpoint(
    call: Call, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from heedful.storage.module_weights import save_file

    calls = [0]

    def filling(*args: object) -> None:
        calls[0] += 1
        if calls[0] > 6:
            raise OSError(28, "No space left on device")
        save_file(*args)

    monkeypatch.setattr("heedful.storage.module_weights.save_file", filling)
    done = call(*training(corpus, tmp_path / "out"))
    assert done.code == 2
    assert_one_sentence(done.err, "No space left on device")
    monkeypatch.undo()
    assert call(*training(corpus, tmp_path / "out"), "--resume").code == 0


@pytest.mark.parametrize("command", ["translate", "evaluate", "score"])
def test_a_folder_without_a_model_is_refused(call: Call, corpus: Path, tmp_path: Path, command: str) -> None:
    files = ["-i", corpus / "valid.en"] if command == "translate" else ["--source", corpus / "valid.en"]
    files += {"evaluate": ["--reference", corpus / "valid.de"], "score": ["--target", corpus / "valid.de"]}.get(
        command, []
    )
    done = call(command, tmp_path, *files)
    assert done.code == 2
    assert_one_sentence(done.err, str(tmp_path), "is not a model folder")


def test_a_flipped_bit_is_noticed(call: Call, corpus: Path, trained: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(trained, tmp_path / "x")
    data = bytearray((tmp_path / "x" / "model.safetensors").read_bytes())
    data[-100] ^= 1
    (tmp_path / "x" / "model.safetensors").write_bytes(data)
    done = call("translate", tmp_path / "x", "-i", corpus / "valid.en")
    assert done.code == 2
    assert_one_sentence(done.err, "model.safetensors", "damaged")


def test_translate_refuses_what_is_not_text(trained: Path) -> None:
    done = process("translate", trained, stdin=b"fine\n\xff\xff\n")
    assert done.code == 2
    assert_one_sentence(done.err, "line 2 of standard input")


def test_the_vocabulary_of_an_init_folder_is_kept(call: Call, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(GOOD)
    files = ["--source", tmp_path / "good", "--target", tmp_path / "good", "--out", tmp_path / "out"]
    done = call("train", *files, "--init", trained, "text.vocab_size=301")
    assert done.code == 2
    assert_one_sentence(done.err, "text.vocab_size is 301, and the vocabulary of", str(trained), "leave it out")


def test_a_denoiser_is_a_start_only(call: Call, trained: Path, tmp_path: Path, corpus: Path) -> None:
    folder = load_folder(trained)
    folder.path, folder.task = tmp_path / "d", "denoising"
    save_folder(folder)
    for command in ("translate", "summarize"):
        done = call(command, tmp_path / "d", "-i", corpus / "valid.en")
        assert done.code == 2
        assert_one_sentence(done.err, "neither translates nor summarizes; use heedful train, with this folder for init")
    assert "to start from" in repr(loaded := heedful.load(tmp_path / "d")) and "heedful.train(init" in repr(loaded)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--beam", "0"], ("beam",)),
        (["--n-best", "0"], ("n_best",)),
        (["--beam", "2", "--n-best", "5"], ("n_best (5)", "beam (2)")),
        (["--precision", "half"], ("precision", "half")),
        (["--threads", "-1"], ("threads",)),
        (["--sample", "--top-p", "2"], ("top_p",)),
        (["--length-penalty", "-1"], ("length_penalty",)),
        (["-o", "/proc/nowhere/out"], ("/proc/nowhere/out",)),
        (["--temperature", "0.5"], ("--temperature has no effect without --sample", "add --sample")),
        (["--top-k", "3", "--top-p", "0.5", "--seed", "1"], ("--top-k and --top-p and --seed have no effect",)),
        (["--review-below", "0"], ("--review-below has no effect on ", "valid.en", "line by line", "--format")),
        (["--only-missing"], ("--only-missing has no effect",)),
        (["--overwrite", "--column", "2"], ("--overwrite and --column have no effect",)),
        (["--target-language", "de"], ("--target-language has no effect",)),
        (["-i", "-", "--format", "po"], ("--format has no effect on standard input", "--input")),
    ],
)
def test_bad_options_of_translate(call: Call, trained: Path, corpus: Path, words: list[str], parts: tuple[str]) -> None:
    done = call("translate", trained, "-i", corpus / "valid.en", *words)
    assert done.code == 2, done.err
    assert_one_sentence(done.err, *parts)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["translate", "FOLDER", "-i", "TEXT", "-o", "no/out"], ("no/out", "create the folder no first")),
        (["embed", "FOLDER", "-i", "TEXT", "-o", "no/out.npy"], ("no/out.npy", "create the folder no first")),
        (["explain", "FOLDER", "x", "--out", "no/x.html"], ("no/x.html", "create the folder no first")),
        (
            ["explain", "FOLDER", "x", "--json", "."],
            (". could not be written: Is a directory; it is a folder, give the name of a file.",),
        ),
        (["heads", "FOLDER", "--source", "TEXT", "--png", "TEXT/x.png"], ("x.png", "a part of the path is a file")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_outputs_are_checked_before_the_work(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], parts: tuple[str, ...]
) -> None:
    def opened(path: object) -> None:
        raise AssertionError("the model was opened first")

    monkeypatch.setattr("heedful.interop.open_folder", opened)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("Hello.\n", encoding="utf-8")
    done = call(*(word.replace("FOLDER", "model").replace("TEXT", "text") for word in words))
    assert done.code == 2
    assert_one_sentence(done.err, *parts)
    assert "room" not in done.err


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["train", "--source", "TEXT", "--target", "TEXT", "--out", "TEXT"], ("text is a file", "choose another one")),
        (["demo", "--out", "TEXT"], ("text is a file", "choose another --out")),
        (["train", "--resume", "--out", "."], ("holds no run to resume", "run.json", "the folder of an earlier run")),
        (["train", "--resume", "--out", "no"], ("no holds no run to resume", "start one without resume")),
        (["score", "model"], ("no corpus is given; give two line-aligned files (source and target)",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_say_what_to_do(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], parts: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("Hello.\n", encoding="utf-8")
    done = call(*(word.replace("TEXT", "text") for word in words))
    assert done.code == 2
    assert_one_sentence(done.err, *parts)


def test_a_closed_standard_input_reads_as_empty(trained: Path) -> None:
    import os

    done = process("translate", trained, preexec_fn=lambda: os.close(0))
    assert (done.code, done.out) == (0, ""), done.err


def test_unknown_options_are_explained(call: Call) -> None:
    done = call("translate", "--bream", "3")
    assert done.code == 2
    assert "--bream" in done.err
    assert "Traceback" not in done.err


def test_an_ensemble_needs_one_vocabulary(call: Call, trained: Path, corpus: Path, tmp_path: Path) -> None:
    assert call(*training(corpus, tmp_path / "y"), "text.vocab_size=500", "train.max_updates=1").code == 0
    done = call("translate", trained, tmp_path / "y", "-i", corpus / "valid.en")
    assert done.code == 2
    assert_one_sentence(done.err, "have different vocabularies")


def test_the_references_must_match(call: Call, trained: Path, corpus: Path) -> None:
    done = call("evaluate", trained, "--source", corpus / "valid.en", "--reference", corpus / "train.de")
    assert done.code == 2
    assert_one_sentence(done.err, "20", "160")


def test_settings_of_the_template_are_valid(call: Call, tmp_path: Path) -> None:
    done = call("settings")
    assert done.code == 0
    (tmp_path / "run.toml").write_text(done.out)
    assert_one_sentence(call("train", tmp_path / "run.toml", "--out", tmp_path / "x").err, "no corpus")


def test_the_main_rank_reports_an_error_first(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun ends the other ranks while they wait; one with an error of its own reports it after that."""
    waited: list[float] = []
    monkeypatch.setattr("heedful.cli.time.sleep", waited.append)
    for rank, world, waits in (("1", None, 0), ("1", "1", 0), ("0", "2", 0), ("1", "2", 1)):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", world) if world else monkeypatch.delenv("WORLD_SIZE", raising=False)
        done = call("train", "nowhere.toml", "--out", "out")
        assert done.code == 2 and len(waited) == waits
        assert_one_sentence(done.err, "nowhere.toml does not exist")
