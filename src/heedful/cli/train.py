"""`heedful train`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.options import Languages, drop_unset

if TYPE_CHECKING:
    from heedful.config import RunConfig


@dataclass(frozen=True)
class DataFiles(Languages):
    """The corpus: settings of the section `data`."""

    source: Annotated[Path | None, typer.Option(help="Source text, one sentence per line; plain or .gz.")] = None
    target: Annotated[
        Path | None, typer.Option(help="Target text: line n is the translation of line n of the source.")
    ] = None
    pairs: Annotated[
        list[Path] | None,
        typer.Option(
            help="Files or folders of pairs: TSV (source TAB target), TMX, XLIFF, PO, CSV, JSON Lines, Parquet;"
            " may be given again."
        ),
    ] = None
    valid_source: Annotated[Path | None, typer.Option(help="Source text of the validation set.")] = None
    valid_target: Annotated[Path | None, typer.Option(help="Target text of the validation set.")] = None
    valid_pairs: Annotated[
        list[Path] | None, typer.Option(help="Validation set as files of pairs; may be given again.")
    ] = None
    text: Annotated[
        list[Path] | None, typer.Option(help="Plain text for a GPT, a BERT or denoising; may be given again.")
    ] = None
    valid_text: Annotated[list[Path] | None, typer.Option(help="Validation text; may be given again.")] = None
    labeled: Annotated[Path | None, typer.Option(help="Labeled examples: TSV, CoNLL, SQuAD or bAbI.")] = None
    valid_labeled: Annotated[Path | None, typer.Option(help="Labeled validation examples.")] = None
    audio: Annotated[Path | None, typer.Option(help="Recordings as a TSV file, path TAB text.")] = None
    valid_audio: Annotated[Path | None, typer.Option(help="Recordings of the validation set.")] = None


def train(
    files: DataFiles,
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN.toml] [SECTION.KEY=VALUE]...", help="A file of settings, and single settings."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="translation, summarization, speech, language-model, masked-lm, denoising, classification, "
            "regression, tagging, question-answering or similarity; by default inferred from the files."
        ),
    ] = None,
    init: Annotated[Path | None, typer.Option(help="Model folder to start from.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the model, the checkpoints and the metrics.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="tiny, small, base or big; by default chosen by corpus and time.")
    ] = None,
    time: Annotated[str | None, typer.Option(help="How long to train, such as 30m or 2h.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out from its last checkpoint, exactly.")
    ] = False,
) -> None:
    """Train a model from your own data. Sentence pairs give a translator or a summarizer, plain text a GPT or a BERT,
    labeled examples a classifier, recordings a speech recognizer.

    For example: heedful train --source train.en --target train.de --out runs/x --time 30m

    Or: heedful train --pairs memory.tmx --pairs project.po --source-language en --target-language de --out runs/x

    Or: heedful train --task summarization --pairs articles.tsv --out runs/s

    Or: heedful train --task denoising --text corpus.txt --out runs/d, for --init of a summarizer or translator

    Or: heedful train --task language-model --text book.txt --out runs/gpt; --task masked-lm trains a BERT.

    Or: heedful train --task speech --audio train.tsv --out runs/asr

    Or: heedful train --labeled train.tsv --init runs/bert --out runs/classifier; --task tagging reads CoNLL files,
    --task question-answering SQuAD files.

    Or: heedful train --task similarity --pairs paraphrases.tsv --init runs/bert --out runs/sentences

    Settings are listed by `heedful settings`; any of them can be given as section.key=value.
    Ctrl-C saves a checkpoint; --resume continues from the last one.
    """
    from heedful.errors import SettingError
    from heedful.training.api import run_training

    top, train_section = drop_unset(preset=preset, task=task), drop_unset(time=time, init=init)
    config = read_settings(settings or [], drop_unset(files), train_section, top)
    if out is None:
        raise SettingError("--out is missing; give the folder for the model, such as --out runs/x.")
    run_training(config, out, resume=resume)


def read_settings(settings: list[str], data: dict[str, Any], train: dict[str, Any], top: dict[str, str]) -> RunConfig:
    """At most one RUN.toml, then options, then overrides; later ones win."""
    from heedful import config
    from heedful.errors import SettingError

    paths = [text for text in settings if "=" not in text]
    for text in paths:
        if text.partition(".")[0] in config.RunConfig.model_fields and not Path(text).exists():
            raise SettingError(f"{text} is a setting without a value; write {text}=VALUE.")
    if len(paths) > 1:
        raise SettingError(f"{paths[1]} is a second file of settings; give one, and single settings as key=value.")
    overrides = [f"{name}={value}" for name, value in top.items()] + [text for text in settings if "=" in text]
    sections = {"data": data, "train": train} if train else {"data": data}
    return config.load_config(Path(paths[0]) if paths else None, overrides, **sections)
