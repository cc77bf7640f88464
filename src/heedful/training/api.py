"""Training as a function: `heedful.train(...)`, and what the command `heedful train` calls.

A run from Python and a run from the command line are the same run: same settings, same folder, same resume.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import torch
from rich.console import Console

from heedful.config import SECTIONS, RunConfig, validate_section
from heedful.config.loading import TaskName
from heedful.config.presets import Preset
from heedful.errors import DataError, SettingError, quote
from heedful.packages import require
from heedful.storage.atomic import atomic_write, explain_os_errors
from heedful.storage.folder import load_folder
from heedful.training.checkpoint import TrainState
from heedful.training.loop import train as run_loop
from heedful.training.run_report import CURVE, Callback, RunReport, duration
from heedful.training.setup import cache_folder, open_run
from heedful.training.tasks.task import Task

if TYPE_CHECKING:
    from heedful.inference.encoder import Encoder
    from heedful.inference.generator import Generator
    from heedful.inference.summarizer import Summarizer
    from heedful.inference.transcriber import Transcriber
    from heedful.inference.translator import Translator

File = str | os.PathLike[str]
Files = File | Sequence[File]
Rows = Files | Iterable[Sequence[str]]  # files, or rows of the columns of a TSV file
FILE_OPTIONS = ("source", "target", "valid_source", "valid_target", "text", "valid_text")
ROW_OPTIONS = ("pairs", "labeled", "audio", "valid_pairs", "valid_labeled", "valid_audio")


@overload
def train(*, pairs: Rows, task: Literal["summarization"], out: File, **options: Any) -> Summarizer: ...
@overload
def train(*, text: Files, task: Literal["denoising"], out: File, **options: Any) -> Translator: ...
@overload
def train(*, source: File, target: File, out: File, **options: Any) -> Translator: ...
@overload
def train(*, pairs: Rows, out: File, **options: Any) -> Translator: ...
@overload
def train(*, text: Files, task: Literal["language-model"], out: File, **options: Any) -> Generator: ...
@overload
def train(*, text: Files, task: Literal["masked-lm"], out: File, **options: Any) -> Encoder: ...
@overload
def train(*, labeled: Rows, out: File, **options: Any) -> Encoder: ...
@overload
def train(*, audio: Rows, out: File, **options: Any) -> Transcriber: ...
@overload
def train(
    config: RunConfig | None = None, *, out: File, **options: Any
) -> Translator | Generator | Encoder | Transcriber: ...
def train(
    config: RunConfig | None = None,
    *,
    out: File,
    task: TaskName | type[Task] | None = None,
    init: File | None = None,
    time: str | None = None,
    preset: Preset | None = None,
    resume: bool = False,
    callback: Callback | None = None,
    **options: Any,
) -> Translator | Generator | Encoder | Transcriber:
    """Train a model, and return it: what `heedful train` does, with the same run folder and the same resume.

    `out` is the run folder. The data are `source` and `target` (line files), `pairs` (files or folders of pairs, or an
    iterable of (source, target) pairs), `text` (plain text for a GPT or a BERT), `labeled` (a TSV file, or an iterable
    of (label, text) or (label, text, text) rows) or `audio` (a TSV file, or an iterable of (path, transcript) rows).
    The validation set is given in the same forms: `valid_source` and `valid_target`, `valid_pairs`, `valid_text`,
    `valid_labeled`, `valid_audio`. `time` is a time budget such as "30m".

    Other settings are given by section, `model={"d_model": 64}`, or by their full name, `**{"text.vocab_size": 4000}`;
    they override those of `config`. `heedful settings` lists them.

    `callback` is called with every record of `metrics.jsonl`, a dict of numbers. Ctrl-C saves a checkpoint and raises
    KeyboardInterrupt; `resume=True` continues from the last checkpoint.

    A task of your own is given as a subclass of `heedful.training.tasks.task.Task`.
    """
    from heedful import load

    out = Path(out)
    data = _without_none({name: options.pop(name, None) for name in FILE_OPTIONS})
    rows = _without_none({name: options.pop(name, None) for name in ROW_OPTIONS})
    task_type = task if isinstance(task, type) else None
    top = _without_none({"preset": preset, "task": None if task_type else task})
    config = build_config(config, {"data": data, "train": _without_none({"time": time, "init": init}), **top}, options)
    files = {name: _row_file(name, value, cache_folder(config, out)) for name, value in rows.items()}
    config = build_config(config, {"data": files})
    run_training(config, out, resume=resume, callback=callback, task_type=task_type)
    return load(out)


def build_config(config: RunConfig | None, *layers: Mapping[str, Any]) -> RunConfig:
    """`config` with settings from `layers` of sections or full names on top, checked together."""
    tree: dict[str, Any] = config.model_dump(exclude_unset=True) if config else {}
    for name, value in (item for layer in layers for item in layer.items()):
        section, dot, key = name.partition(".")
        if dot:
            tree[section] = {**tree.get(section, {}), key: value}
        elif isinstance(value, Mapping):
            tree[section] = {**tree.get(section, {}), **value}
        elif section in SECTIONS:
            raise SettingError(f"{section} is {quote(value)}, but it is a section of settings; give a dict of them.")
        else:
            tree[name] = value
    return validate_section(RunConfig, {name: value for name, value in tree.items() if value != {}}, draft=True)


def run_training(
    config: RunConfig,
    out: Path,
    *,
    resume: bool = False,
    console: Console | None = None,
    callback: Callback | None = None,
    task_type: type[Task] | None = None,
) -> TrainState:
    """Train, tune the search, draw the learning curve, and report; KeyboardInterrupt if a signal stopped the run."""
    require("training", "sacrebleu", "tensorboard", "matplotlib")
    threads = torch.get_num_threads()
    run = open_run(config, out, resume, RunReport(out, console, callback), task_type)
    try:
        state, report = run.state, run.report
        if state.ended and (out / CURVE).exists():  # the last file that a run writes
            report.log(f"{out} is complete ({state.ended}); there is nothing to resume.")
            return state
        (out / CURVE).unlink(missing_ok=True)
        if state.ended:
            run.start_time()
        else:
            run_loop(run)
        if state.ended == "interrupted":
            report.log(f"interrupted at update {state.update:,} and saved; --resume (resume=True) continues the run.")
            raise KeyboardInterrupt
        if run.distributed.main:
            assert state.best is not None
            run.task.tune_search(load_folder(out), state.best[0], run.budget, report.log)
            report.draw_curve()
            report.console.print(report.table())
            report.log(
                f"training ended after {state.update:,} update{'s' * (state.update != 1)} and "
                f"{duration(run.budget.elapsed())}: {state.ended}; "
                f"the best model, of update {state.best_update:,}, is in {out}"
            )
        run.distributed.from_main(0.0)  # the model is complete
        return state
    finally:
        run.distributed.close()
        torch.set_num_threads(threads)


def _without_none(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _row_file(name: str, rows: Rows, cache: Path) -> Path | tuple[Path, ...]:
    """Files as they are, or rows written to one in the cache, named by its content so that a run can be resumed."""
    if isinstance(rows, str | os.PathLike):
        return Path(rows)
    items: list[Any] = list(rows)
    if not items:
        raise DataError(f"{name} is empty; give rows, or the path of a file.")
    files = [Path(item) for item in items if isinstance(item, str | os.PathLike)]
    if name.endswith("pairs") and files and len(files) == len(items):
        return tuple(files)
    if name.endswith("audio"):  # the file is not beside the recordings
        items = [(str(Path(item[0]).resolve()), *item[1:]) if len(item) == 2 else item for item in items]
    content = "".join(f"{line}\n" for line in _tsv_lines(name, items))
    with explain_os_errors(cache):
        cache.mkdir(parents=True, exist_ok=True)
    path = cache / f"{name}-{hashlib.blake2b(content.encode(), digest_size=8).hexdigest()}.tsv"
    atomic_write(path, content)
    return path


def _tsv_lines(name: str, rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Rows as lines; TABs and line breaks within a text become spaces, as the tokenizer's normalization makes them."""
    columns = (2, 3) if name.endswith("labeled") else (2,)
    form = {"pairs": "(source, target)", "labeled": "(label, text)", "audio": "(path, text)"}[
        name.removeprefix("valid_")
    ]
    for number, row in enumerate(rows):
        fields = () if isinstance(row, str) else tuple(row)
        if len(fields) not in columns or not all(isinstance(field, str) for field in fields):
            raise DataError(f"row {number} of {name} is {quote(row)}; give {form} as strings.")
        yield "\t".join(" ".join(field.split()) if _BREAKS & set(field) else field for field in fields)


_BREAKS = {"\t", "\n", "\r"}
