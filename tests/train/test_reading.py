"""Ways of reading pairs are refused where there are no pairs, or where they do not go with the model."""

import pytest

from heedful.config import RunConfig, read
from heedful.errors import SettingError
from heedful.train.start import _check_reading


def asked(*words: str) -> RunConfig:
    return read(None, words)


@pytest.mark.parametrize("family", ["decoder", "encoder"])
@pytest.mark.parametrize("word", ["train.split=0.1", "train.consistency=5"])
def test_they_are_for_a_translator(family: str, word: str) -> None:
    with pytest.raises(SettingError, match=rf"{word.partition('=')[0]} is for a translator"):
        _check_reading(asked(word).replace(model={"family": family}))
    _check_reading(asked(word))
    _check_reading(asked().replace(model={"family": family}))


def test_halting_tokens_are_read_once() -> None:
    halting = ["model.recurrent_depth=true", "model.halting=true", "model.norm=pre"]
    with pytest.raises(SettingError, match="does not go with"):
        _check_reading(asked(*halting, "train.consistency=5"))
    _check_reading(asked(*halting))
