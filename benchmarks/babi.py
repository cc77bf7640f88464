"""bAbI: questions about stories, by a memory network and by a Universal Transformer.

    python benchmarks/babi.py path/to/babi --minutes 10
    python benchmarks/babi.py path/to/babi --tasks 2 --systems universal --minutes 4

For every pair of files qaN_…_train.txt and qaN_…_test.txt in the folder, plain or gzipped: the error on the test
questions of each system after the same processor time, one model for each task. Both read a sentence as one vector.
With --story the last memory network tells which sentence it read at which hop for the first test question. One thread.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from heedful.config import ModelConfig
from heedful.data.batch import LabeledBatch
from heedful.data.labeled_corpus import LabeledExample, read_labeled
from heedful.model.sentences import sentence_numbers
from heedful.model.transformer import EncoderModel, build_model
from heedful.training.losses import classification_loss

PAD, BOS, EOS, UNKNOWN = 0, 2, 3, 1
BATCH = 32
SYSTEMS: dict[str, dict[str, object]] = {
    "memory network": {"architecture": "memory-network", "d_model": 20, "encoder_layers": 3},
    "universal": {"universal": True, "sentence_input": True, "encoder_layers": 4, "pre_norm": True}
    | {"d_model": 128, "n_heads": 4, "d_ff": 256, "scale_embedding": True},
}
LINEAR_START = 1 / 6  # share of the training without softmax: 20 epochs before 100
Example = tuple[Tensor, Tensor, int]  # ids, types (1: question), index of the answer


class Stories:
    """The examples of one task as word ids."""

    def __init__(self, train: Path, test: Path) -> None:
        examples = read_labeled(train)
        words = sorted({word for example in examples for word in split(f"{example.text} {example.second}")})
        self.words = {word: number for number, word in enumerate(words, 4)}
        self.labels = tuple(sorted({example.label for example in examples}))
        self.train, self.questions = self.encode(examples), read_labeled(test)
        self.test = self.encode(self.questions)

    @property
    def vocabulary(self) -> int:
        return len(self.words) + 4

    @property
    def ends(self) -> tuple[int, ...]:
        return tuple(self.words[mark] for mark in ".?" if mark in self.words)

    def encode(self, examples: list[LabeledExample]) -> list[Example]:
        answers, encoded = {label: index for index, label in enumerate(self.labels)}, []
        for example in examples:
            text, question = [BOS, *self.ids(example.text), EOS], [*self.ids(example.second), EOS]
            types = torch.tensor([0] * len(text) + [1] * len(question))
            encoded.append((torch.tensor(text + question), types, answers.get(example.label, -1)))
        return encoded

    def ids(self, text: str) -> list[int]:
        return [self.words.get(word, UNKNOWN) for word in split(text)]

    def epochs(self, draw: random.Random) -> Iterator[LabeledBatch]:
        """Batches of similar lengths, in random order, again and again."""
        while True:
            order = sorted(draw.sample(self.train, len(self.train)), key=lambda example: len(example[0]))
            yield from map(batch, draw.sample(groups := [*grouped(order)], len(groups)))


def grouped(examples: list[Example]) -> Iterator[list[Example]]:
    return (examples[start : start + BATCH] for start in range(0, len(examples), BATCH))


def batch(examples: list[Example]) -> LabeledBatch:
    ids, types, answers = zip(*examples, strict=True)
    return LabeledBatch(pad_sequence(ids, True), pad_sequence(types, True), torch.tensor(answers))


def split(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text.lower())


def build(name: str, stories: Stories, seed: int) -> EncoderModel:
    torch.manual_seed(seed)
    sizes = {"family": "encoder", "vocab_size": stories.vocabulary, "labels": stories.labels}
    sizes |= {"max_length": 2048, "dropout": 0.0, "head": "none", "scale_embedding": False}
    model = build_model(ModelConfig.model_validate(sizes | {"sentence_ends": stories.ends} | SYSTEMS[name]))
    assert isinstance(model, EncoderModel)
    return model


def train_memory_network(stories: Stories, seconds: float, seed: int) -> EncoderModel:
    """The paper's training: SGD on the sum of the losses, a rate that is halved three times, a linear start."""
    model = build("memory network", stories, seed)
    for weights in model.parameters():
        nn.init.normal_(weights, std=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005)
    for spent, examples in batches(stories, seconds, seed):
        model.encoder.linear = spent < LINEAR_START
        for group in optimizer.param_groups:
            group["lr"] = 0.005 * 0.5 ** int(4 * max(0.0, spent - LINEAR_START) / (1 - LINEAR_START))
        optimizer.zero_grad()
        classification_loss(model, examples).smoothed.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 40.0)
        optimizer.step()
    return model.eval()


def train_universal(stories: Stories, seconds: float, seed: int) -> EncoderModel:
    """Adam with a rate that rises for a twentieth of the time and then falls to zero."""
    model = build("universal", stories, seed)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    for spent, examples in batches(stories, seconds, seed):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, 20 * spent) * (1 - spent)
        optimizer.zero_grad()
        loss = classification_loss(model, examples)
        (loss.smoothed / loss.tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


def batches(stories: Stories, seconds: float, seed: int) -> Iterator[tuple[float, LabeledBatch]]:
    """Batches with the share of the processor time that is spent, until all of it is."""
    began, epochs = time.process_time(), stories.epochs(random.Random(seed))
    while (spent := (time.process_time() - began) / seconds) < 1:
        yield spent, next(epochs)


@torch.inference_mode()
def error(model: EncoderModel, examples: list[Example]) -> float:
    """The share of questions with a wrong answer, in percent."""
    wrong = 0
    for examples_of_batch in grouped(sorted(examples, key=lambda example: len(example[0]))):
        encoded = batch(examples_of_batch)
        logits = model.classify(model(encoded.ids, types=encoded.types), encoded.ids != PAD)
        wrong += int((logits.argmax(1) != encoded.labels).sum())
    return 100 * wrong / len(examples)


def train(name: str, stories: Stories, seconds: float, restarts: int) -> EncoderModel:
    """A model after so many seconds; a memory network's restarts divide them, and the best on training data counts."""
    if name == "universal":
        return train_universal(stories, seconds, 1)
    models = [train_memory_network(stories, seconds / restarts, seed) for seed in range(1, restarts + 1)]
    return min(models, key=lambda model: error(model, stories.train))


@torch.inference_mode()
def tell(model: EncoderModel, stories: Stories) -> None:
    """Print the weight of every sentence of the first test question at every hop."""
    example, encoded = stories.questions[0], batch(stories.test[:1])
    seen: list[Tensor] = []
    hooks = [
        module.register_forward_hook(lambda tap, inputs, out: seen.append(out[0, 0, 0]))
        for name, module in model.named_modules()
        if name.endswith("self.weights")
    ]
    model(encoded.ids, types=encoded.types)
    for hook in hooks:
        hook.remove()
    numbers = sentence_numbers(encoded.ids, encoded.ids != PAD, model.config)[0]
    for number, sentence in enumerate(re.findall(r"[^.]+\.", example.text), 1):
        print("  " + "  ".join(f"{float(hop[numbers == number].sum()):.2f}" for hop in seen), sentence.strip())
    print(f"  {example.second} {example.label}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=10, help="training time of all models together")
    parser.add_argument("--restarts", type=int, default=3, help="of a memory network, which divide its time")
    parser.add_argument("--tasks", nargs="+", type=int, help="numbers of tasks; all that the folder has if not given")
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--story", action="store_true", help="print what every hop reads for a question of each task")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {int(re.findall(r"\d+", path.name)[0]): path for path in options.folder.glob("qa*_train.txt*")}
    if missing := set(options.tasks or ()) - set(found):
        parser.error(f"{options.folder} has no files of task {min(missing)}; it has tasks {sorted(found)}")
    tasks = [found[number] for number in options.tasks or sorted(found)]
    seconds = 60 * options.minutes / (len(tasks) * len(options.systems))
    print(f"{seconds:.0f} s of one core for each task and system; error on the test questions (training) in percent")
    for path in tasks:
        stories = Stories(path, path.with_name(path.name.replace("train", "test")))
        for name in options.systems:
            model = train(name, stories, seconds, options.restarts)
            errors = f"{error(model, stories.test):.1f} ({error(model, stories.train):.1f})"
            print(f"{path.name.split('_train')[0]:28} {name:16} {errors}", flush=True)
            if options.story and name == "memory network":
                tell(model, stories)


if __name__ == "__main__":
    main()
