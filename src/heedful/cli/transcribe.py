"""`heedful transcribe`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.open_models import open_transcriber
from heedful.cli.options import BeamSearchGroup, Compute, OutputFile, drop_unset
from heedful.cli.streams import DASH, check_outputs, output_lines
from heedful.errors import DataError, SettingError

if TYPE_CHECKING:
    from heedful.inference.transcriber import Transcript


def transcribe(
    model: Annotated[Path, typer.Argument(help="A model folder, or a .pt file of OpenAI's Whisper.")],
    files: Annotated[list[Path], typer.Argument(help="Recordings: wav, flac, ogg or mp3, at any sampling rate.")],
    search: BeamSearchGroup,
    compute: Compute,
    output: OutputFile = DASH,
    timestamps: Annotated[
        bool,
        typer.Option(
            "--timestamps",
            help="Write a line for each segment: [start --> end] text; of several files with their name.",
        ),
    ] = False,
    word_timestamps: Annotated[
        bool,
        typer.Option(
            "--word-timestamps", help="Time every word: a line, with --srt a subtitle, with --json an object for each."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write a JSON object for each recording.")] = False,
    srt: Annotated[bool, typer.Option("--srt", help="Write subtitles of one recording in SubRip format.")] = False,
    language: Annotated[
        str | None, typer.Option(help="Language code for a multilingual Whisper model; detected if not given.")
    ] = None,
) -> None:
    """Transcribe recordings: a line of text for each, in order. Long recordings are cut at silence into windows.

    A recording that cannot be read is reported, and the others are transcribed all the same; lines of plain text have
    an empty one for it, and other forms leave it out.

    For example: heedful transcribe runs/asr a.wav b.flac
    """
    if sum((timestamps, as_json, srt)) > 1:
        raise SettingError("--timestamps, --json and --srt are forms of the output; give one of them.")
    if srt and len(files) > 1:
        raise SettingError(f"--srt writes the subtitles of one recording, and {len(files)} were given; give one.")
    if Path("-") in files and not Path("-").exists():
        raise SettingError("recordings are read from files, and - is none; give paths.")
    check_outputs(output)
    transcriber = open_transcriber(model, compute)
    lines = timestamps or (word_timestamps and not as_json and not srt)
    options = drop_unset(search, language=language) | {"timestamps": lines or as_json or srt}
    options |= {"word_timestamps": word_timestamps}
    errors: dict[int, DataError] = {}
    with output_lines(output, *files) as put:
        transcripts = transcriber.stream(files, unreadable=errors.__setitem__, **options)
        for number, (file, transcript) in enumerate(zip(files, transcripts, strict=True)):
            if number not in errors:
                name = f"{file}: " if lines and len(files) > 1 else ""
                for line in _lines(file, transcript, lines, as_json, srt, word_timestamps):
                    put(name + line)
                continue
            if len(files) == 1:
                raise errors[number]
            print(f"error: {errors[number]}", file=sys.stderr)
            if not (lines or as_json):
                put("")
    if errors:
        raise typer.Exit(2)


def _lines(file: Path, transcript: Transcript, timestamps: bool, as_json: bool, srt: bool, words: bool) -> list[str]:
    from heedful.inference.transcript_formats import as_object, clock, subrip, word_segments

    if not transcript.text:
        print(f"{file}: no speech was found.", file=sys.stderr)
    if as_json:
        return [json.dumps({"file": str(file)} | as_object(transcript), ensure_ascii=False)]
    segments = word_segments(transcript.segments) if words else transcript.segments
    if srt:
        return subrip(segments).splitlines()
    if timestamps:
        return [f"[{clock(segment.start)} --> {clock(segment.end)}] {segment.text}" for segment in segments]
    return [transcript.text]
