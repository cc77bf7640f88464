"""`data.*` and `text.*`: files of the corpus, filters, validation set, vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from heedful.config.section import Count, Section

LanguageTag = Annotated[str, Field(pattern=r"^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*$")]
Paths = Annotated[tuple[Path, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str | Path) else value)]


class DataSettings(Section):
    """Files of the corpus, filters, and the validation set."""

    source: Path | None = Field(None, description="Source text, one sentence per line; plain or .gz.")
    target: Path | None = Field(None, description="Target text: line n is the translation of line n of the source.")
    pairs: Paths = Field(
        (),
        description="Files or folders of pairs instead of source and target: TSV (source TAB target), TMX, XLIFF, PO,"
        " CSV, JSON Lines, Parquet; plain or compressed.",
    )
    valid_source: Path | None = Field(None, description="Source text of the validation set.")
    valid_target: Path | None = Field(None, description="Target text of the validation set.")
    valid_pairs: Paths = Field((), description="Files or folders of pairs of the validation set.")
    source_language: LanguageTag | None = Field(
        None, description="Language to read as the source in files of several languages, such as en or en-GB."
    )
    target_language: LanguageTag | None = Field(
        None, description="Language to read as the target in files of several languages, such as de or pt-BR."
    )
    text: Paths = Field((), description="Plain text for a language model, one file or more; plain or .gz.")
    valid_text: Paths = Field((), description="Plain text of the validation set.")
    documents: Literal["blank-lines", "files"] = Field(
        "blank-lines", description="Where a document of plain text ends: at a blank line or at the end of a file."
    )
    labeled: Path | None = Field(
        None,
        description="Labeled examples: label TAB text [TAB second text] (classification), number TAB text [TAB second"
        " text] (regression), a CoNLL file (tagging), or a SQuAD file (question-answering).",
    )
    valid_labeled: Path | None = Field(None, description="Labeled examples of the validation set.")
    audio: Path | None = Field(
        None, description="Recordings with transcripts, a TSV file: path TAB text; paths are relative to the file."
    )
    valid_audio: Path | None = Field(None, description="Recordings of the validation set.")
    max_seconds: Annotated[float, Field(gt=0, le=600)] = Field(
        30.0, description="Maximum length of a recording, in seconds; longer ones are dropped."
    )
    speed_perturbation: tuple[Annotated[float, Field(ge=0.5, le=2)], ...] = Field(
        (1.0, 0.9, 1.1),
        description="Speeds at which every recording is trained on; another speed also changes the pitch (Ko et al.,"
        " 2015). 1 alone switches it off.",
    )
    trees: Paths = Field(
        (),
        description="CoNLL-U files with dependency trees of source sentences, for model.positions=syntax; a sentence is"
        " found by its words.",
    )
    valid_size: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="Size of the validation set held out from the training data if there are no validation files:"
        " distinct source sentences, documents or labeled texts; chosen by the size of the corpus if not set.",
    )
    max_length: Count = Field(
        256, description="Maximum length of either side of a pair, in tokens; longer pairs are dropped."
    )
    max_source_length: Count | None = Field(
        None, description="Maximum length of a source, in tokens; the same as max_length if not set."
    )
    truncate_source: bool = Field(
        False,
        description="Truncate longer sources at their end instead of dropping their pairs; true for summarization.",
    )
    max_ratio: float = Field(
        9.0, ge=1, description="Maximum ratio between the lengths of both sides, in tokens; other pairs are dropped."
    )
    cache_dir: Path | None = Field(
        None, description="Cache folder for encoded corpora; `.heedful` beside the output folder if not set."
    )
    deduplicate: bool = Field(True, description="Drop pairs that are exact copies of an earlier pair.")
    filters: tuple[Literal["copy", "placeholders", "numbers"], ...] | None = Field(
        None,
        description="Filters for training pairs, as in `heedful clean`: copy (the target is the source), placeholders"
        " and numbers (they differ). If not set: for translators copy and placeholders of TMX, XLIFF, PO, tables with a"
        " header and other files of segments, otherwise none.",
    )
    strict: bool = Field(
        False,
        description="Treat lines and segments that cannot be read (not UTF-8, a NUL character, missing columns, invalid"
        " XML, PO, CSV or JSON) as an error instead of dropping and reporting them.",
    )


class TextSettings(Section):
    """Vocabulary and tokenization."""

    vocab_size: Annotated[int, Field(ge=16, le=1_000_000)] | None = Field(
        None, description="Size of the subword vocabulary; chosen by the size of the corpus if not set."
    )
    kind: Literal["bpe", "bytes", "characters"] = Field(
        "bpe", description="Tokens of plain text: subwords (byte-pair encoding), bytes, or characters."
    )
    joint: bool = Field(True, description="One vocabulary shared by source and target (the paper), or one for each.")
    lowercase: bool = Field(False, description="Convert all text to lower case.")
