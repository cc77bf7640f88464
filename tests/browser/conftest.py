"""Chromium, and pages of small models to open in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from heedful.inside import Explanation, explain
from tests.browser.chromium import Browser, program
from tests.inside.conftest import make_folder, tokenizer

__all__ = ["make_folder", "tokenizer"]

TEXT = "The old man sleeps while the children read a book."


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if program() is None:
        pytest.skip("no Chromium here (apt-get install chromium): the page is not tested in a browser")
    started = Browser()
    yield started
    started.close()


@pytest.fixture(scope="session")
def make_page(make_folder, tmp_path_factory):
    """An explanation and the file of its page, for a model of a family."""
    folder = tmp_path_factory.mktemp("pages")
    made: dict[object, tuple[Explanation, Path]] = {}

    def make(family: str = "encoder-decoder", text: str = TEXT, target: str | None = None, **changes):
        key = (family, text, target, *sorted(changes.items()))
        if key not in made:
            result, path = explain(make_folder(family, **changes), text, target), folder / f"{len(made)}.html"
            result.save(path)
            made[key] = result, path
        return made[key]

    return make
