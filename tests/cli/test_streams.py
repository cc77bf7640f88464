"""What commands write: whole lines whatever happens, nothing lost before there is something to write, a bar."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from heedful.cli.progress import _count_lines
from heedful.cli.streams import DASH, input_lines, output_lines
from heedful.errors import FolderError, SettingError
from heedful.inference.translator import Translator
from tests.cli.conftest import Call
from tests.cli.test_errors import assert_one_sentence


class Interrupted(io.StringIO):
    """Ctrl-C comes when half of a line is out."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def reconfigure(self, **options: object) -> None:
        pass

    def write(self, text: str) -> int:
        super().write(text[: len(text) // 2])
        for _ in range(self.times if self.getvalue().count("\n") == 2 else 0):
            signal.raise_signal(signal.SIGINT)
        return super().write(text[len(text) // 2 :])


@pytest.mark.parametrize(("times", "expected"), [(1, "first\nsecond\nthird\n"), (2, "first\nsecond\nthi")])
def test_ctrl_c_waits_for_the_end_of_a_line_once(monkeypatch: pytest.MonkeyPatch, times: int, expected: str) -> None:
    out = Interrupted(times)
    monkeypatch.setattr(sys, "stdout", out)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), output_lines(DASH) as put:
        for line in ("first", "second", "third", "fourth"):
            put(line)
    assert out.getvalue() == expected
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_between_lines_ends_at_once_and_may_be_ignored(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), output_lines(tmp_path / "out") as put:
        put("first")
        signal.raise_signal(signal.SIGINT)
    assert (tmp_path / "out").read_text() == "first\n"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with output_lines(tmp_path / "out") as put:
            put("first")
            signal.raise_signal(signal.SIGINT)
            put("second")
    finally:
        assert signal.signal(signal.SIGINT, before) is signal.SIG_IGN
    assert (tmp_path / "out").read_text() == "first\nsecond\n"


def test_every_line_is_flushed_when_it_is_written(tmp_path: Path) -> None:
    with output_lines(tmp_path / "out") as put:
        for number in range(1, 4):
            put("é" * number)
            assert (tmp_path / "out").read_text(encoding="utf-8").count("\n") == number


def test_an_output_file_is_unchanged_after_an_error(tmp_path: Path, call: Call, trained: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    out.write_text("mine")
    for wrong in (["-i", tmp_path / "nowhere"], ["-i", corpus / "valid.en", "--beam", 0], ["-i", out, "--n-best", 0]):
        assert call("translate", trained, *wrong, "-o", out).code == 2
        assert out.read_text() == "mine"
    (tmp_path / "empty").touch()
    assert call("translate", trained, "-i", tmp_path / "empty", "-o", out).code == 0
    assert out.read_text() == ""


def test_an_input_file_is_refused_as_output(
    tmp_path: Path, call: Call, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "in"
    source.write_text("The dog sleeps.\n")
    (tmp_path / "link").symlink_to(source)
    done = call("translate", trained, "-i", source, "-o", tmp_path / "link")
    assert done.code == 2
    assert_one_sentence(done.err, "link is both input and output", "another")
    done = call("align", trained, "--source", source, "--target", source, "--out", tmp_path / "link")
    assert done.code == 2
    assert_one_sentence(done.err, "link is both input and output")
    monkeypatch.setattr("os.fstat", lambda number: source.stat())
    with pytest.raises(SettingError, match="is both input and output"), output_lines(source, DASH):
        pass
    assert source.read_text() == "The dog sleeps.\n"


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    message = r"/dev/full could not be written to after 0 lines: No space left"
    with pytest.raises(FolderError, match=message), output_lines(Path("/dev/full")) as put:
        put("first")
    code = (
        "import sys; from heedful.cli.streams import DASH, output_lines\n"
        "try:\n"
        "    with output_lines(DASH) as put: put('first')\n"
        "except Exception as error: sys.exit(f'error: {error}')"
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == (
        "error: standard output could not be written to after 0 lines: No space left on device;"
        " free some space or choose another path, and run again.\n"
    )
    assert done.returncode == 1


def test_standard_output_may_be_closed_or_full() -> None:
    run = f"{sys.executable} -m heedful settings"
    done = subprocess.run(f"{run} >&-", shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(f"{run} > /dev/full", shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert_one_sentence(done.stderr, "No space left")


@pytest.mark.parametrize(
    "blocks", [[], [b"a\n"], [b"a"], [b"\n\n"], [b"a", b"b\nc", b"d", b"\n"], [b"a\n" * 99_999 + b"z"]]
)
def test_standard_input_has_the_lines_of_a_file(blocks: list[bytes]) -> None:
    actual, reference = os.pipe()
    before = os.dup(0)
    os.dup2(actual, 0)

    def write() -> None:
        with os.fdopen(reference, "wb") as pipe:
            for block in blocks:
                pipe.write(block)
                pipe.flush()
                time.sleep(0.01)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert list(input_lines(DASH)) == [line.decode().removesuffix("\n") for line in io.BytesIO(b"".join(blocks))]
    finally:
        writer.join()
        os.dup2(before, 0)
        os.close(before)
        os.close(actual)


@pytest.mark.parametrize("options", [["--workers", "1"], ["--workers", "2"], ["--sample"], ["--precision", "bfloat16"]])
def test_a_translation_is_written_before_the_next_line_arrives(trained: Path, options: list[str]) -> None:
    lines = ["The dog sleeps.", "", "The old man reads a book.", "  ", "", "The dog sleeps."]
    with subprocess.Popen(
        [sys.executable, "-m", "heedful", "translate", str(trained), "--beam", "1", "--prefix", "Der", *options],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        try:
            result = []
            for line in lines:
                process.stdin.write(f"{line}\n".encode())
                process.stdin.flush()
                assert select.select([process.stdout], [], [], 60)[0], f"nothing came after {line!r}"
                result.append(process.stdout.readline().decode().removesuffix("\n"))
            process.stdin.close()
            assert process.stdout.read() == b"" and process.wait(60) == 0
        finally:
            process.kill()
    assert [line.startswith("Der") for line in result] == [bool(line.strip()) for line in lines]
    if options[0] == "--workers":
        assert result == Translator.load(trained).translate(lines, beam=1, prefix="Der")


def test_ctrl_c_ends_a_program_that_waits_for_a_line(trained: Path) -> None:
    words = ["translate", str(trained), "--threads", "2", "--precision", "float32"]
    with subprocess.Popen(
        [sys.executable, "-m", "heedful", *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        try:
            process.stdin.write(b"The dog sleeps.\n")
            process.stdin.flush()
            assert process.stdout.readline()
            time.sleep(1)  # until there is nothing left to do but to wait
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
            assert b"Traceback" not in process.stderr.read()
        finally:
            process.kill()


@pytest.mark.parametrize(("text", "count"), [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n\n", 2)])
def test_an_unterminated_last_line_is_counted(tmp_path: Path, text: str, count: int) -> None:
    (tmp_path / "in").write_text(text)
    assert _count_lines(tmp_path / "in") == count
    assert _count_lines(tmp_path / "in.gz") is None
    assert _count_lines(tmp_path / "nowhere") is None
    os.mkfifo(tmp_path / "pipe")
    assert _count_lines(tmp_path / "pipe") is None


def read(terminal: int, seconds: float) -> Iterator[str]:
    """What has appeared on a terminal, again and again."""
    seen, until = b"", time.monotonic() + seconds
    while time.monotonic() < until:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                seen += os.read(terminal, 1 << 16)
            except OSError:  # nobody writes there any more
                break
        yield seen.decode(errors="replace")


@pytest.mark.parametrize("where", ["a file", "a pipe"])
def test_a_long_file_shows_a_bar_and_ctrl_c_leaves_whole_lines(
    trained: Path, corpus: Path, tmp_path: Path, where: str
) -> None:
    lines = (corpus / "train.en").read_text(encoding="utf-8").splitlines()
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines) * 1000, encoding="utf-8")
    terminal, reference = pty.openpty()
    words = ["-i", tmp_path / "in", "--workers", "2", *(["-o", tmp_path / "out"] if where == "a file" else [])]
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "heedful", "translate", trained, *words],
            stdout=subprocess.DEVNULL if where == "a file" else out, stderr=reference,
            env=os.environ | {"OMP_NUM_THREADS": "1", "TERM": "xterm", "COLUMNS": "150"},
        )  # fmt: skip
    os.close(reference)
    try:
        bar = r"engine.* [1-9]\d*/160000\S* [\d,]+ lines/s \S*\d:\d\d:\d\d"
        assert any(re.search(bar, seen) for seen in read(terminal, 120))
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        for seen in read(terminal, 60):
            last = seen
        assert process.wait(60) == 130
        assert time.monotonic() - began < 20
    finally:
        process.kill()
        os.close(terminal)
    assert "Traceback" not in last
    result = (tmp_path / "out").read_text(encoding="utf-8")
    assert result.endswith("\n")
    written = result.split("\n")[:-1]
    assert 0 < len(written) < 160_000
    some = len(written[:500])
    assert written[:some] == (Translator.load(trained).translate(lines) * 4)[:some]
    assert written[-1] in Translator.load(trained).translate(lines)
