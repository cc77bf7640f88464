"""What a run does with its model at each validation, and with the best one in the end: it uses it as a user would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from heedful.evaluation.metrics import label_scores, quick_scores
from heedful.inference.encoder import Encoder
from heedful.inference.generator import Generator
from heedful.inference.translator import Translator
from heedful.storage.folder import ModelFolder, load_folder, save_search
from heedful.training.clock import SEARCH_SHARE
from heedful.training.loop import TrainingRun
from heedful.training.tasks.classification import ClassificationTask
from heedful.training.tasks.language_model import LanguageModelTask
from heedful.training.tasks.masked_lm import MaskedLMTask
from heedful.training.tasks.task import Scores
from heedful.training.tasks.translation import TranslationTask

ALPHA_STEP, LARGEST_ALPHA = 0.2, 1.0
CHUNK = 25  # sentences between two looks at the clock


def measure(run: TrainingRun, folder: ModelFolder) -> Scores:
    """Scores that take more than the loss."""
    if isinstance(run.task, TranslationTask):
        return _translate(run, run.task, folder)
    if isinstance(run.task, ClassificationTask):
        return _classify(run, run.task, folder)
    return {}


def show(run: TrainingRun, folder: ModelFolder) -> list[str]:
    """Lines by which one sees what the model has learned."""
    if isinstance(run.task, LanguageModelTask) and run.config.train.sample:
        written = Generator(folder, device=str(run.ranks.device)).generate(
            max_tokens=run.config.train.sample, temperature=0.8, seed=run.config.train.seed
        )
        return ["", *written.split("\n"), ""]
    if isinstance(run.task, MaskedLMTask):
        return _fill(run, run.task, folder)
    return []


def closing_searches(run: TrainingRun) -> int:
    """How often `settle_search` translates the validation set at least."""
    settled = not isinstance(run.task, TranslationTask) or "length_penalty" in run.config.search.model_fields_set
    return 0 if settled else 2


def settle_search(run: TrainingRun, out: Path) -> None:
    """Choose the length penalty of a translator by BLEU on the validation set, unless it was given.

    Models that have not learned for long, or from little, prefer sentences that are too short. The paper chose its
    penalty on the development set, too. With 1 a sentence counts for about its mean token; more would reward length for
    itself, and fit how long the references of this one set are. A run of a given time tries what there is time for.
    """
    if not isinstance(run.task, TranslationTask) or not closing_searches(run):
        return
    if not run.clock.affords(1):
        run.report.say(f"length penalty {run.config.search.length_penalty:g}: no time is left to try others")
        return
    task, folder = run.task, load_folder(out)

    def bleu(alpha: float) -> float:
        if not run.clock.affords(1):
            return 0.0  # no better than what is known
        search = folder.search.model_copy(update={"length_penalty": alpha})
        return _translate(run, task, replace(folder, search=search))["valid_bleu"]

    assert run.state.best is not None  # its BLEU is by the penalty that the run has validated with
    alpha, best = climb(bleu, run.config.search.length_penalty, run.state.best[0], ALPHA_STEP, LARGEST_ALPHA)
    save_search(out, folder.search.model_copy(update={"length_penalty": alpha}))
    run.report.say(f"length penalty {alpha:g}, chosen on the validation set: BLEU {best:.2f}")


def climb(
    score: Callable[[float], float], start: float, reached: float, step: float, most: float
) -> tuple[float, float]:
    """Up from `start`, whose score is known, while it rises; if it does not, down, while it does, to no less than 0."""
    best = start
    for direction in (step, -step):
        while 0 <= (there := round(best + direction, 6)) <= most and (found := score(there)) > reached:
            best, reached = there, found
        if best != start:
            break
    return best, reached


def _translate(run: TrainingRun, task: TranslationTask, folder: ModelFolder) -> Scores:
    sentences = task.corpus.valid_text[: run.state.valid_sentences or run.config.train.valid_sentences]
    translator = Translator([folder], device=str(run.ranks.device))
    translated = _translate_in_time(run, translator, [source for source, _ in sentences])
    normalise = task.corpus.target_tokenizer.normalize  # a model of lower-case text is not blamed for its case
    return quick_scores(translated, [normalise(target) for _, target in sentences[: len(translated)]])


def _translate_in_time(run: TrainingRun, translator: Translator, sources: list[str]) -> list[str]:
    """All sentences; at the first validation of a run of a given time those that there is time for.

    Later validations translate as many, so that they can be compared.
    """
    if not run.clock.given or run.state.validated:
        return translator.translate(sources)
    began, translated = run.clock.now(), list[str]()
    while len(translated) < len(sources) and not run.clock.exceeded(SEARCH_SHARE, began):
        translated += translator.translate(sources[len(translated) : len(translated) + CHUNK])
    if len(translated) < len(sources):
        run.state.valid_sentences = len(translated)
        time = run.config.train.time
        run.report.say(f"BLEU is of the first {len(translated)} validation sentences: {time} is too short for more")
    return translated


def _classify(run: TrainingRun, task: ClassificationTask, folder: ModelFolder) -> Scores:
    examples = task.corpus.valid_examples
    encoder = Encoder(folder, device=str(run.ranks.device))
    encoder.notice = lambda text: None  # the report has said how many are cut
    found = encoder.classify([each.text for each in examples], [each.second for each in examples])
    return label_scores([each.label for each in found], [each.label for each in examples])


def _fill(run: TrainingRun, task: MaskedLMTask, folder: ModelFolder) -> list[str]:
    """The first words of the held-out text, one of them hidden."""
    encoder = Encoder(folder, device=str(run.ranks.device))
    length = min(24, task.block - 3)
    words = encoder.tokenizer.decode(task.corpus.valid[:length].tolist()).split()
    if len(words) < 3:
        return []
    hidden = words[len(words) // 2]
    words[len(words) // 2] = "[MASK]"
    guesses = encoder.fill_mask(" ".join(words), top=3)[0]
    likely = ", ".join(f"{each.token} {each.probability:.2f}" for each in guesses)
    return [" ".join(words), f"it was {hidden!r}; guessed: {likely}"]
