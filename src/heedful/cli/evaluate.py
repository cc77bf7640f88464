"""`heedful evaluate`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.open_models import open_transcriber, open_translator, tree_summary
from heedful.cli.options import (
    AsJson,
    BeamSearchGroup,
    BleuTokenizer,
    Models,
    TranslatorCompute,
    Trees,
    drop_unset,
    refuse_unused,
)
from heedful.errors import DataError, SettingError

if TYPE_CHECKING:
    from heedful.inference.results import Translation
    from heedful.inference.transcriber import Transcriber


@dataclass(frozen=True)
class TranslationScoresGroup:
    """What is measured of translations."""

    tokenize: BleuTokenizer = None
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="Calibrate confidence on these sentences and store it in the model folder."),
    ] = False

    def refuse(self, why: str) -> None:
        """Refuse all of these options."""
        refuse_unused(self, [field.name for field in fields(self)], why)


def evaluate(
    models: Models,
    search: BeamSearchGroup,
    compute: TranslatorCompute,
    scores: TranslationScoresGroup,
    source: Annotated[Path | None, typer.Option(help="Sentences to translate, one per line; plain or .gz.")] = None,
    reference: Annotated[Path | None, typer.Option(help="Reference translations, one per line.")] = None,
    audio: Annotated[
        Path | None,
        typer.Option(help="For a speech recognizer: recordings with transcripts, a TSV file, path TAB text."),
    ] = None,
    trees: Trees = None,
    as_json: AsJson = False,
) -> None:
    """Score a model on a test set. Translations get sacreBLEU's BLEU, chrF and TER, and exact match.

    For example: heedful evaluate runs/x --source test.en --reference test.de

    A speech recognizer transcribes recordings: word and character error rates (jiwer) after NFKC, lower case and
    without punctuation. For example: heedful evaluate runs/asr --audio test.tsv

    Summaries are scored with ROUGE-1, -2 and -L.
    """
    from heedful.evaluation import metrics as measures
    from heedful.formats.line_files import read_pairs
    from heedful.inference.summarizer import Summarizer

    if audio is not None:
        if source is not None or reference is not None or len(models) > 1:
            raise SettingError(
                "--audio evaluates one speech recognizer; leave out --source, --reference and ensembles."
            )
        if trees:
            raise SettingError("--trees has no effect with --audio.")
        scores.refuse("with --audio")
        refuse_unused(compute, ("workers", "shortlist"), "with --audio")
        evaluate_audio(open_transcriber(models[0], compute), audio, search, as_json)
        return
    if source is None or reference is None:
        missing = "--source" if source is None else "--reference"
        raise SettingError(f"{missing} is missing; give --source and --reference, or --audio for a speech recognizer.")
    measures.build_bleu(scores.tokenize, scores.lowercase)  # checks the metric's options before translating
    pairs = list(read_pairs(source, reference))
    translator = open_translator(models, compute, trees)
    if isinstance(translator, Summarizer):
        scores.refuse("on summaries, which are scored with ROUGE")
    start = time.perf_counter()
    with tree_summary(*translator.source_trees):
        best = [n_best[0] for n_best in translator.translations([text for text, _ in pairs], **drop_unset(search))]
    hypotheses = [translation.text for translation in best]
    seconds = time.perf_counter() - start
    references = [text for _, text in pairs]
    if isinstance(translator, Summarizer):
        _print_rouge(hypotheses, references, as_json, len(pairs) / seconds, translator.engine)
        return
    result = measures.evaluate(hypotheses, references, tokenize=scores.tokenize, lowercase=scores.lowercase)
    speed = len(pairs) / seconds
    if scores.calibrate:
        _calibrate(models[0], best, references)
    if as_json:
        print(json.dumps(result.as_json() | {"sentences_per_second": speed, "engine": translator.engine}, indent=2))
        return
    print(f"BLEU  {result.bleu:6.2f}   {result.signatures['BLEU']}")
    print(f"chrF  {result.chrf:6.2f}   {result.signatures['chrF']}")
    print(f"TER   {result.ter:6.2f}   {result.signatures['TER']}")
    print(f"exact {result.exact:6.2f} % of {result.sentences:,} sentences, {speed:.1f}/s with {translator.engine}")


def _calibrate(folder: Path, translations: Sequence[Translation], references: Sequence[str]) -> None:
    """Calibrate confidence on translations, and store it in the model folder."""
    from heedful.evaluation.calibration import RELIABILITY, calibrate, save_calibration

    calibration = calibrate(translations, references)
    save_calibration(folder, calibration)
    errors = " and ".join(f"{value:.1f} % ({name})" for name, value in calibration.errors.items())
    print(f"confidence is calibrated: calibration error {errors}; see {folder / RELIABILITY}", file=sys.stderr)


def evaluate_audio(transcriber: Transcriber, manifest: Path, search: BeamSearchGroup, as_json: bool) -> None:
    """Transcribe the recordings of a manifest, and print word and character error rates."""
    from heedful.evaluation.word_errors import evaluate_speech
    from heedful.formats.audio_manifest import read_manifest

    utterances = read_manifest(manifest)
    start, seconds, hypotheses = time.perf_counter(), 0.0, []
    for utterance in utterances:
        if not utterance.path.is_file():
            raise DataError(f"{manifest}, line {utterance.line}: {utterance.path} does not exist; check the path.")
    for transcript in transcriber.stream([utterance.path for utterance in utterances], **drop_unset(search)):
        hypotheses.append(transcript.text)
        seconds += transcript.duration
    speed = seconds / (time.perf_counter() - start)
    result = evaluate_speech(hypotheses, [utterance.text for utterance in utterances])
    if as_json:
        print(json.dumps(result.as_json() | {"times_real_time": speed, "engine": transcriber.engine}, indent=2))
        return
    errors = f"{result.substitutions} substituted, {result.deletions} deleted, {result.insertions} inserted"
    print(f"WER {result.wer:6.2f} %   {errors}, of {result.words:,} words")
    print(f"CER {result.cer:6.2f} %   normalization: {result.normalization}")
    print(f"{result.recordings:,} recordings, {seconds:,.0f} s, {speed:.1f} times real time with {transcriber.engine}")


def _print_rouge(summaries: Sequence[str], references: Sequence[str], as_json: bool, speed: float, engine: str) -> None:
    from heedful.evaluation.rouge import CONFIDENCE, NAMES, evaluate_summaries

    result = evaluate_summaries(summaries, references)
    if as_json:
        print(json.dumps(result.as_json() | {"documents_per_second": speed, "engine": engine}, indent=2))
        return
    for name, interval in zip(NAMES, (result.rouge1, result.rouge2, result.rougeL), strict=True):
        print(f"{name} {interval}")
    print(f"{result.signature}; {CONFIDENCE:.0%} confidence intervals by bootstrap resampling")
    print(f"{result.documents:,} documents, {speed:.1f}/s with {engine}")
