"""The tasks, and which of them a configuration describes."""

from heedful.config import DataSettings, RunConfig, TaskName
from heedful.errors import SettingError
from heedful.storage.folder import ModelFolder
from heedful.training.tasks.classification import ClassificationTask, RegressionTask
from heedful.training.tasks.denoising import DenoisingTask
from heedful.training.tasks.language_model import LanguageModelTask
from heedful.training.tasks.masked_lm import MaskedLMTask
from heedful.training.tasks.question_answering import QuestionAnsweringTask
from heedful.training.tasks.similarity import SimilarityTask
from heedful.training.tasks.speech import SpeechTask
from heedful.training.tasks.summarization import SummarizationTask
from heedful.training.tasks.tagging import TaggingTask
from heedful.training.tasks.task import Task
from heedful.training.tasks.translation import TranslationTask

TASKS: dict[TaskName, type[Task]] = {
    "translation": TranslationTask,
    "language-model": LanguageModelTask,
    "masked-lm": MaskedLMTask,
    "classification": ClassificationTask,
    "speech": SpeechTask,
    "regression": RegressionTask,
    "tagging": TaggingTask,
    "question-answering": QuestionAnsweringTask,
    "similarity": SimilarityTask,
    "summarization": SummarizationTask,
    "denoising": DenoisingTask,
}
INPUTS: dict[str, tuple[str, tuple[TaskName, ...]]] = {
    "source": ("sentence pairs", ("translation", "summarization")),
    "pairs": ("sentence pairs", ("translation", "summarization", "similarity")),
    "text": ("plain text", ("language-model", "masked-lm", "denoising")),
    "labeled": ("labeled text", ("classification", "regression", "tagging", "question-answering")),
    "audio": ("a list of recordings", ("speech",)),
}


def task_for(config: RunConfig, init: ModelFolder | None = None) -> type[Task]:
    """The task that is set, or the first one that fits the data files and the `init` model; plain text requires one."""
    data = config.data
    inputs = [name for name in INPUTS if getattr(data, name)]
    if len(inputs) > 1 and inputs != ["source", "pairs"]:  # the reader of pairs explains that
        raise SettingError(f"data.{inputs[0]} and data.{inputs[1]} are both given; a run trains on one of them.")
    what, possible = INPUTS[inputs[0] if inputs else "pairs"]
    wanted = " or ".join(f"data.{name}" for name, (_, tasks) in INPUTS.items() if config.task in tasks)
    if config.task is not None and config.task not in possible and not inputs:
        raise SettingError(f"task is {config.task}, but no data are given for it; set {wanted}.")
    if config.task is not None and config.task not in possible:
        raise SettingError(
            f"task is {config.task}, but {what} can only train {' or '.join(possible)}; "
            f"set another task, or give {wanted} instead of data.{inputs[0]}."
        )
    fitting = [name for name in possible if init is None or TASKS[name].family == init.config.family] or possible
    if config.task is None and len(fitting) > 1 and inputs == ["text"]:
        raise SettingError(
            f"{what} can train more than one kind of model; set task to {' or '.join(fitting)} "
            "(language-model is a GPT, masked-lm a BERT, denoising an encoder-decoder to start from)."
        )
    known = next((name for name in fitting if init is not None and name == init.task), fitting[0])
    task = TASKS[config.task or known]
    _check_validation(data, inputs, task)
    if config.text.kind != "bpe" and issubclass(task, TranslationTask):
        raise SettingError(f"text.kind is {config.text.kind}, but this task learns a BPE vocabulary; leave it out.")
    return task


def _check_validation(data: DataSettings, inputs: list[str], task: type[Task]) -> None:
    """Refuse validation files of another kind than the training data."""
    pairs = ["valid_source", "valid_target", "valid_pairs"]
    fitting = {"source": pairs, "pairs": pairs} | {name: [f"valid_{name}"] for name in ("text", "labeled", "audio")}
    if task is SimilarityTask:
        fitting["pairs"] = ["valid_pairs", "valid_labeled"]  # the latter are similarities to correlate with
    for name in dict.fromkeys(name for names in fitting.values() for name in names):
        if inputs and getattr(data, name) and name not in fitting[inputs[0]]:
            wanted = " or ".join(f"data.{key}" for key in fitting[inputs[0]])
            raise SettingError(
                f"data.{name} is given, but this run trains on data.{inputs[0]}; leave it out, or give {wanted}."
            )
