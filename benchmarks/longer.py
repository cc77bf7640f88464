"""Longer than trained: which systems hold up on input that is longer than all they have seen?

    python benchmarks/longer.py --minutes 60 --seeds 2 --picture docs/images/longer.svg
    python benchmarks/longer.py --tasks copy counting brackets --systems LSTM Transformer universal
    python benchmarks/longer.py --tasks brackets --systems sinusoidal learned syntax
    python benchmarks/longer.py --tasks copy reverse addition --systems neural-gpu --seeds 3 --curriculum

Every position scheme of the Transformer, and an LSTM with additive attention, or the systems that are given, learn a
task from short input only; then they are tested up to four times as long, greedily. The tasks: copy or reverse digits;
add two binary numbers, the lowest bit first; counting, which answers n times one symbol with n times another; brackets,
which closes all open brackets of two kinds; and translate, the embedded grammar. Syntax positions get the nesting of
the brackets as a tree and have no other task. Shown is the share of tokens that are
right, each in its place, and printed beside it that of outputs that are right as a whole. With --curriculum training
begins with one symbol, and a longer one follows when the loss is small. All models get the same share
of the time, which is the processor's, so that other work on the machine takes nothing from them.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from heedful import demo
from heedful.config import ModelConfig
from heedful.data.batch import Batch
from heedful.inference.torch_backend import ModelNextToken
from heedful.model.transformer import EncoderDecoder, build_model
from heedful.search import SearchOptions
from heedful.search.beam import beam_search
from heedful.text import Tokenizer
from heedful.text.vocabulary import train_vocabulary
from heedful.training.losses import translation_loss

sys.path.insert(0, str(Path(__file__).parent))
from drawing import figure

SCHEMES = ("sinusoidal", "learned", "rotary", "alibi", "relative")
NEURAL_GPU: dict[str, object] = {"architecture": "neural-gpu", "d_model": 24, "unfold_ratio": 1.0, "unfold_extra": 1}
SYSTEMS: dict[str, dict[str, object]] = {
    **{name: {"positions": name} for name in SCHEMES},
    "syntax": {"positions": "syntax"},
    "LSTM": {"architecture": "rnn", "encoder_layers": 1, "decoder_layers": 1},
    "Transformer": {},
    "universal": {"universal": True, "act_halting": True, "encoder_layers": 4, "decoder_layers": 4},
    "bytenet": {"architecture": "bytenet", "encoder_layers": 5, "decoder_layers": 5},
    "neural-gpu": NEURAL_GPU | {"autoregressive": False},
    "extended-neural-gpu": NEURAL_GPU,
}
BATCH = {"neural-gpu": 32, "extended-neural-gpu": 32}  # pairs in an update; 128 for all others
# Longest source in training, in tokens without the end; the bits of one number in addition.
SHORT = {"copy": 8, "reverse": 8, "addition": 8, "counting": 8, "brackets": 8, "translate": 9}
FACTORS = [1, 1.5, 2, 3, 4]
TESTED = 100  # sequences of each length
Pair = tuple[list[int], list[int]]


class Symbols:
    """An algorithm over from 1 to 8 symbols; tested on so many symbols exactly."""

    vocabulary = 14

    def __init__(self, task: str, seed: int) -> None:
        self.task, self.random, self.short = task, random.Random(seed), SHORT[task]

    def pair(self, length: int) -> Pair:
        match self.task:
            case "addition":
                return self.sum(length)
            case "counting":
                return [4] * length, [5] * length
            case "brackets":
                return self.brackets(length)
        digits = self.random.choices(range(4, 14), k=length)
        return digits, digits[:: 1 if self.task == "copy" else -1]

    def sum(self, bits: int) -> Pair:
        """Two numbers with a sign between them, and their sum, the lowest bit first; 4 and 5 are the bits, 6 is +."""
        first, second = self.random.getrandbits(bits), self.random.getrandbits(bits)

        def digits(number: int, count: int) -> list[int]:
            return [4 + (number >> place & 1) for place in range(count)]

        return [*digits(first, bits), 6, *digits(second, bits)], digits(first + second, bits + 1)

    def brackets(self, length: int) -> Pair:
        """Brackets of two kinds (4 and 6 open, 5 and 7 close), and what closes those that are still open."""
        written: list[int] = []
        pending: list[int] = []  # closing brackets of the open ones
        for _ in range(length):
            if pending and self.random.random() < 0.35:
                written.append(pending.pop())
            else:
                written.append(self.random.choice((4, 6)))
                pending.append(written[-1] + 1)
        return written, pending[::-1]

    def train(self, count: int) -> list[Pair]:
        return [self.pair(self.random.randint(1, self.short)) for _ in range(count)]

    def test(self, factor: float) -> list[Pair]:
        return [self.pair(round(self.short * factor)) for _ in range(TESTED)]


class Curriculum:
    """Lengths from 1 on, one more when the loss of the longest is small; a batch has one length, mostly the longest."""

    def __init__(self, corpus: Symbols) -> None:
        self.corpus, self.longest, self.length, self.loss = corpus, 1, 1, 1.0

    def train(self, count: int) -> list[Pair]:
        draw = self.corpus.random
        any_length = draw.randint(1, self.corpus.short if draw.random() < 0.25 else self.longest)
        self.length = self.longest if draw.random() < 0.6 else any_length
        return [self.corpus.pair(self.length) for _ in range(count)]

    def note(self, loss: float) -> None:
        """Take the loss of the last batch into account."""
        if self.length == self.longest:
            self.loss = 0.95 * self.loss + 0.05 * loss
        if self.loss < 0.15 and self.longest < self.corpus.short:
            self.longest, self.loss = self.longest + 1, 0.6


class Sentences:
    """The grammar's sentences of up to 9 tokens; tested on those up to so much longer, and longer than before."""

    def __init__(self, seed: int) -> None:
        self.random, self.short = random.Random(seed), SHORT["translate"]
        pairs = [(item.source, item.target) for item in demo.generate(12_000, seed=5)]
        self.tokenizer: Tokenizer = train_vocabulary([text for pair in pairs for text in pair], 1200)
        self.vocabulary = self.tokenizer.vocab_size
        encoded = [(self.tokenizer.encode(s), self.tokenizer.encode(t)) for s, t in pairs]
        self.seen = [pair for pair in encoded if len(pair[0]) <= self.short]
        self.unseen, self.seen = self.seen[:TESTED], self.seen[TESTED:]
        self.longer = [pair for pair in encoded if len(pair[0]) > self.short]

    def train(self, count: int) -> list[Pair]:
        return self.random.choices(self.seen, k=count)

    def test(self, factor: float) -> list[Pair]:
        if factor == 1:
            return self.unseen
        before = self.short * FACTORS[FACTORS.index(factor) - 1]
        return [pair for pair in self.longer if before < len(pair[0]) <= self.short * factor][:TESTED]


def batch(pairs: list[Pair]) -> Batch:
    source, target = padded([[*s, 3] for s, _ in pairs]), padded([[2, *t, 3] for _, t in pairs])
    lengths = torch.tensor([[len(s) + 1, len(t) + 1] for s, t in pairs])
    return Batch(source, target, lengths[:, 0], lengths[:, 1], int(lengths[:, 1].sum()))


def bracket_trees(ids: Tensor) -> Tensor:
    """(B, S) -> (B, S, 2): each symbol as a word of its own, below the bracket that it is in or that it closes."""
    heads = torch.arange(ids.size(1)).repeat(len(ids), 1)
    for row, symbols in enumerate(ids.tolist()):
        pending: list[int] = []
        for place, symbol in enumerate(symbols):
            if pending and symbol in (4, 5, 6, 7):
                heads[row, place] = pending[-1]
            if symbol in (4, 6):
                pending.append(place)
            elif symbol in (5, 7):
                pending.pop()
    return torch.stack((torch.arange(ids.size(1)).expand_as(heads), heads), 2)


def padded(rows: list[list[int]]) -> Tensor:
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    for row, tokens in zip(ids, rows, strict=True):
        row[: len(tokens)] = torch.tensor(tokens)
    return ids


def trained(
    changes: dict[str, object], corpus: Symbols | Sentences | Curriculum, seconds: float, seed: int, size: int
) -> EncoderDecoder:
    """A model after so many seconds of each thread, by a rate that falls to zero with them."""
    torch.manual_seed(seed)
    sizes = {"d_model": 64, "d_ff": 256, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
    vocabulary = (corpus.corpus if isinstance(corpus, Curriculum) else corpus).vocabulary
    sizes |= {"vocab_size": vocabulary, "max_length": 256, "pre_norm": True, "relative_window": 8}
    model = build_model(ModelConfig.model_validate(sizes | changes))
    assert isinstance(model, EncoderDecoder)
    model.trees = bracket_trees if changes.get("positions") == "syntax" else None
    optimiser = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    seconds *= torch.get_num_threads()
    began, update = time.process_time(), 0
    while (spent := (time.process_time() - began) / seconds) < 1:
        update += 1
        for group in optimiser.param_groups:
            group["lr"] = 3e-3 * min(1.0, update / 100) * (1 - spent)
        loss = translation_loss(model, batch(corpus.train(size)))
        optimiser.zero_grad()
        (loss.smoothed / loss.tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if isinstance(corpus, Curriculum):
            corpus.note(float(loss.smoothed.detach()) / loss.tokens)
    return model.eval()


def right(model: EncoderDecoder, pairs: list[Pair]) -> tuple[float, float]:
    """The share of tokens that are right in their places, the end among them, and of outputs that are so as a whole."""
    batched = batch(pairs)
    options = SearchOptions(beam=1, max_length=int(batched.target_lengths.max()) + 5)
    result = beam_search(ModelNextToken(model), batched.source, batched.source_lengths, options)
    tokens = []
    for (best, *_), (_, target) in zip(result, pairs, strict=True):
        actual, expected = [*best.ids, 3], [*target, 3]
        tokens.append(sum(a == b for a, b in zip(actual, expected, strict=False)) / max(len(actual), len(expected)))
    return statistics.mean(tokens), tokens.count(1.0) / len(tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help="training time of all models together")
    parser.add_argument("--tasks", nargs="+", choices=list(SHORT), default=["copy", "reverse", "translate"])
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=[*SCHEMES, "LSTM"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--curriculum", action="store_true", help="short input first; not for translate")
    parser.add_argument("--picture", type=Path, help="where to draw the shares: .svg or .png")
    arguments = parser.parse_args()
    if "syntax" in arguments.systems and arguments.tasks != ["brackets"]:
        parser.error("syntax positions need trees, and only brackets have them; give --tasks brackets")
    if arguments.curriculum and "translate" in arguments.tasks:
        parser.error("sentences have no curriculum; leave out translate or --curriculum")
    torch.set_num_threads(arguments.threads)
    seconds = 60 * arguments.minutes / (len(arguments.tasks) * len(arguments.systems) * arguments.seeds)
    print(f"{seconds:.0f} s a model, {arguments.seeds} seed(s); share of right tokens, mean (range); of right outputs")
    results: dict[str, dict[str, Tensor]] = {}
    for task in arguments.tasks:
        short = SHORT[task]
        print(f"{task}: trained on up to {short} tokens, tested on {', '.join(f'{short * f:g}' for f in FACTORS)}")
        results[task] = {}
        for name in arguments.systems:
            shares = []
            for seed in range(1, arguments.seeds + 1):
                corpus = Sentences(seed) if task == "translate" else Symbols(task, seed)
                taught = Curriculum(corpus) if arguments.curriculum and isinstance(corpus, Symbols) else corpus
                model = trained(SYSTEMS[name], taught, seconds, seed, BATCH.get(name, 128))
                shares.append([right(model, corpus.test(factor)) for factor in FACTORS])
            result, whole = torch.tensor(shares).unbind(2)  # (seeds, factors)
            results[task][name] = result
            cells = [
                f"{m:.2f} ({a:.2f}-{b:.2f}); {w:.2f}"
                for m, a, b, w in zip(result.mean(0), result.amin(0), result.amax(0), whole.mean(0), strict=True)
            ]
            print(f"  {name:19} {'  '.join(cells)}", flush=True)
    if arguments.picture:
        draw(results, arguments.picture)


def draw(results: dict[str, dict[str, Tensor]], path: Path) -> None:
    with figure(path, len(results), (max(6, 1 + 4 * len(results)), 4.4), legend=6) as axes:
        for axis, (task, systems) in zip(axes, results.items(), strict=True):
            for name, result in systems.items():
                axis.plot(FACTORS, result.mean(0), label=name)
            axis.set(xlabel="length, as a multiple of the longest in training", ylim=(-0.03, 1.03), title=task)
        axes[0].set_ylabel("tokens that are right in their places")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
