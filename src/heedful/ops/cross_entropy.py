"""Output projection and label-smoothed cross-entropy in one, without ever holding all logits.

With 37,000 tokens in the vocabulary the logits are by far the largest tensor of a training step. The fast body computes
them for a few rows at a time, together with their gradient, and keeps neither.

Smoothing (section 5.4 of the paper) takes ε from the right token and spreads it evenly over all V tokens. The other
common form, which spreads it over the V - 1 wrong tokens, is the same with ε · V / (V - 1).

Most of these logits are of tokens that the batch does not have. A few of them, drawn at random, can stand for all: the
sampled softmax of Jean et al. (2015). Its smoothing needs no sample: the mean of all logits follows from the mean row.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

LOGITS_AT_ONCE = 1 << 21  # on a CPU: what stays near it
LOGITS_ON_A_GPU = 1 << 26  # what keeps it busy


@dataclass(frozen=True)
class Loss:
    """Sums over the real target tokens of a batch."""

    smoothed: Tensor  # differentiable
    likelihood: Tensor  # negative log-likelihood, the logarithm of perplexity once divided by `tokens`
    tokens: int
    pondered: Tensor | None = None  # (2): steps that real tokens took, and how many tokens these were; if they halt


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float = 0.0, negatives: int = 0
) -> tuple[Tensor, Tensor]:
    """(N, D), (V, D), (V), (N) -> the sums over N of the smoothed loss and of the plain negative log-likelihood.

    Only the first can be differentiated. With `negatives`, both are estimates from so many tokens besides the labels.
    """
    hidden = hidden.to(weight.dtype)  # a layer in autocast may have left it in half precision
    if 0 < negatives < len(weight):
        return _sampled(hidden, weight, bias, labels, smoothing, negatives)
    if not torch.is_grad_enabled():
        with torch.no_grad():
            return _sums(hidden, weight, bias, labels, smoothing)
    smoothed, plain = _LinearCrossEntropy.apply(hidden, weight, bias, labels, smoothing)  # type: ignore[no-untyped-call]
    return smoothed, plain


def linear_cross_entropy_plain(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The same in three lines of `torch`."""
    log_probs = F.linear(hidden, weight, bias).float().log_softmax(-1)  # (N, V)
    likelihood = -log_probs.gather(1, labels.unsqueeze(1)).sum()
    return (1 - smoothing) * likelihood - smoothing * log_probs.mean(-1).sum(), likelihood.detach()


def linear_rdrop_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    smoothing: float,
    negatives: int,
    consistency: float,
) -> tuple[Tensor, Tensor]:
    """(2N, D), (V, D), (V), (2N) -> as `linear_cross_entropy`, the mean of both halves, which have the same labels.

    The first also has `consistency` / 4 times KL(p, q) + KL(q, p) of what the halves say. All logits are held.
    """
    hidden = hidden.to(weight.dtype)
    rows, weights = sample_softmax_tokens(labels, len(weight), negatives or len(weight))
    logits = hidden @ weight[rows].t() + weights.log()  # (2N, C)
    if bias is not None:
        logits = logits + bias[rows]
    place = torch.empty(len(weight), dtype=torch.long, device=labels.device)
    place[rows] = torch.arange(len(rows), device=labels.device)
    log_probs = logits.float().log_softmax(-1)
    plain = -log_probs.gather(1, place[labels].unsqueeze(1)).sum() / 2
    p, q = log_probs.chunk(2)
    apart = ((p.exp() - q.exp()) * (p - q)).sum()
    return plain + smoothing / 2 * _lead(hidden, weight, bias, labels) + consistency / 4 * apart, plain.detach()


def _sampled(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float, negatives: int
) -> tuple[Tensor, Tensor]:
    """A softmax over the labels of the batch and others drawn at random, which count for as many as they stand for."""
    rows, weights = sample_softmax_tokens(labels, len(weight), negatives)
    shift = weights.log() if bias is None else weights.log() + bias[rows]
    place = torch.empty(len(weight), dtype=torch.long, device=labels.device)
    place[rows] = torch.arange(len(rows), device=labels.device)
    total, plain = linear_cross_entropy(hidden, weight[rows], shift, place[labels])
    return (total + smoothing * _lead(hidden, weight, bias, labels) if smoothing else total), plain


def _lead(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    """Of the right logits over the mean ones, summed: what smoothing takes from a loss without it."""
    lead = (hidden * (F.embedding(labels, weight) - weight.mean(0))).sum()
    return lead if bias is None else lead + (bias[labels] - bias.mean()).sum()


def sample_softmax_tokens(labels: Tensor, vocab_size: int, negatives: int) -> tuple[Tensor, Tensor]:
    """(n), (n): the tokens of the batch and some others, and how many tokens each stands for."""
    wanted = torch.zeros(vocab_size, dtype=torch.bool, device=labels.device)
    wanted[labels] = True
    others = (~wanted).nonzero().squeeze(1)
    drawn = others[torch.randperm(len(others), device=labels.device)[:negatives]]
    rows = torch.cat((wanted.nonzero().squeeze(1), drawn))
    weights = torch.ones(len(rows), device=labels.device)
    weights[len(rows) - len(drawn) :] = len(others) / max(1, len(drawn))
    return rows, weights


def _sums(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    smoothed, plain = hidden.new_zeros((), dtype=torch.float64), hidden.new_zeros((), dtype=torch.float64)
    for part in _parts(hidden, len(weight)):
        likelihood, spread, _ = _losses(F.linear(hidden[part], weight, bias).float(), labels[part])
        smoothed += (1 - smoothing) * likelihood.sum() + smoothing * spread.sum()
        plain += likelihood.sum()
    return smoothed.float(), plain.float()


def _losses(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(N, V), (N) -> (N), (N), (N, V): -log p of the label, the mean of -log p over the vocabulary, and p.

    The logits are overwritten: they become the probabilities.
    """
    logits.sub_(logits.amax(-1, keepdim=True))
    label, mean = logits.gather(1, labels.unsqueeze(1)).squeeze(1), logits.mean(-1)
    total = logits.exp_().sum(-1, keepdim=True)
    log_total = total.log().squeeze(1)
    return log_total - label, log_total - mean, logits.div_(total)


def _parts(hidden: Tensor, vocab_size: int) -> list[slice]:
    most = LOGITS_AT_ONCE if hidden.device.type == "cpu" else LOGITS_ON_A_GPU
    step = max(16, most // vocab_size)
    return [slice(start, start + step) for start in range(0, len(hidden), step)]


class _LinearCrossEntropy(torch.autograd.Function):
    """The gradient of the loss is found in the forward pass, while the logits are at hand."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        smoothed, plain = hidden.new_zeros((), dtype=torch.float64), hidden.new_zeros((), dtype=torch.float64)
        d_hidden = torch.empty_like(hidden)
        d_weight = torch.zeros_like(weight)
        d_bias = None if bias is None else torch.zeros_like(bias)
        vocab_size = len(weight)
        for part in _parts(hidden, vocab_size):
            logits = F.linear(hidden[part], weight, bias).float()  # (n, V)
            likelihood, spread, slope = _losses(logits, labels[part])
            smoothed += (1 - smoothing) * likelihood.sum() + smoothing * spread.sum()
            plain += likelihood.sum()
            slope.sub_(smoothing / vocab_size)  # softmax minus the smoothed target
            slope[torch.arange(len(slope), device=slope.device), labels[part]] -= 1 - smoothing
            slope = slope.to(hidden.dtype)
            torch.mm(slope, weight, out=d_hidden[part])
            d_weight.addmm_(slope.t(), hidden[part])
            if d_bias is not None:
                d_bias += slope.sum(0)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        smoothed, plain = smoothed.float(), plain.float()
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None]:
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        scale = grads[0]
        return d_hidden * scale, d_weight * scale, None if d_bias is None else d_bias * scale, None, None
