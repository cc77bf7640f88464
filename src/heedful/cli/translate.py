"""`heedful translate`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.open_models import open_translator, read_glossary, tree_summary
from heedful.cli.options import (
    BeamSearchGroup,
    Glossary,
    Models,
    OutputFile,
    SamplingGroup,
    TranslatorCompute,
    Trees,
    drop_unset,
    refuse_unused,
)
from heedful.cli.progress import progress, warning_summary
from heedful.cli.streams import DASH, arriving_lines, check_outputs, output_lines
from heedful.errors import SettingError
from heedful.formats.format_names import FORMATS, LINES, document_format

if TYPE_CHECKING:
    from heedful.inference.translator import Translation, Translator


@dataclass(frozen=True)
class TranslationGroup(SamplingGroup, BeamSearchGroup):
    """How translations are searched for, or sampled."""

    prefix: Annotated[str, typer.Option(help="Text that every translation must start with.")] = ""
    sampling: Annotated[bool, typer.Option("--sample", help="Sample tokens at random instead of beam search.")] = False


@dataclass(frozen=True)
class LineGroup:
    """What is written for a line."""

    n_best: Annotated[
        int, typer.Option(help="Translations per line, written as `line ||| text ||| log-probability ||| score`.")
    ] = 1
    scores: Annotated[bool, typer.Option("--scores", help="Write the score and a TAB before each translation.")] = False
    alignments: Annotated[
        bool, typer.Option("--alignments", help="Write a TAB and word alignments (0-0 1-2) after each translation.")
    ] = False
    confidence: Annotated[
        bool,
        typer.Option(
            "--confidence",
            help="Write the confidence (0 to 1) and a TAB before each translation, and that of its words after it.",
        ),
    ] = False


@dataclass(frozen=True)
class DocumentGroup:
    """What to translate in a file, and how."""

    format: Annotated[
        str,
        typer.Option(help=f"Format of a file: auto (by its extension), {', '.join(FORMATS[:-1])} or {FORMATS[-1]}."),
    ] = "auto"
    only_missing: Annotated[
        bool, typer.Option("--only-missing", help="In a file: keep fuzzy and unfinished translations as well.")
    ] = False
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="In a file: also replace finished translations."),
    ] = False
    review_below: Annotated[
        float | None,
        typer.Option(
            help="In a file: mark translations with a lower confidence for review (PO: fuzzy); 0 for none. Default 0.5,"
            " if the model is calibrated.",
            min=0,
            max=1,
        ),
    ] = None
    source_language: Annotated[
        str | None, typer.Option(help="In a file of several languages: the one to translate.")
    ] = None
    target_language: Annotated[
        str | None, typer.Option(help="In a file: the language to write; by default that of the model, if it is known.")
    ] = None
    column: Annotated[str | None, typer.Option(help="In a table: the column to translate, by name or number.")] = None


def translate(
    models: Models,
    search: TranslationGroup,
    lines: LineGroup,
    document: DocumentGroup,
    compute: TranslatorCompute,
    input: Annotated[Path, typer.Option("--input", "-i", help="Text to translate; - is standard input.")] = DASH,
    output: OutputFile = DASH,
    glossary: Glossary = None,
    trees: Trees = None,
) -> None:
    """Translate text line by line, or files. N lines in, N lines out, in order; an empty line stays empty.

    A file in PO, XLIFF, TMX, HTML, Markdown, SRT, VTT, CSV, TSV or JSON is translated as a file: only its translations
    change. Finished translations are kept; an interrupted command continues where it stopped.

    For example: heedful translate runs/x < in.en > out.de

    Or: heedful translate runs/x --input app.po --output app.de.po
    """
    check_outputs(output)
    if not search.sampling:
        unused = [field.name for field in fields(SamplingGroup)]
        refuse_unused(search, unused, "without --sample; add --sample, or leave it out")
    options = drop_unset(search) | {"confidence": lines.confidence}
    options["glossary"] = read_glossary(glossary, document.source_language, document.target_language)
    file_format = LINES if input == DASH else document_format(input, document.format)
    if file_format != LINES:
        unused = [field.name for field in fields(lines)]
        refuse_unused(lines, unused, f"on {input}, which is translated as a file; leave it out, or set --format lines")
        if document.only_missing and document.overwrite:
            raise SettingError("--only-missing keeps translations that --overwrite replaces; give one of them.")
        from heedful.cli.translate_document import DocumentOptions, DocumentRequest, model_language, translate_file

        target_language = document.target_language or model_language(models[0])
        described = DocumentOptions(document.source_language, target_language, document.column)
        segments = "all" if document.overwrite else "missing" if document.only_missing else "unfinished"
        request = DocumentRequest(input, output, file_format, described, segments, document.review_below)
        request.check()
        translator = open_translator(models, compute, trees)
        with tree_summary(*translator.source_trees):
            translate_file(translator, request, options)
        return
    _check_no_document(document, input, glossary)
    translator = open_translator(models, compute, trees)

    def line(number: int, translation: Translation) -> str:
        return n_best_line(number, translation) if lines.n_best > 1 else tab_separated(translation, lines.scores)

    options |= {"n_best": lines.n_best, "alignments": lines.alignments}
    with tree_summary(*translator.source_trees):
        translate_lines(translator, input, output, options, line)


def _check_no_document(document: DocumentGroup, input: Path, glossary: Path | None) -> None:
    """Refuse options of files for text that is translated line by line."""
    unused = ["only_missing", "overwrite", "review_below", "column"]
    if glossary is None:
        unused += ["source_language", "target_language"]
    if input != DASH:
        refuse_unused(document, unused, f"on {input}, which is translated line by line; name its format with --format")
    else:
        unused += ["format"] if document.format != LINES else []
        refuse_unused(document, unused, "on standard input, which is translated line by line; name a file with --input")


def translate_lines(
    translator: Translator,
    input: Path,
    output: Path,
    options: dict[str, Any],
    line: Callable[[int, Translation], str],
    warnings: bool = True,
) -> None:
    """Translate or summarize line by line; `line` is what is written for a translation of an input line, by number."""
    lines, ready = arriving_lines(input)
    with (
        output_lines(output, input) as put,
        warning_summary() as warn,
        progress(input, output, translator.engine) as done,
        closing(translator.stream(lines, ready=ready, **options)) as results,
    ):
        for number, translations in enumerate(results):
            for translation in translations:
                put(line(number, translation))
            if warnings:
                warn(number + 1, translations[0].warnings)
            done()


def tab_separated(translation: Translation, score: bool) -> str:
    """The text between TABs: after its confidence and its score (if `score`), before those of words and alignment."""
    from heedful.inference.results import pharaoh

    fields = [] if translation.confidence is None else [f"{translation.confidence:.3f}"]
    fields += [f"{translation.score:.4f}"] if score else []
    fields.append(translation.text)
    if translation.word_confidence is not None:
        fields.append(" ".join(f"{value:.2f}" for value in translation.word_confidence))
    if translation.alignment is not None:
        fields.append(pharaoh(translation.alignment))
    return "\t".join(fields)


def n_best_line(number: int, translation: Translation) -> str:
    """One line of an n-best list in Moses format."""
    from heedful.inference.results import pharaoh

    fields = [str(number), translation.text, f"{translation.log_prob:.4f}", f"{translation.score:.4f}"]
    if translation.alignment is not None:
        fields.append(pharaoh(translation.alignment))
    return " ||| ".join(fields)
