"""A model folder at every entry point: opened, used as the commands use it, and used as the server's worker does."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path
from typing import Any

from heedful import interop
from heedful.errors import HeedfulError
from heedful.inference.encoder import Encoder
from heedful.inference.generator import Generator
from heedful.inference.translator import Translator
from heedful.serve.languages import guess_language_pair
from heedful.serve.messages import Event, MessageReader, WorkerTask
from heedful.serve.worker import Worker
from heedful.storage.folder import ModelFolder

TEXTS = [
    "A man plays in the garden.",
    "",
    "Zwei Kinder, ｆｕｌｌ 日本 – it's ①! ￹ e\u0301\u0327",
    "</s>  the   town\t<unk> ﷺ 🙂",
]
SENTENCES = ("HeedfulError <", "FolderError <")  # what the log says of an error that was explained
MOST_STEPS = 300  # of the worker, for a few short texts


def use(path: Path) -> None:
    """Open the folder and compute with it; raise what a command would raise."""
    folder = interop.open_folder(path)
    guess_language_pair(path.name, path)
    match folder.config.family:
        case "encoder-decoder":
            translator = Translator([folder], "auto", threads=1, shortlist=(path / "shortlist.safetensors").exists())
            translator.notice = lambda text: None
            translator.translate(TEXTS, max_length=8, beam=2)
            translator.source_tokenizer.normalize(TEXTS[2])
            translator.score([("the town", "die Stadt")])
        case "decoder":
            generator = Generator(folder)
            for text in TEXTS:
                generator.generate(text, max_tokens=4)
        case _:
            encoder = Encoder(folder)
            encoder.notice = lambda text: None
            encoder.embed(TEXTS)
            if folder.config.labels:
                encoder.classify(TEXTS)


def serve(path: Path) -> None:
    """Let a worker of the server answer; raise what it would not survive, or what it takes for a bug of ours."""
    actual, expected = socket.socketpair()
    with actual, expected:
        folder = interop.open_folder(path)
        worker = Worker(actual, folder, "auto" if folder.config.family == "encoder-decoder" else "float32")
        for number, requested in enumerate(_requests(worker.folder), 1):
            worker._handle(WorkerTask(number, requested))
            for _ in range(MOST_STEPS):
                if worker.workload.idle():
                    break
                worker._report(worker._steps())
            assert worker.workload.idle(), "the worker does not come to an end"
            end = time.monotonic() + 60
            while worker.tasks and time.monotonic() < end:  # placeholders are put back on another thread
                time.sleep(0.01)
            assert not worker.tasks, "the side work does not come to an end"
        worker.side_work.close()
        if worker.side_work.thread.ident is not None:
            worker.side_work.thread.join(60)
        expected.setblocking(False)
        _check(expected)


def _requests(folder: ModelFolder) -> list[dict[str, Any]]:
    match folder.config.family:
        case "encoder-decoder":
            return [{"texts": TEXTS, "fields": ("text", "tokens"), "search": {"beam": 2, "max_length": 8}}]
        case "decoder":
            return [{"prompt": text, "n": 1, "max_tokens": 4} for text in TEXTS]
        case _:
            mask = folder.tokenizer.mask_id
            if mask is None or folder.config.head == "none":
                return []
            blank = folder.tokenizer.pieces([mask])[0]
            return [{"text": f"the {blank} {text}", "top": 2} for text in TEXTS]


def _check(pipe: socket.socket) -> None:
    unpacked = MessageReader()
    with contextlib.suppress(BlockingIOError):
        while data := pipe.recv(1 << 18):
            for event in unpacked(data):
                assert isinstance(event, Event)
                if event.kind == "failed" and not event.value.startswith(SENTENCES):
                    raise RuntimeError(event.value)
                if event.kind in ("failed", "error"):
                    raise HeedfulError(f"the model failed: {event.value}.".replace("..", "."))
