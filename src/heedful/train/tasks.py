"""Which task the settings describe."""

from heedful.config import DataSettings, RunConfig
from heedful.errors import SettingError
from heedful.train.classification import Classification
from heedful.train.language import Language
from heedful.train.masked import MaskedLanguage
from heedful.train.task import Task
from heedful.train.translation import Translation


def task_for(config: RunConfig) -> type[Task]:
    """The kind of task, from the files that are given and the family that is asked for."""
    data, family = config.data, config.train.family
    given = [name for name in ("source", "pairs", "text", "labelled") if getattr(data, name)]
    if len(given) > 1 and given != ["source", "pairs"]:  # which the reader of pairs explains
        raise SettingError(f"data.{given[0]} and data.{given[1]} are both given; a run learns from one of them.")
    kinds: dict[str, dict[str | None, type[Task]]] = {
        "text": {None: Language, "decoder": Language, "encoder": MaskedLanguage},
        "labelled": {None: Classification, "encoder": Classification},
    }
    choice = kinds.get(given[0] if given else "", {None: Translation, "encoder-decoder": Translation})
    if family not in choice:
        what = {"text": "plain text", "labelled": "labelled text"}.get(given[0] if given else "", "sentence pairs")
        wanted = " or ".join(str(name) for name in choice if name)
        raise SettingError(f"train.family is {family}, but {what} trains the {wanted} family.")
    _check_validation(data, given)
    if config.text.kind != "bpe" and choice[family] is Translation:
        raise SettingError(
            f"text.kind is {config.text.kind}, but the vocabulary of a translator is learned: leave it out."
        )
    return choice[family]


def _check_validation(data: DataSettings, given: list[str]) -> None:
    """Refuse validation files of another kind than the corpus, which would not be read."""
    pairs = ["valid_source", "valid_target", "valid_pairs"]
    fitting = {"source": pairs, "pairs": pairs, "text": ["valid_text"], "labelled": ["valid_labelled"]}
    for name in [*pairs, "valid_text", "valid_labelled"]:
        if given and getattr(data, name) and name not in fitting[given[0]]:
            wanted = " or ".join(f"data.{each}" for each in fitting[given[0]])
            raise SettingError(
                f"data.{name} is given, but this run learns from data.{given[0]}; leave it out, or give {wanted}."
            )
