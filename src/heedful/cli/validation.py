"""What a run does with its model at each validation: it uses it as a user would."""

from __future__ import annotations

from heedful.evaluate import quick_scores
from heedful.folder import Folder
from heedful.generate import Generator
from heedful.train.language import Language
from heedful.train.loop import Run
from heedful.train.task import Scores
from heedful.train.translation import Translation
from heedful.translate import Translator


def measure(run: Run, folder: Folder) -> Scores:
    """Scores that take more than the loss."""
    if isinstance(run.task, Translation):
        return _translate(run, run.task, folder)
    return {}


def show(run: Run, folder: Folder) -> list[str]:
    """Lines by which one sees what the model has learned."""
    if isinstance(run.task, Language) and run.config.train.sample:
        written = Generator(folder, device=str(run.ranks.device)).generate(
            max_tokens=run.config.train.sample, temperature=0.8, seed=run.config.train.seed
        )
        return ["", *written.split("\n"), ""]
    return []


def _translate(run: Run, task: Translation, folder: Folder) -> Scores:
    sentences = task.store.valid_text[: run.config.train.valid_sentences]
    translated = Translator([folder], device=str(run.ranks.device)).translate([source for source, _ in sentences])
    normalise = task.store.target_tokenizer.normalise  # a model of lower-case text is not blamed for its case
    return quick_scores(translated, [normalise(target) for _, target in sentences])
