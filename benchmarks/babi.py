"""bAbI: questions about stories, by a memory network and by a Universal Transformer.

    python benchmarks/babi.py path/to/babi --minutes 10

For every pair of files qaN_…_train.txt and qaN_…_test.txt in the folder, plain or gzipped: the error on the test
questions of each system after the same processor time, one model for each task. With --story the last memory network
tells which sentence it read at which hop for the first test question. One thread.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from pathlib import Path

import torch
from torch import nn

from heedful.config import ModelConfig
from heedful.data.batch import LabeledBatch
from heedful.data.labeled_corpus import LabeledExample, read_labeled
from heedful.model.baselines.memory_network import sentence_numbers
from heedful.model.transformer import EncoderModel, build_model
from heedful.training.losses import classification_loss

PAD, BOS, EOS, UNKNOWN = 0, 2, 3, 1
SYSTEMS: dict[str, dict[str, object]] = {
    "memory network": {"architecture": "memory-network", "d_model": 64, "encoder_layers": 3},
    "universal": {"universal": True, "act_halting": True, "encoder_layers": 4, "d_model": 64, "pre_norm": True},
}
RATES = {"memory network": 5e-3, "universal": 2e-3}


class Stories:
    """The examples of one task as word ids."""

    def __init__(self, train: Path, test: Path) -> None:
        self.train, self.test = read_labeled(train), read_labeled(test)
        words = sorted({word for each in self.train for word in split(f"{each.text} {each.second}")})
        self.words = {word: number for number, word in enumerate(words, 4)}
        self.labels = tuple(sorted({each.label for each in self.train}))

    @property
    def vocabulary(self) -> int:
        return len(self.words) + 4

    @property
    def ends(self) -> tuple[int, ...]:
        return tuple(self.words[mark] for mark in ".?" if mark in self.words)

    def ids(self, text: str) -> list[int]:
        return [self.words.get(word, UNKNOWN) for word in split(text)]

    def batch(self, examples: list[LabeledExample]) -> LabeledBatch:
        rows = [([BOS, *self.ids(each.text), EOS], [*self.ids(each.second), EOS]) for each in examples]
        longest = max(len(a) + len(b) for a, b in rows)
        ids, types = torch.zeros(2, len(rows), longest, dtype=torch.long)
        for row, (a, b) in enumerate(rows):
            ids[row, : len(a) + len(b)] = torch.tensor([*a, *b])
            types[row, len(a) : len(a) + len(b)] = 1
        known = [self.labels.index(each.label) if each.label in self.labels else 0 for each in examples]
        return LabeledBatch(ids, types, torch.tensor(known))


def split(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text.lower())


def train(name: str, stories: Stories, seconds: float) -> EncoderModel:
    """A model after so many seconds of the processor, by a rate that falls to zero with them."""
    torch.manual_seed(1)
    sizes = {"family": "encoder", "vocab_size": stories.vocabulary, "labels": stories.labels, "token_types": 2}
    sizes |= {"n_heads": 4, "d_ff": 128, "max_length": 2048, "dropout": 0.0, "head": "none", "scale_embedding": False}
    model = build_model(ModelConfig.model_validate(sizes | {"sentence_ends": stories.ends} | SYSTEMS[name]))
    assert isinstance(model, EncoderModel)
    optimizer, draw = torch.optim.Adam(model.parameters()), random.Random(1)
    began, order = time.process_time(), list[LabeledExample]()
    while (spent := (time.process_time() - began) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = RATES[name] * min(1.0, 20 * spent) * (1 - spent)
        if len(order) < 32:
            order = draw.sample(stories.train, len(stories.train))
        loss = classification_loss(model, stories.batch([order.pop() for _ in range(32)]))
        optimizer.zero_grad()
        (loss.smoothed / loss.tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


@torch.inference_mode()
def error(model: EncoderModel, stories: Stories) -> float:
    """The share of test questions with a wrong answer, in percent."""
    wrong = 0
    for start in range(0, len(stories.test), 50):
        examples = stories.test[start : start + 50]
        batch = stories.batch(examples)
        logits = model.classify(model(batch.ids, types=batch.types), batch.ids != PAD)
        answers = [stories.labels[index] for index in logits.argmax(1).tolist()]
        wrong += sum(answer != each.label for answer, each in zip(answers, examples, strict=True))
    return 100 * wrong / len(stories.test)


@torch.inference_mode()
def tell(model: EncoderModel, stories: Stories) -> None:
    """Print the weight of every sentence of the first test question at every hop."""
    example, batch = stories.test[0], stories.batch(stories.test[:1])
    seen: list[torch.Tensor] = []
    hooks = [
        module.register_forward_hook(lambda tap, inputs, out: seen.append(out[0, 0, 0]))
        for name, module in model.named_modules()
        if name.endswith("self.weights")
    ]
    model(batch.ids, types=batch.types)
    for hook in hooks:
        hook.remove()
    numbers = sentence_numbers(batch.ids, batch.ids != PAD, model.config)[0]
    for number, sentence in enumerate(re.findall(r"[^.]+\.", example.text), 1):
        print("  " + "  ".join(f"{float(hop[numbers == number].sum()):.2f}" for hop in seen), sentence.strip())
    print(f"  {example.second} {example.label}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=10, help="training time of all models together")
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--story", action="store_true", help="print what every hop reads for a question of each task")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tasks = sorted(options.folder.glob("qa*_train.txt*"), key=lambda path: int(re.findall(r"\d+", path.name)[0]))
    seconds = 60 * options.minutes / (len(tasks) * len(options.systems))
    print(f"{seconds:.0f} s of one core for each model; error in percent")
    for path in tasks:
        stories = Stories(path, path.with_name(path.name.replace("train", "test")))
        errors = []
        for name in options.systems:
            model = train(name, stories, seconds)
            errors.append(f"{name} {error(model, stories):.1f}")
            if options.story and name == "memory network":
                tell(model, stories)
        print(f"{path.name.split('_train')[0]:28} {' · '.join(errors)}", flush=True)


if __name__ == "__main__":
    main()
