"""`heedful train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from heedful.config import RunConfig
    from heedful.training.checkpoint import TrainState


def train(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN.toml] [SECTION.KEY=VALUE]...", help="A file of settings, and single settings."),
    ] = None,
    source: Annotated[Path | None, typer.Option(help="Source side, one sentence a line; plain or .gz.")] = None,
    target: Annotated[Path | None, typer.Option(help="Target side, line by line.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="Both sides as one TSV file, source TAB target.")] = None,
    valid_source: Annotated[Path | None, typer.Option(help="Source side of the validation set.")] = None,
    valid_target: Annotated[Path | None, typer.Option(help="Target side of the validation set.")] = None,
    valid_pairs: Annotated[Path | None, typer.Option(help="Validation set as one TSV file.")] = None,
    text: Annotated[list[Path] | None, typer.Option(help="Plain text for a GPT or BERT; may be given again.")] = None,
    valid_text: Annotated[list[Path] | None, typer.Option(help="Validation text; may be given again.")] = None,
    labeled: Annotated[Path | None, typer.Option(help="Examples for a classifier: label TAB text [TAB text].")] = None,
    valid_labeled: Annotated[Path | None, typer.Option(help="Validation examples for a classifier.")] = None,
    task: Annotated[
        str | None, typer.Option(help="translation, language-model, masked-lm or classification; else by the files.")
    ] = None,
    init: Annotated[Path | None, typer.Option(help="Model folder to start from.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the model, the checkpoints and the metrics.")] = None,
    preset: Annotated[str | None, typer.Option(help="tiny, small, base or big; else by corpus and time.")] = None,
    time: Annotated[str | None, typer.Option(help="How long to train, such as 30m or 2h.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, exactly.")] = False,
) -> None:
    """Train a translator from sentence pairs, a GPT or a BERT from plain text, or a classifier from labeled text.

    For example: heedful train --source train.en --target train.de --out runs/x --time 30m

    Or: heedful train --task language-model --text book.txt --out runs/gpt; --task masked-lm trains a BERT.

    Or: heedful train --labeled train.tsv --init runs/bert --out runs/classifier

    Settings are listed by `heedful settings`; any of them can be given as section.key=value.
    Ctrl-C saves a checkpoint; --resume goes on from the last one.
    """
    from heedful.errors import SettingError

    files: dict[str, Any] = {"source": source, "target": target, "pairs": pairs, "labeled": labeled}
    files |= {"text": text, "valid_text": valid_text, "valid_labeled": valid_labeled}
    files |= {"valid_source": valid_source, "valid_target": valid_target, "valid_pairs": valid_pairs}
    config = read_settings(settings or [], files, {"preset": preset, "task": task}, {"time": time, "init": init})
    if out is None:
        raise SettingError("--out is missing; say in which folder the model is to be written, such as --out runs/x.")
    run_training(config, out, resume)


def read_settings(
    settings: list[str], files: dict[str, Any], top: dict[str, str | None], train: dict[str, Any]
) -> RunConfig:
    """One RUN.toml at most, options, and overrides, in rising order of strength."""
    from heedful import config
    from heedful.errors import SettingError

    paths = [text for text in settings if "=" not in text]
    for text in paths:
        if text.partition(".")[0] in config.RunConfig.model_fields and not Path(text).exists():
            raise SettingError(f"{text} is a setting without a value; write {text}=VALUE.")
    if len(paths) > 1:
        raise SettingError(f"{paths[1]} is a second file of settings; give one, and single settings as key=value.")
    sections: dict[str, dict[str, Any]] = {"data": {name: path for name, path in files.items() if path}}
    if any(train.values()):
        sections["train"] = {name: value for name, value in train.items() if value}
    overrides = [f"{name}={value}" for name, value in top.items() if value] + [text for text in settings if "=" in text]
    return config.load_config(Path(paths[0]) if paths else None, overrides, **sections)


def run_training(config: RunConfig, out: Path, resume: bool = False, console: Console | None = None) -> TrainState:
    """Train, and tell the user how it went."""
    from rich.console import Console

    from heedful.cli.validation import closing_searches, measure, settle_search, show
    from heedful.interop import open_folder
    from heedful.training.loop import train as train_model
    from heedful.training.run_report import CURVE, duration
    from heedful.training.setup import open_run

    run = open_run(
        config,
        out,
        resume,
        lambda folder: measure(run, folder),
        console or Console(stderr=True),
        lambda folder: show(run, folder),
        open_folder,
    )
    try:
        ended = run.state.ended
        if ended and (out / CURVE).exists():  # the last that a run writes
            run.report.say(f"{out} is complete ({ended}); there is nothing to resume.")
            return run.state
        (out / CURVE).unlink(missing_ok=True)
        run.closing_searches = closing_searches(run)
        if ended:
            run.start_clock()
        else:
            train_model(run)
        state = run.state
        if not run.ranks.main:
            return state
        if state.ended == "interrupted":
            run.report.say(f"interrupted at update {state.update:,} and saved; --resume goes on from there.")
            raise typer.Exit(130)
        settle_search(run, out)
        run.report.draw_curve()
        run.report.console.print(run.report.table())
        run.report.say(
            f"training ended after {state.update:,} updates and {duration(run.clock.elapsed())}: {state.ended}; "
            f"the best model, of update {state.best_update:,}, is in {out}"
        )
        return state
    finally:
        run.ranks.close()
