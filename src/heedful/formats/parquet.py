"""Parquet files of pairs, by pyarrow (an extra): columns as in CSV, or a column `translation` of languages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from heedful.errors import DataError, SettingError
from heedful.formats.json_files import object_segment
from heedful.formats.language_tags import WantedLanguages
from heedful.formats.segment import Segment

ROWS = 10_000  # read at once


def read_parquet(path: Path, languages: WantedLanguages) -> Iterator[Segment]:
    """The pairs of a Parquet file, row by row."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise SettingError(
            f"{path} is a Parquet file; install pyarrow to read it: pip install heedful[parquet]."
        ) from None
    number = 0
    try:
        file = parquet.ParquetFile(path)
        for batch in file.iter_batches(ROWS):
            for row in batch.to_pylist():
                number += 1
                yield object_segment(row, languages, number)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet after row {number} ({error}); copy it again.") from None
