from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

import heedful.search
from heedful.config import SearchSettings
from heedful.errors import SettingError
from heedful.search import SearchOptions


def test_the_defaults_of_a_folder_are_changed_by_a_request():
    options = SearchOptions.of(SearchSettings(beam=7, length_penalty=0.2), n_best=3, prefix=[[4, 5], []])
    assert (options.beam, options.length_penalty, options.max_extra, options.n_best) == (7, 0.2, 50, 3)
    assert options.prefix == ((4, 5), ())


@pytest.mark.parametrize(
    "change, message",
    [
        ({"beem": 3}, "unknown key search.beem; did you mean beam"),
        ({"beam": 0}, "search.beam is 0"),
        ({"top_p": 0.0}, "search.top_p is 0.0"),
        (
            {"min_length": 20, "max_length": 10},
            r"search: min_length \(20\) is above max_length \(10\); lower min_length",
        ),
        ({"temperature": float("nan")}, "search.temperature is nan"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(change, message):
    with pytest.raises(SettingError, match=message):
        SearchOptions.of(SearchSettings(), **change)


def test_the_limit_of_a_sentence_is_its_own():
    lengths = torch.tensor([0, 3, 8])
    assert SearchOptions(max_extra=2).limits(lengths).tolist() == [2, 5, 10]
    assert SearchOptions(max_extra=0).limits(lengths).tolist() == [1, 3, 8]
    assert SearchOptions(max_extra=2, limit=6).limits(lengths).tolist() == [2, 5, 6]
    assert SearchOptions(max_length=9, limit=6).limits(lengths).tolist() == [6, 6, 6]
    assert SearchOptions(max_extra=0, prefix=[[5, 5, 5, 5], [5], []]).limits(lengths).tolist() == [5, 3, 8]


def test_search_knows_no_model():
    for path in Path(heedful.search.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("heedful"):
                assert node.module.startswith(
                    ("heedful.search", "heedful.config", "heedful.errors", "heedful.audio")
                ), path
