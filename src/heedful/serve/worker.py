"""The worker process of one model: receives tasks through a pipe and sends events.

Alignments, attention, times of words, the explain page and HTML are side work. It uses a copy of the modules that
shares the weights, so that its hooks do not affect the searches.
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
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import GeneratorType
from typing import Any

from heedful.errors import HeedfulError
from heedful.inference.confidence import CONFIDENCE_FILE
from heedful.inference.native_choice import torch_notice
from heedful.inference.open_model import translator_type
from heedful.inference.restoring import needs_attention
from heedful.inference.results import SourcePart, Translation
from heedful.inference.source_trees import missing_trees_notice
from heedful.inference.translator import Translator
from heedful.interop import open_folder
from heedful.ops.threads import compute_with_one_thread, set_num_threads
from heedful.packages import explain_missing
from heedful.serve.file_work import read_file, write_file
from heedful.serve.logs import trace
from heedful.serve.messages import Counts, Event, MessageReader, WorkerTask, error_event, pack_messages
from heedful.serve.side_work import SideWork, Steps
from heedful.serve.translation_workload import TranslationWorkload, translations
from heedful.serve.workload import Workload
from heedful.storage.folder import ModelFolder, parameter_count, refuse_denoiser
from heedful.storage.weight_file import WeightFile
from heedful.text.text_sentences import SentenceTranslations

NICENESS = 10  # below the server process, which needs little CPU time but at once
BUSY_POLL_SECONDS = 0.01  # between two polls of the pipe while tasks are waiting
SWITCH_INTERVAL_SECONDS = 0.0005  # for sys.setswitchinterval: a search waits at most this long for the GIL
COUNTS_INTERVAL_SECONDS = 0.1  # between two "counts" events
Parts = list[list[SourcePart]]
NBestParts = list[list[list[Translation]]]


def run_process(pipe: socket.socket, folder: Path, threads: int, precision: str, shortlist: bool) -> None:
    """Serve a model until the server closes the pipe; signals are left to the server."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    set_num_threads(threads)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    gc.freeze()  # imported objects stay; scanning them would delay all requests
    code = 0
    try:
        serve_model(pipe, folder, precision, shortlist)
    except BaseException as error:
        print(trace(error), file=sys.stderr, flush=True)
        code = 1
    os._exit(code)  # without waiting for the side-work thread


def serve_model(pipe: socket.socket, folder: Path, precision: str = "float32", shortlist: bool = False) -> None:
    """Load a model, send "ready" (or "error"), and serve tasks."""
    try:
        with explain_missing(f"serving {folder}"):
            worker = Worker(pipe, open_folder(folder), precision, shortlist)
    except HeedfulError as error:
        pipe.sendall(pack_messages([Event(0, "error", str(error))]))
        return
    with contextlib.suppress(OSError):  # the server is gone
        worker.run()


class Worker:
    """A model, its workload and the pipe to the server."""

    def __init__(self, pipe: socket.socket, folder: ModelFolder, precision: str, shortlist: bool = False) -> None:
        self.pipe, self.folder, self.precision, self.shortlist = pipe, folder, precision, shortlist
        self.side_folder = _copy_modules(self.folder)
        self.workload = self._make_workload()
        self.tasks: dict[int, WorkerTask] = {}
        self.next_counts = 0.0  # when to send counts again
        self.send_lock = threading.Lock()
        self.side_work = SideWork(self.tasks.__contains__, self._finish)
        self.side_translator = self._make_side_translator()

    def run(self) -> None:
        self._send(Event(0, "ready", self._model_info()))
        reader = MessageReader()
        while (data := self._receive()) is not None:
            for message in reader(data):
                self._handle(message)
            if not self.workload.idle():
                self._report(self._steps())
        self.side_work.close()

    def _steps(self) -> list[Event]:
        """One step; while tasks are waiting, more steps before the next poll of the pipe."""
        events, end = self.workload.step(), time.monotonic() + BUSY_POLL_SECONDS
        while self.workload.waiting and time.monotonic() < end:
            events += self.workload.step()
        return events

    def _receive(self) -> bytes | None:
        """Bytes from the pipe, without waiting unless idle; None if the pipe is closed."""
        try:
            return self.pipe.recv(1 << 18, 0 if self.workload.idle() else socket.MSG_DONTWAIT) or None
        except BlockingIOError:
            return b""

    def _handle(self, message: WorkerTask | int) -> None:
        """Start a task, or cancel the one of this id."""
        if isinstance(message, int):
            self.tasks.pop(message, None)
            self.workload.cancel(message)
            return
        self.tasks[message.id] = message
        if steps := self._side_work_steps(message.payload):
            self.side_work.add(message.id, steps)
            return
        try:
            self.workload.add(message)
        except Exception as error:
            self._finish(error_event(message.id, error))

    def _report(self, events: list[Event]) -> None:
        """Send the events of a step; what needs alignments or times of words goes to side work first."""
        outgoing = []
        for event in events:
            if event.kind == "delta":
                outgoing.append(event)
            elif (task := self.tasks.get(event.task)) is None:
                continue
            elif event.kind == "done" and isinstance(event.value, GeneratorType):
                self.side_work.add(task.id, event.value)
            elif event.kind == "done" and self._needs_attention(task, event):
                self.side_work.add(task.id, self._complete(task, *event.value))
            else:
                del self.tasks[event.task]
                outgoing.append(Event(event.task, event.kind, self._result(task, event)))
        if time.monotonic() > self.next_counts or self.workload.idle():
            outgoing.append(Event(0, "counts", self.workload.counts))
            self.workload.counts, self.next_counts = Counts(), time.monotonic() + COUNTS_INTERVAL_SECONDS
        if outgoing:
            self._send(*outgoing)

    def _result(self, task: WorkerTask, event: Event) -> Any:
        """The value of an event; translations as dictionaries of the requested fields."""
        if event.kind != "done" or not isinstance(self.workload, TranslationWorkload):
            return event.value
        n_best, translator = task.payload.get("search", {}).get("n_best", 1), self.workload.translator
        sentences = zip(*event.value, strict=True)
        sure = bool(task.payload.get("confidence"))
        restored = [translator.restore(parts, hypotheses, n_best, False, sure) for parts, hypotheses in sentences]
        return translations(restored, task.payload["fields"])

    def _needs_attention(self, task: WorkerTask, event: Event) -> bool:
        """Whether translations need the attention of the model: for alignments, or to place placeholders."""
        if not isinstance(self.workload, TranslationWorkload):
            return False
        parts = (part for of_sentence in event.value[0] for part in of_sentence)
        return _is_aligned(task) or any(map(needs_attention, parts))

    def _finish(self, event: Event) -> None:
        if self.tasks.pop(event.task, None) is not None:
            self._send(event)

    def _send(self, *events: Event) -> None:
        with self.send_lock:
            self.pipe.sendall(pack_messages(events))

    # ---- side work

    def _side_work_steps(self, payload: dict[str, Any]) -> Steps | None:
        """The steps of a request that needs no search."""
        side_work: dict[str, Callable[..., Steps]] = {
            "explain": self._explain,
            "read_html": read_html,
            "write_html": write_html,
        }
        for name, steps in (side_work | {"read_file": read_file, "write_file": write_file}).items():
            if name in payload:
                return steps(**payload[name])
        return None

    def _complete(self, task: WorkerTask, parts: Parts, n_best_parts: NBestParts) -> Steps:
        """Put placeholders back and add alignments, and the attention weights behind them if requested.

        A step is one translation of one part.
        """
        translator, aligned = self.side_translator, _is_aligned(task)
        assert isinstance(translator, Translator)
        if not translator.engines:
            compute_with_one_thread()
        n_best, sure = task.payload.get("search", {}).get("n_best", 1), bool(task.payload.get("confidence"))
        restored: NBestParts = []
        for sentence_parts, hypotheses in zip(parts, n_best_parts, strict=True):
            restored.append([])
            for part, of_part in zip(sentence_parts, hypotheses, strict=True):
                done: list[Translation] = []
                for hypothesis in translator.align([part], [of_part]) if aligned else of_part:
                    done += translator.restore([part], [[hypothesis]], 1, aligned, sure)[0]
                    yield
                restored[-1].append(done or translator.restore([part], [[]], n_best, aligned, sure)[0])
        results = translations(restored, task.payload["fields"])
        if task.payload.get("attention"):
            for result, sentence_parts, hypotheses in zip(results, parts, n_best_parts, strict=True):
                for rank, translation in enumerate(result):
                    translation["attention"] = []
                    for part, of_part in zip(sentence_parts, hypotheses, strict=True):
                        if of_part:
                            translation["attention"].append(self._attention(translator, part, of_part[rank]))
                        yield
        return results

    def _attention(self, translator: Translator, part: SourcePart, translation: Translation) -> dict[str, Any]:
        weights = translator.attention(part, translation)[: len(translation.ids), : len(part.ids)]  # (T, S)
        return {
            "source_tokens": translator.source_tokenizer.pieces(part.ids),
            "target_tokens": list(translation.tokens),
            "weights": [[round(weight, 4) for weight in row] for row in weights.tolist()],
        }

    def _explain(self, text: str, target: str | None) -> Steps:
        """The explain page of a text."""
        yield
        compute_with_one_thread()
        from heedful.inside import explain  # imports matplotlib, which is slow

        name = Path(self.side_folder.path.name)  # error messages must not show the full path to clients
        folder = replace(self.side_folder, weights=self.side_folder.model, path=name)
        return explain(folder, text, target).html()

    # ---- the model

    def _make_workload(self) -> Workload:
        match self.folder.config.family:
            case "encoder-decoder" if self.folder.config.features:
                from heedful.inference.transcriber import Transcriber
                from heedful.serve.speech_workload import SpeechWorkload

                transcriber = Transcriber(self.folder, self.precision)
                side = transcriber if transcriber.engines else Transcriber(self.side_folder, self.precision)
                return SpeechWorkload(transcriber, side)
            case "encoder-decoder":
                refuse_denoiser(self.folder)
                kind = translator_type(self.folder)
                translator = kind([self.folder], self.precision, shortlist=self.shortlist)
                translator.notice = lambda text: None  # the log never mentions texts of users
                return TranslationWorkload(translator)
            case "decoder":
                from heedful.inference.generator import Generator
                from heedful.serve.generation_workload import GenerationWorkload

                return GenerationWorkload(Generator(self.folder, self.precision))
            case _:
                from heedful.inference.encoder import Encoder
                from heedful.serve.generation_workload import FillMaskWorkload

                encoder = Encoder(self.folder, self.precision)
                encoder.notice = lambda text: None
                return FillMaskWorkload(encoder)

    def _make_side_translator(self) -> Translator | None:
        """What aligns: the same engine with one thread, or modules of its own."""
        if not isinstance(self.workload, TranslationWorkload):
            return None
        translator = self.workload.translator
        if not translator.engines:
            return translator_type(self.side_folder)([self.side_folder], self.precision, threads=1)
        aligner = copy.copy(translator)
        aligner.threads = 1
        return aligner

    def _model_info(self) -> dict[str, Any]:
        """The description of the model for the server."""
        config = self.folder.config
        return {
            "task": task_of(self.folder),
            "parameters": parameter_count(self.folder.weights),
            "aligns": self.side_translator is not None and self.side_translator.aligns,
            "calibrated": config.family == "encoder-decoder" and (self.folder.path / CONFIDENCE_FILE).is_file(),
            "beam": self.folder.search.beam,
            "notices": {
                "model is computed by PyTorch": torch_notice([self.folder], precision=self.precision),
                "model gets no dependency trees": missing_trees_notice(self.folder),
            },
        }


def task_of(folder: ModelFolder) -> str:
    """What a model does for clients; of an encoder that fills no masks they see only the look inside."""
    config = folder.config
    if config.family == "decoder":
        return "write"
    if config.family == "encoder":
        return "fill" if config.head != "none" and folder.tokenizer.mask_id is not None else "inspect"
    if config.features:
        return "transcribe"
    return "summarize" if folder.task == "summarization" else "translate"


def _is_aligned(task: WorkerTask) -> bool:
    return bool(task.payload.get("alignments") or task.payload.get("attention"))


def read_html(texts: Sequence[str]) -> Steps:
    """The text of each block of each HTML document, and whether any block has inline tags."""
    from heedful.formats.html import parse_blocks
    from heedful.formats.segment import TaggedText
    from heedful.formats.tag_placement import line_breaks_to_spaces

    blocks = []
    for text in texts:
        yield
        blocks.append([item for item in parse_blocks(text) if isinstance(item, TaggedText)])
    tagged = any(block.tags for of_text in blocks for block in of_text)
    return [[line_breaks_to_spaces(block.text) for block in of_text] for of_text in blocks], tagged


def write_html(texts: Sequence[str], blocks: Sequence[Sequence[SentenceTranslations]], n_best: int) -> Steps:
    """The n-best translations of each HTML document."""
    from heedful.formats.html import replace_blocks

    documents: list[list[str]] = []
    for text, of_text in zip(texts, blocks, strict=True):
        documents.append([])
        for rank in range(n_best):
            yield
            documents[-1].append(replace_blocks(text, of_text, rank))
    return documents


def _copy_modules(folder: ModelFolder) -> ModelFolder:
    """The same weights in new modules; weights that are only on disk are read when they are first used."""
    copied = copy.copy(folder)
    if not isinstance(copied.weights, WeightFile):
        shared = [*copied.weights.parameters(), *copied.weights.buffers()]
        copied.weights = copy.deepcopy(copied.weights, {id(tensor): tensor for tensor in shared})
    return copied
