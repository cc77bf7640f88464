"""Which task the settings describe."""

from heedful.config import DataSettings, RunConfig, TaskName
from heedful.errors import SettingError
from heedful.storage.folder import ModelFolder
from heedful.training.tasks.classification import ClassificationTask
from heedful.training.tasks.language_model import LanguageModelTask
from heedful.training.tasks.masked_lm import MaskedLMTask
from heedful.training.tasks.task import Task
from heedful.training.tasks.translation import TranslationTask

TASKS: dict[TaskName, type[Task]] = {
    "translation": TranslationTask,
    "language-model": LanguageModelTask,
    "masked-lm": MaskedLMTask,
    "classification": ClassificationTask,
}
INPUTS: dict[str, tuple[str, tuple[TaskName, ...]]] = {
    "source": ("sentence pairs", ("translation",)),
    "pairs": ("sentence pairs", ("translation",)),
    "text": ("plain text", ("language-model", "masked-lm")),
    "labeled": ("labeled text", ("classification",)),
}


def task_for(config: RunConfig, init: ModelFolder | None = None) -> type[Task]:
    """The task that is named, or the only one that the files and the model to start from leave open."""
    data = config.data
    given = [name for name in ("source", "pairs", "text", "labeled") if getattr(data, name)]
    if len(given) > 1 and given != ["source", "pairs"]:  # which the reader of pairs explains
        raise SettingError(f"data.{given[0]} and data.{given[1]} are both given; a run learns from one of them.")
    what, possible = INPUTS[given[0] if given else "pairs"]
    if config.task is not None and config.task not in possible:
        raise SettingError(f"task is {config.task}, but {what} trains {' or '.join(possible)}.")
    fitting = [name for name in possible if init is None or TASKS[name].family == init.config.family] or possible
    if config.task is None and len(fitting) > 1:
        raise SettingError(
            f"{what} can train more than one kind of model; say which with --task language-model (a GPT) or"
            " --task masked-lm (a BERT)."
        )
    task = TASKS[config.task or fitting[0]]
    _check_validation(data, given)
    if config.text.kind != "bpe" and task is TranslationTask:
        raise SettingError(
            f"text.kind is {config.text.kind}, but the vocabulary of a translator is learned: leave it out."
        )
    return task


def _check_validation(data: DataSettings, given: list[str]) -> None:
    """Refuse validation files of another kind than the corpus, which would not be read."""
    pairs = ["valid_source", "valid_target", "valid_pairs"]
    fitting = {"source": pairs, "pairs": pairs, "text": ["valid_text"], "labeled": ["valid_labeled"]}
    for name in [*pairs, "valid_text", "valid_labeled"]:
        if given and getattr(data, name) and name not in fitting[given[0]]:
            wanted = " or ".join(f"data.{each}" for each in fitting[given[0]])
            raise SettingError(
                f"data.{name} is given, but this run learns from data.{given[0]}; leave it out, or give {wanted}."
            )
