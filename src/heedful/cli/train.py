"""`heedful train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from heedful.config import RunConfig
    from heedful.train.checkpoint import State


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
    out: Annotated[Path | None, typer.Option(help="Folder for the model, the checkpoints and the metrics.")] = None,
    preset: Annotated[str | None, typer.Option(help="tiny, small, base or big; chosen from the corpus.")] = None,
    time: Annotated[str | None, typer.Option(help="How long to train, such as 30m or 2h.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, exactly.")] = False,
) -> None:
    """Train a translator from line-aligned text files or a TSV file.

    For example: heedful train --source train.en --target train.de --out runs/x --time 30m

    Settings are listed by `heedful settings`; any of them can be given as section.key=value.
    Ctrl-C saves a checkpoint; --resume goes on from the last one.
    """
    from heedful.errors import SettingError

    files = {"source": source, "target": target, "pairs": pairs}
    files |= {"valid_source": valid_source, "valid_target": valid_target, "valid_pairs": valid_pairs}
    config = read_settings(settings or [], files, preset, time)
    if out is None:
        raise SettingError("--out is missing; say in which folder the model is to be written, such as --out runs/x.")
    run_training(config, out, resume)


def read_settings(
    settings: list[str], files: dict[str, Path | None], preset: str | None, time: str | None
) -> RunConfig:
    """One RUN.toml at most, options, and overrides, in rising order of strength."""
    from heedful import config
    from heedful.errors import SettingError

    paths = [text for text in settings if "=" not in text]
    if len(paths) > 1:
        raise SettingError(f"{paths[1]} is a second file of settings; give one, and single settings as key=value.")
    sections: dict[str, dict[str, Any]] = {"data": {name: path for name, path in files.items() if path}}
    if time:
        sections["train"] = {"time": time}
    overrides = ([f"preset={preset}"] if preset else []) + [text for text in settings if "=" in text]
    return config.read(Path(paths[0]) if paths else None, overrides, **sections)


def run_training(config: RunConfig, out: Path, resume: bool = False, console: Console | None = None) -> State:
    """Train, and tell the user how it went."""
    from rich.console import Console

    from heedful.evaluate import quick_scores
    from heedful.folder import Folder
    from heedful.train.loop import train as train_model
    from heedful.train.report import duration
    from heedful.train.start import open_run
    from heedful.train.translation import Translation
    from heedful.translate import Translator

    def translate(folder: Folder) -> dict[str, float]:
        assert isinstance(run.task, Translation)
        store = run.task.store
        sentences = store.valid_text[: config.train.valid_sentences]
        translated = Translator([folder], device=str(run.ranks.device)).translate([source for source, _ in sentences])
        normalise = store.target_tokenizer.normalise  # a model of lower-case text is not blamed for its case
        return quick_scores(translated, [normalise(target) for _, target in sentences])

    run = open_run(config, out, resume, translate, console or Console(stderr=True))
    try:
        if run.state.ended:
            run.report.say(f"{out} is complete ({run.state.ended}); there is nothing to resume.")
            return run.state
        state = train_model(run)
        if not run.ranks.main:
            return state
        if state.ended == "interrupted":
            run.report.say(f"interrupted at update {state.update:,} and saved; --resume goes on from there.")
            raise typer.Exit(130)
        run.report.draw_curve()
        run.report.console.print(run.report.table())
        run.report.say(
            f"training ended after {state.update:,} updates and {duration(state.elapsed)}: {state.ended}; "
            f"the best model, of update {state.best_update:,}, is in {out}"
        )
        return state
    finally:
        run.ranks.close()
