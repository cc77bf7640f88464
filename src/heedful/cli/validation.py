"""What a run does with its model at each validation: it uses it as a user would."""

from __future__ import annotations

from heedful.encode import Encoder
from heedful.evaluate import label_scores, quick_scores
from heedful.folder import Folder
from heedful.generate import Generator
from heedful.train.classification import Classification
from heedful.train.language import Language
from heedful.train.loop import Run
from heedful.train.masked import MaskedLanguage
from heedful.train.task import Scores
from heedful.train.translation import Translation
from heedful.translate import Translator


def measure(run: Run, folder: Folder) -> Scores:
    """Scores that take more than the loss."""
    if isinstance(run.task, Translation):
        return _translate(run, run.task, folder)
    if isinstance(run.task, Classification):
        return _classify(run, run.task, folder)
    return {}


def show(run: Run, folder: Folder) -> list[str]:
    """Lines by which one sees what the model has learned."""
    if isinstance(run.task, Language) and run.config.train.sample:
        written = Generator(folder, device=str(run.ranks.device)).generate(
            max_tokens=run.config.train.sample, temperature=0.8, seed=run.config.train.seed
        )
        return ["", *written.split("\n"), ""]
    if isinstance(run.task, MaskedLanguage):
        return _fill(run, run.task, folder)
    return []


def _translate(run: Run, task: Translation, folder: Folder) -> Scores:
    sentences = task.store.valid_text[: run.config.train.valid_sentences]
    translated = Translator([folder], device=str(run.ranks.device)).translate([source for source, _ in sentences])
    normalise = task.store.target_tokenizer.normalise  # a model of lower-case text is not blamed for its case
    return quick_scores(translated, [normalise(target) for _, target in sentences])


def _classify(run: Run, task: Classification, folder: Folder) -> Scores:
    examples = task.store.valid_examples
    encoder = Encoder(folder, device=str(run.ranks.device))
    encoder.notice = lambda text: None  # the report has said how many are cut
    found = encoder.classify([each.text for each in examples], [each.second for each in examples])
    return label_scores([each.label for each in found], [each.label for each in examples])


def _fill(run: Run, task: MaskedLanguage, folder: Folder) -> list[str]:
    """The first words of the held-out text, one of them hidden."""
    encoder = Encoder(folder, device=str(run.ranks.device))
    length = min(24, task.block - 3)
    words = encoder.tokenizer.decode(task.store.valid[:length].tolist()).split()
    if len(words) < 3:
        return []
    hidden = words[len(words) // 2]
    words[len(words) // 2] = "[MASK]"
    guesses = encoder.fill(" ".join(words), top=3)[0]
    likely = ", ".join(f"{each.token} {each.probability:.2f}" for each in guesses)
    return [" ".join(words), f"it was {hidden!r}; guessed: {likely}"]
