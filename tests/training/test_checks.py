"""Settings that do not go with the task or with the model are refused before the corpus is read."""

import pytest

from heedful.config import RunConfig, load_config
from heedful.errors import SettingError
from heedful.training.checks import check_options
from heedful.training.tasks import TASKS


def settings(*words: str) -> RunConfig:
    return load_config(None, words)


@pytest.mark.parametrize("task", ["language-model", "masked-lm", "classification"])
@pytest.mark.parametrize("word", ["train.bpe_dropout=0.1", "train.rdrop=5"])
def test_bpe_dropout_and_rdrop_are_for_translators(task: str, word: str) -> None:
    with pytest.raises(SettingError, match=rf"{word.partition('=')[0]} is for a translator"):
        check_options(settings(word), TASKS[task])  # type: ignore[index]
    check_options(settings(word), TASKS["translation"])
    check_options(settings(), TASKS[task])  # type: ignore[index]


def test_rdrop_does_not_go_with_act_halting() -> None:
    halting = ["model.universal=true", "model.act_halting=true", "model.pre_norm=true"]
    with pytest.raises(SettingError, match="does not work with"):
        check_options(settings(*halting, "train.rdrop=5"), TASKS["translation"])
    check_options(settings(*halting), TASKS["translation"])
