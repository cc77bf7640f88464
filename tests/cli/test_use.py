"""`heedful translate`, `evaluate` and `score`: lines in, lines out, the same from every entry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from heedful.inference.translator import Translator
from heedful.native import library
from tests.cli.conftest import Call, process


@pytest.fixture(scope="module")
def lines(corpus: Path) -> list[str]:
    return (corpus / "valid.en").read_text(encoding="utf-8").splitlines()[:12]


def test_n_lines_in_n_lines_out_and_empty_stays_empty(trained: Path, lines: list[str]) -> None:
    text = [lines[0], "", lines[1], "   ", lines[0], "a\u2028b \u0085 c", lines[2]]
    done = process("translate", trained, stdin="\n".join(text).encode())
    assert done.code == 0, done.err
    out = done.out.split("\n")
    assert len(out) == len(text) + 1
    assert (out[1], out[3], out[-1]) == ("", "", "")
    assert out[0] == out[4]
    assert out[:1] + out[2:3] == Translator.load(trained).translate([lines[0], lines[1]])


@pytest.mark.skipif(library() is None, reason="there is no compiled engine")
def test_the_engine_translates_without_torch(trained: Path, lines: list[str]) -> None:
    code = (
        "import atexit, sys; sys.argv = ['heedful', *sys.argv[1:]]\n"
        "atexit.register(lambda: print('torch' in sys.modules, file=sys.stderr))\n"
        "from heedful.cli import main; main()"
    )
    words = [sys.executable, "-c", code, "translate", str(trained), "--threads", "1", "--n-best", "2", "--prefix", "a"]
    done = subprocess.run(words, input="\n".join(lines), capture_output=True, text=True, check=True)
    assert done.stderr == "False\n"
    assert len(done.stdout.split("\n")[:-1]) == 2 * len(lines)


def test_no_lines_in_no_lines_out(trained: Path) -> None:
    assert process("translate", trained, stdin=b"").out == ""


def test_options_give_scores_alignments_and_n_best(call: Call, trained: Path, lines: list[str], tmp_path: Path) -> None:
    source = tmp_path / "in.en"
    source.write_text("".join(f"{line}\n" for line in lines[:3]), encoding="utf-8")
    fields = [
        line.split("\t")
        for line in call("translate", trained, "-i", source, "--scores", "--alignments").out.split("\n")[:-1]
    ]
    assert len(fields) == 3
    for line, (score, text, alignment) in zip(lines, fields, strict=False):
        assert float(score) < 0
        for link in alignment.split():
            left, right = map(int, link.split("-"))
            assert left < len(line.split())
            assert right < len(text.split())
    n_best = [
        line.split(" ||| ") for line in call("translate", trained, "-i", source, "--n-best", 3).out.split("\n")[:-1]
    ]
    assert [fields[0] for fields in n_best] == ["0"] * 3 + ["1"] * 3 + ["2"] * 3
    totals = [float(fields[3]) for fields in n_best[:3]]
    assert totals == sorted(totals, reverse=True)


def test_a_prefix_is_kept_and_sampling_repeats_with_its_seed(
    call: Call, trained: Path, lines: list[str], tmp_path: Path
) -> None:
    source = tmp_path / "in.en"
    source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    forced = call("translate", trained, "-i", source, "--prefix", "Der Hund").out.split("\n")[:-1]
    assert len(forced) == len(lines)
    assert all(line.startswith("Der Hund") for line in forced)
    sampled = [call("translate", trained, "-i", source, "--sample", "--seed", seed).out for seed in (1, 1, 2)]
    assert sampled[0] == sampled[1] != sampled[2]
    greedy = call("translate", trained, "-i", source, "--beam", 1, "--no-loop-guard").out
    assert call("translate", trained, "-i", source, "--sample", "--top-k", 1).out == greedy


def test_an_ensemble_of_a_model_with_itself_is_the_model(call: Call, trained: Path, corpus: Path) -> None:
    source = corpus / "valid.en"
    assert call("translate", trained, trained, "-i", source).out == call("translate", trained, "-i", source).out


def test_the_output_file_and_gzip(call: Call, trained: Path, corpus: Path, tmp_path: Path) -> None:
    import gzip

    zipped = tmp_path / "in.gz"
    zipped.write_bytes(gzip.compress((corpus / "valid.en").read_bytes()))
    assert call("translate", trained, "-i", zipped, "-o", tmp_path / "out").out == ""
    assert (tmp_path / "out").read_text(encoding="utf-8") == call("translate", trained, "-i", corpus / "valid.en").out


def test_a_long_line_is_split_with_a_notice(call: Call, trained: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.en"
    source.write_text("The dog sleeps. " * 200 + "\nThe cat.\n", encoding="utf-8")
    done = call("translate", trained, "-i", source, "--beam", 1, "--max-length", 4)
    assert done.out.count("\n") == 2
    assert "line 1 has" in done.err


def test_a_closed_pipe_is_no_error(trained: Path, corpus: Path) -> None:
    command = f"{sys.executable} -m heedful translate {trained} -i {corpus / 'train.en'} --n-best 2 | head -n 1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 1, "")


@pytest.mark.parametrize(
    "words", [["translate", "nowhere"], ["translate", "--unknown"], ["demo", "--out", "/dev/null/x"]]
)
def test_an_error_that_has_no_reader_exits_with_2(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "heedful", *words], stderr=writer, check=False)
    os.close(writer)
    assert done.returncode == 2


def test_ctrl_c_while_modules_are_imported_leaves_no_traceback() -> None:
    code = (
        "import signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(name, path, target=None):\n"
        "        if name == 'typer': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from heedful.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_closed_pipe_ends_a_training_run_without_an_error(corpus: Path, tmp_path: Path) -> None:
    files = f"--source {corpus / 'train.en'} --target {corpus / 'train.de'} --out {tmp_path / 'run'}"
    command = f"{sys.executable} -m heedful train {files} 2>&1 | head -n 1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 1, "")


def test_evaluate_agrees_with_sacrebleu_run_by_itself(call: Call, trained: Path, corpus: Path) -> None:
    import sacrebleu

    source, reference = corpus / "valid.en", corpus / "valid.de"
    done = call("evaluate", trained, "--source", source, "--reference", reference, "--json")
    result = json.loads(done.out)
    translated = call("translate", trained, "-i", source).out.split("\n")[:-1]
    references = [reference.read_text(encoding="utf-8").splitlines()]
    assert result["bleu"] == pytest.approx(sacrebleu.corpus_bleu(translated, references).score)
    assert result["chrf"] == pytest.approx(sacrebleu.corpus_chrf(translated, references).score)
    assert result["ter"] == pytest.approx(sacrebleu.corpus_ter(translated, references).score)
    assert result["sentences"] == len(translated)
    assert result["signatures"]["BLEU"].startswith("nrefs:1|case:mixed|eff:no|tok:13a")
    assert result["sentences_per_second"] > 0
    table = call("evaluate", trained, "--source", source, "--reference", reference).out
    assert f"{result['bleu']:.2f}" in table
    assert result["signatures"]["TER"] in table


def test_scores_are_the_log_probabilities_of_one_pair_after_the_other(call: Call, trained: Path, corpus: Path) -> None:
    translator = Translator.load(trained)
    model, tokenizer = translator.modules[0], translator.tokenizer
    expected = []
    sides = [(corpus / name).read_text(encoding="utf-8").split("\n")[:-1] for name in ("valid.en", "valid.de")]
    for pair in zip(*sides, strict=True):
        source, target = (tokenizer.encode(text) for text in pair)
        with torch.no_grad():
            hidden = model(torch.tensor([[*source, tokenizer.eos_id]]), torch.tensor([[tokenizer.bos_id, *target]]))
            log_probs = model.project(hidden)[0].double().log_softmax(-1)
        expected.append(sum(float(log_probs[i, id]) for i, id in enumerate([*target, tokenizer.eos_id])))
    scored = call("score", trained, "--source", corpus / "valid.en", "--target", corpus / "valid.de").out.split()
    assert [float(value) for value in scored] == pytest.approx(expected, abs=1e-3)


def test_python_m_heedful_and_the_script_are_the_same_program() -> None:
    script = Path(sys.executable).parent / "heedful"
    if not script.exists():
        pytest.skip("heedful is not installed as a script")
    by_script = subprocess.run([script, "--help"], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert by_script.stdout == process("--help").out


def test_the_list_of_commands_fits_a_terminal_of_80_columns(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    summaries = call("--help").out.partition("Commands:\n")[2].splitlines()
    assert len(summaries) > 20 and [line for line in summaries if not line.endswith(".") or line.endswith("...")] == []


def test_a_shell_completes_commands_and_options(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_HEEDFUL_COMPLETE", "complete_bash")
    for words, place, completions in (
        ("heedful tran", 1, ["translate", "transcribe"]),
        ("heedful score --so", 2, ["--source"]),
    ):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(place))
        done = call()
        assert (done.code, done.out.split()) == (0, completions), done.err
