"""The report of a run: progress bar or log lines, `metrics.jsonl`, TensorBoard, callback, table, learning curve.

All of them are written from the same records. A resumed run drops the records after its checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from heedful.files import LARGEST, read_text
from heedful.storage.atomic import atomic_write, explain_os_errors

METRICS = "metrics.jsonl"
CURVE = "learning_curve.png"
Record = dict[str, float]
Callback = Callable[[Record], None]


@dataclass(frozen=True)
class Column:
    """A validation score as it is displayed."""

    key: str
    title: str
    digits: int = 2
    percent: bool = False  # between 0 and 100, higher is better; plotted beside the loss

    def show(self, record: Record) -> str:
        return f"{record[self.key]:.{self.digits}f}"


class RunReport:
    """Log, metrics and progress of a run; ranks other than the main one disable theirs."""

    def __init__(self, folder: Path, console: Console | None = None, callback: Callback | None = None) -> None:
        self.folder, self.callback = folder, callback
        self.columns: Sequence[Column] = ()
        self.counted = "tokens"
        self.console = console or Console(stderr=True)
        self.records: list[Record] = []
        self.enabled = True
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._board: Any = None
        self._logged = 0.0

    def log(self, text: str) -> None:
        """Print one line for the user."""
        if self.enabled:
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def start(self, update: int, total: int) -> None:
        """Open the files, with the records up to `update` of an earlier session."""
        if not self.enabled:
            return
        self.records = [record for record in read_metrics(self.folder) if record["update"] <= update]
        lines = "".join(json.dumps(record) + "\n" for record in self.records)
        atomic_write(self.folder / METRICS, lines)
        from torch.utils.tensorboard import SummaryWriter

        self._board = SummaryWriter(str(self.folder / "tensorboard"), purge_step=update + 1)
        if supports_progress(self.console):
            self._bar = Progress(
                TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                TextColumn("{task.fields[status]}"), console=self.console,
            )  # fmt: skip
            self._task = self._bar.add_task("training", total=total, completed=update, status="")
            self._bar.start()

    def record(self, record: Record) -> None:
        """Write one record to `metrics.jsonl` and TensorBoard, and pass it to the callback."""
        if not self.enabled:
            return
        self.records.append(record)
        path = self.folder / METRICS
        with explain_os_errors(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        for name, value in record.items():
            if name != "update":
                self._board.add_scalar(name, value, int(record["update"]))
        if self.callback is not None:
            self.callback(dict(record))

    def progress(self, record: Record, total: int, seconds_per_update: float) -> None:
        """Show the current update, loss and speed."""
        decimals = 1 if self.counted == "examples" else 0
        speed = f"{record['tokens_per_second']:,.{decimals}f} {self.counted}/s"
        status = f"loss {record['loss']:.3f} · learning rate {record['learning_rate']:.2e} · {speed}"
        if "ponder" in record:
            status += f" · {record['ponder']:.2f} steps a token"
        if "busiest_expert" in record:
            status += f" · busiest expert {record['busiest_expert']:.0f} %"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=int(record["update"]), total=total, status=status)
        elif self.enabled and time.monotonic() - self._logged > 15:
            self._logged = time.monotonic()
            left = (total - record["update"]) * seconds_per_update
            self.log(f"update {record['update']:,.0f} of {total:,} · {status} · {duration(left)} left")

    def validation(self, record: Record, best: bool, lines: Sequence[str] = ()) -> None:
        """Show the scores of one validation, and sample output."""
        scores = " · ".join(f"{column.title} {column.show(record)}" for column in self.columns)
        self.log(f"update {record['update']:,.0f}: validation {scores}{' · best so far' if best else ''}")
        for line in lines:
            self.log(f"  {line}")

    def close(self) -> None:
        """Stop the bar and close the files."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._board is not None:
            self._board.close()
            self._board = None

    def table(self) -> Table:
        """All validations of the run."""
        table = Table(title="Validations")
        for title in ("update", *(column.title for column in self.columns)):
            table.add_column(title, justify="right")
        for record in self.records or read_metrics(self.folder):
            if "valid_loss" in record:
                table.add_row(f"{record['update']:,.0f}", *(column.show(record) for column in self.columns))
        return table

    def draw_curve(self) -> Path:
        """Plot the learning curve: losses, and the first score in percent."""
        return draw_curve(self.folder, next((column for column in self.columns if column.percent), None))


def supports_progress(console: Console) -> bool:
    """Whether rich can show a progress bar: in a terminal, and in a notebook that has ipywidgets."""
    return console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)


def read_metrics(folder: Path) -> list[Record]:
    """The records of a run; a last line truncated by a crash is skipped."""
    records: list[Record] = []
    for line in (read_text(folder, METRICS, LARGEST) or "").splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(line)
            if isinstance(record, dict) and isinstance(record.get("update"), int):
                records.append(record)
    return records


def draw_curve(folder: Path, score: Column | None) -> Path:
    """Plot the learning curve of the run in a folder."""
    from matplotlib.figure import Figure  # without pyplot, whose backend belongs to the user's notebook

    records = read_metrics(folder)
    training = [(r["update"], r["loss"]) for r in records if "loss" in r]
    valid = [r for r in records if "valid_loss" in r]
    updates = [r["update"] for r in valid]
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(*zip(*training, strict=True), color="#999999", label="training loss")
    axes.set_xlabel("update")
    axes.set_ylabel("loss per token")
    if valid:
        losses = [r["valid_loss"] for r in valid]
        axes.plot(updates, losses, color="#0072B2", marker="o", label="validation loss")
    if valid and score is not None:
        right = axes.twinx()
        values = [r[score.key] for r in valid]
        right.plot(updates, values, color="#D55E00", marker="s", label=f"validation {score.title}")
        right.set_ylabel(score.title)
        right.set_ylim(0, 100)
    axes.set_ylim(bottom=0)
    figure.legend(loc="outside lower center", ncols=3)
    figure.savefig(folder / CURVE, dpi=150)
    return folder / CURVE


def duration(seconds: float) -> str:
    """'1 h 02 min', '3 min 20 s' or '12 s'."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
