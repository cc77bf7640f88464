"""The process of one model: tasks come in through a pipe, events go out.

Alignments, attention, looks inside and HTML are side work. A copy of the model that shares its weights computes it, so
that hooks on its modules do not reach the searches.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from heedful.errors import HeedfulError, SettingError
from heedful.inference.results import SourcePart, Translation
from heedful.inference.translator import Translator
from heedful.interop import open_folder
from heedful.ops.threads import compute_with_one_thread, set_num_threads
from heedful.serve.logs import trace
from heedful.serve.messages import Counts, Event, MessageReader, WorkerTask, packed
from heedful.serve.side_work import SideWork, Steps
from heedful.serve.text_sentences import Translated
from heedful.serve.translation import TranslationWorkload, Workload, translations
from heedful.storage.folder import ModelFolder, parameter_count
from heedful.storage.weight_file import WeightFile

POLITE = 10  # how much the model gives way to the server, which has to answer at once and needs little
CROWDED = 0.01  # seconds between two looks at the pipe, if more is asked for than is done at once
SWITCH = 0.0005  # seconds for which Python may keep a search from going on
COUNTING = 0.1  # seconds between two words about how much was done
Parts = list[list[SourcePart]]
Found = list[list[list[Translation]]]


def process(pipe: socket.socket, folder: Path, threads: int, precision: str, shortlist: bool) -> None:
    """Be the process of a model until the other end of the pipe is closed; signals are meant for the server."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(POLITE)
    set_num_threads(threads)
    sys.setswitchinterval(SWITCH)
    gc.freeze()  # what was imported stays: looking through it again and again would hold up all requests
    code = 0
    try:
        serve(pipe, folder, precision, shortlist)
    except BaseException as error:
        print(trace(error), file=sys.stderr, flush=True)
        code = 1
    os._exit(code)  # nobody waits for what is still computed aside


def serve(pipe: socket.socket, folder: Path, precision: str = "float32", shortlist: bool = False) -> None:
    """Open a model, say so, and work."""
    try:
        worker = Worker(pipe, open_folder(folder), precision, shortlist)
    except HeedfulError as error:
        pipe.sendall(packed([Event(0, "error", str(error))]))
        return
    with contextlib.suppress(OSError):  # the server is gone
        worker.run()


class Worker:
    """A model, its work, and the pipe."""

    def __init__(self, pipe: socket.socket, folder: ModelFolder, precision: str, shortlist: bool = False) -> None:
        self.pipe, self.folder, self.precision, self.shortlist = pipe, folder, precision, shortlist
        self.work = self._work()
        self.tasks: dict[int, WorkerTask] = {}
        self.counting = 0.0  # when to say again what was done
        self.sending = threading.Lock()
        self.side_work = SideWork(self.tasks.__contains__, self._end)
        self.seen = _aside(self.folder)
        self.shown = self._shared()

    def run(self) -> None:
        self._send(Event(0, "ready", self._card()))
        unpacked = MessageReader()
        while (data := self._received()) is not None:
            for message in unpacked(data):
                self._take(message)
            if not self.work.idle():
                self._report(self._steps())
        self.side_work.close()

    def _steps(self) -> list[Event]:
        """One step, or as many as are done in no time: where some wait anyway, the pipe can wait for so long too."""
        events, end = self.work.step(), time.monotonic() + CROWDED
        while self.work.waiting and time.monotonic() < end:
            events += self.work.step()
        return events

    def _received(self) -> bytes | None:
        """What has come meanwhile, or will come if there is nothing to do; None at the end."""
        try:
            return self.pipe.recv(1 << 18, 0 if self.work.idle() else socket.MSG_DONTWAIT) or None
        except BlockingIOError:
            return b""

    def _take(self, message: WorkerTask | int) -> None:
        if isinstance(message, int):
            self.tasks.pop(message, None)
            self.work.cancel(message)
            return
        self.tasks[message.id] = message
        if steps := self._steps_aside(message.asked):
            self.side_work.add(message.id, steps)
            return
        try:
            self.work.add(message)
        except SettingError as error:
            self._end(Event(message.id, "error", str(error)))
        except Exception as error:
            self._end(Event(message.id, "failed", trace(error)))

    def _report(self, events: list[Event]) -> None:
        """Say all that a step brought about at once, but what needs another look."""
        said = []
        for event in events:
            if event.kind == "piece":
                said.append(event)
            elif (task := self.tasks.get(event.task)) is None:
                continue
            elif event.kind == "done" and (task.asked.get("alignments") or task.asked.get("attention")):
                parts, found = event.value
                self.side_work.add(task.id, self._looked_at(task, parts, found))
            else:
                del self.tasks[event.task]
                said.append(Event(event.task, event.kind, self._plain(task, event)))
        if time.monotonic() > self.counting or self.work.idle():
            said.append(Event(0, "counts", self.work.counts))
            self.work.counts, self.counting = Counts(), time.monotonic() + COUNTING
        if said:
            self._send(*said)

    def _plain(self, task: WorkerTask, event: Event) -> Any:
        """What a step found, as plain data."""
        translated = event.kind == "done" and isinstance(self.work, TranslationWorkload)
        return translations(event.value[1], task.asked["fields"]) if translated else event.value

    def _end(self, event: Event) -> None:
        if self.tasks.pop(event.task, None) is not None:
            self._send(event)

    def _send(self, *events: Event) -> None:
        with self.sending:
            self.pipe.sendall(packed(events))

    # ---- side work

    def _steps_aside(self, asked: dict[str, Any]) -> Steps | None:
        """What is asked for, if it needs no search."""
        for name, steps in (("look", self._look), ("read_html", read_html), ("write_html", write_html)):
            if name in asked:
                return steps(**asked[name])
        return None

    def _looked_at(self, task: WorkerTask, parts: Parts, found: Found) -> Steps:
        """Translations with their alignments, and with the attention that these were read off if it is asked for.

        A step is one translation of one part.
        """
        compute_with_one_thread()
        translator = self.shown
        assert isinstance(translator, Translator)
        aligned: Found = []
        for pieces, ways in zip(parts, found, strict=True):
            each = translator.align(pieces, ways)
            aligned.append([[] for _ in ways])
            for place, way in enumerate(ways):
                for _ in way:
                    aligned[-1][place].append(next(each))
                    yield
        answer = translations(aligned, task.asked["fields"])
        if task.asked.get("attention"):
            for sentence, pieces, ways in zip(answer, parts, aligned, strict=True):
                for rank, translation in enumerate(sentence):
                    translation["attention"] = []
                    for part, way in zip(pieces, ways, strict=True):
                        translation["attention"].append(self._attention(translator, part, way[rank]))
                        yield
        return answer

    def _attention(self, translator: Translator, part: SourcePart, found: Translation) -> dict[str, Any]:
        weights = translator.attention(part, found)[: len(found.ids), : len(part.ids)]  # (T, S)
        return {
            "source_tokens": translator.source_tokenizer.pieces(part.ids),
            "target_tokens": list(found.tokens),
            "weights": [[round(weight, 4) for weight in row] for row in weights.tolist()],
        }

    def _look(self, text: str, target: str | None) -> Steps:
        """The page that shows the model at work on a text."""
        yield
        compute_with_one_thread()
        from heedful.inside import explain  # matplotlib takes its time

        name = Path(self.seen.path.name)  # where it stands is nobody's business, should it be said what is wrong
        folder = replace(self.seen, weights=self.seen.model, path=name)
        return explain(folder, text, target).html()

    # ---- the model

    def _work(self) -> Workload:
        match self.folder.config.family:
            case "encoder-decoder":
                translator = Translator([self.folder], self.precision, shortlist=self.shortlist)
                translator.notice = lambda text: None  # a server says nothing about the texts of its users
                return TranslationWorkload(translator)
            case "decoder":
                from heedful.inference.generator import Generator
                from heedful.serve.generation import GenerationWorkload

                return GenerationWorkload(Generator(self.folder, self.precision))
            case _:
                from heedful.inference.encoder import Encoder
                from heedful.serve.generation import FillMaskWorkload

                encoder = Encoder(self.folder, self.precision)
                encoder.notice = lambda text: None
                return FillMaskWorkload(encoder)

    def _shared(self) -> Translator | None:
        if self.folder.config.family != "encoder-decoder":
            return None
        return Translator([self.seen], self.precision)

    def _card(self) -> dict[str, Any]:
        """What the server has to know of the model."""
        config = self.folder.config
        mask = self.folder.tokenizer.mask_id
        return {
            "family": config.family,
            "parameters": parameter_count(self.folder.weights),
            "aligns": config.architecture != "rnn" or config.source_attention != "none",
            "fills": config.family == "encoder" and config.head != "none" and mask is not None,
        }


def read_html(texts: Sequence[str]) -> Steps:
    """The texts of the blocks of each HTML text, and whether any of them has tags."""
    from heedful.serve.html import HtmlBlock, plain, read

    blocks = []
    for text in texts:
        yield
        blocks.append([each for each in read(text) if isinstance(each, HtmlBlock)])
    tagged = any(block.tags for each in blocks for block in each)
    return [[plain(block.text) for block in each] for each in blocks], tagged


def write_html(texts: Sequence[str], found: Sequence[Sequence[Translated]], n_best: int) -> Steps:
    """Each HTML text with its blocks translated, best first."""
    from heedful.serve.html import rewrite

    whole: list[list[str]] = []
    for text, blocks in zip(texts, found, strict=True):
        whole.append([])
        for rank in range(n_best):
            yield
            whole[-1].append(rewrite(text, blocks, rank))
    return whole


def _aside(folder: ModelFolder) -> ModelFolder:
    """The same weights in modules of their own; what is only on disk is read once it is looked at."""
    aside = copy.copy(folder)
    if not isinstance(aside.weights, WeightFile):
        shared = [*aside.weights.parameters(), *aside.weights.buffers()]
        aside.weights = copy.deepcopy(aside.weights, {id(tensor): tensor for tensor in shared})
    return aside
