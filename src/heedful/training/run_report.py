"""What a run says while it goes: a progress bar or plain lines, `metrics.jsonl`, TensorBoard, a table, a curve.

All of them are written from the same records, so they agree. A resumed run drops the records after its checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Column:
    """A score of a validation, as it is shown."""

    key: str
    title: str
    digits: int = 2
    percent: bool = False  # between 0 and 100, more is better: drawn beside the loss

    def show(self, record: Record) -> str:
        return f"{record[self.key]:.{self.digits}f}"


class RunReport:
    """The voice of a run. A silent one belongs to every rank but the main one."""

    def __init__(self, folder: Path, console: Console | None) -> None:
        self.folder = folder
        self.columns: Sequence[Column] = ()
        self.console = console or Console(quiet=True)
        self.records: list[Record] = []
        self._silent = console is None
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._board: Any = None
        self._said = 0.0

    def say(self, text: str) -> None:
        """One line for the user."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def start(self, update: int, total: int) -> None:
        """Open the files, with the records up to `update` of an earlier session."""
        if self._silent:
            return
        self.records = [record for record in read_metrics(self.folder) if record["update"] <= update]
        lines = "".join(json.dumps(record) + "\n" for record in self.records)
        atomic_write(self.folder / METRICS, lines)
        from torch.utils.tensorboard import SummaryWriter

        self._board = SummaryWriter(str(self.folder / "tensorboard"), purge_step=update + 1)
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                TextColumn("{task.fields[status]}"), console=self.console,
            )  # fmt: skip
            self._task = self._bar.add_task("training", total=total, completed=update, status="")
            self._bar.start()

    def record(self, record: Record) -> None:
        """Keep one record, in every place."""
        if self._silent:
            return
        self.records.append(record)
        path = self.folder / METRICS
        with explain_os_errors(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        for name, value in record.items():
            if name != "update":
                self._board.add_scalar(name, value, int(record["update"]))

    def progress(self, record: Record, total: int, seconds_per_update: float) -> None:
        """Show where training is."""
        speed = f"{record['tokens_per_second']:,.0f} tokens/s"
        status = f"loss {record['loss']:.3f} · rate {record['learning_rate']:.2e} · {speed}"
        if "ponder" in record:
            status += f" · {record['ponder']:.2f} steps a token"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=int(record["update"]), total=total, status=status)
        elif not self._silent and time.monotonic() - self._said > 15:
            self._said = time.monotonic()
            left = (total - record["update"]) * seconds_per_update
            self.say(f"update {record['update']:,.0f} of {total:,} · {status} · {duration(left)} left")

    def validation(self, record: Record, best: bool, lines: Sequence[str] = ()) -> None:
        """Show one validation, and what the model does by now."""
        scores = " · ".join(f"{column.title} {column.show(record)}" for column in self.columns)
        self.say(f"update {record['update']:,.0f}: validation {scores}{' · best so far' if best else ''}")
        for line in lines:
            self.say(f"  {line}")

    def close(self) -> None:
        """Stop the bar and close the files."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._board is not None:
            self._board.close()
            self._board = None

    def table(self) -> Table:
        """All validations, as recorded."""
        table = Table(title="Validations")
        for title in ("update", *(column.title for column in self.columns)):
            table.add_column(title, justify="right")
        for record in self.records or read_metrics(self.folder):
            if "valid_loss" in record:
                table.add_row(f"{record['update']:,.0f}", *(column.show(record) for column in self.columns))
        return table

    def draw_curve(self) -> Path:
        """The learning curve as a picture: losses, and the first score that is counted in percent."""
        return draw_curve(self.folder, next((column for column in self.columns if column.percent), None))


def read_metrics(folder: Path) -> list[Record]:
    """The records of a run; a last line cut short by a crash is left out."""
    records: list[Record] = []
    for line in (read_text(folder, METRICS, LARGEST) or "").splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(line)
            if isinstance(record, dict) and isinstance(record.get("update"), int):
                records.append(record)
    return records


def draw_curve(folder: Path, score: Column | None) -> Path:
    """The learning curve of the run in a folder as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    records = read_metrics(folder)
    training = [(r["update"], r["loss"]) for r in records if "loss" in r]
    valid = [r for r in records if "valid_loss" in r]
    updates = [r["update"] for r in valid]
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
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
    plt.close(figure)
    return folder / CURVE


def duration(seconds: float) -> str:
    """'1 h 02 min', '3 min 20 s' or '12 s'."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
