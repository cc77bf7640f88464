"""Fused output projection and label-smoothed cross-entropy: the full matrix of logits is never materialized.

With 37,000 tokens in the vocabulary the logits are by far the largest tensor of a training step. The fast body computes
them and their gradient for a chunk of rows at a time.

Label smoothing (section 5.4 of the paper) moves ε of the probability from the label to all V tokens, evenly. The other
common form, which moves it to the V - 1 other tokens, is the same with ε · V / (V - 1).

The sampled softmax (Jean et al., 2015) sums over the labels of the batch and a random sample of the other tokens. Label
smoothing needs no sample: the mean of all logits is the product with the mean row of the weight.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK_LOGITS_CPU = 1 << 21  # logits of a chunk of rows: they fit the cache of a CPU
CHUNK_LOGITS_GPU = 1 << 26  # enough to keep a GPU busy


@dataclass(frozen=True)
class Loss:
    """Sums over the real target tokens of a batch."""

    smoothed: Tensor  # differentiable
    likelihood: Tensor  # negative log-likelihood; divided by `tokens`, the logarithm of the perplexity
    tokens: int
    pondered: Tensor | None = None  # (2): ACT steps of real tokens, and the number of these tokens
    expert_use: Tensor | None = None  # (2): share of the busiest expert, summed over layers, and the number of layers


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float = 0.0, samples: int = 0
) -> tuple[Tensor, Tensor]:
    """(N, D), (V, D), (V), (N) -> the sums over N of the smoothed loss and of the plain negative log-likelihood.

    Only the first is differentiable. If `samples` > 0, both are sampled-softmax estimates from so many other tokens.
    """
    hidden = hidden.to(weight.dtype)  # autocast may return bf16
    if 0 < samples < len(weight):
        return _sampled_cross_entropy(hidden, weight, bias, labels, smoothing, samples)
    if not torch.is_grad_enabled():
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
    samples: int,
    rdrop: float,
) -> tuple[Tensor, Tensor]:
    """(2N, D), (V, D), (V), (2N) -> as `linear_cross_entropy`, the mean of both halves, which have the same labels.

    R-Drop (Liang et al., 2021): the halves are the same tokens with different dropout, and the first result includes
    `rdrop` / 4 times KL(p, q) + KL(q, p) of their distributions p and q. All logits are materialized.
    """
    hidden = hidden.to(weight.dtype)
    output, shift, places = _sampled(weight, bias, labels, samples or len(weight))
    log_probs = (hidden @ output.t() + shift).float().log_softmax(-1)  # (2N, C)
    plain = -log_probs.gather(1, places.unsqueeze(1)).sum() / 2
    p, q = log_probs.chunk(2)
    divergence = ((p.exp() - q.exp()) * (p - q)).sum()
    penalty = _smoothing_penalty(hidden, weight, bias, labels)
    return plain + smoothing / 2 * penalty + rdrop / 4 * divergence, plain.detach()


def linear_pointer_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    smoothing: float,
    samples: int,
    gates: tuple[Tensor, Tensor],
    copied: Tensor,
) -> tuple[Tensor, Tensor]:
    """(N, D), (V, D), (V), (N), (N) twice, (N) -> as `linear_cross_entropy`, of a pointer-generator.

    `gates` are log p_gen and log (1 - p_gen), `copied` is the logarithm of the label's probability to be copied. The
    label's probability is that of the mixture; the part of label smoothing, the mean of -log p over all tokens, is that
    of the vocabulary distribution. With gradients, all logits are materialized.
    """
    hidden, output, shift, places = hidden.to(weight.dtype), weight, bias, labels
    if 0 < samples < len(weight):
        output, shift, places = _sampled(weight, bias, labels, samples)
    chunks = [slice(None)] if torch.is_grad_enabled() else _chunks(hidden, len(output))
    parts = [_label_log_probs(hidden[chunk], output, shift, places[chunk]) for chunk in chunks]
    generated, total = (torch.cat(columns) for columns in zip(*parts, strict=True))  # (N) twice
    plain = -torch.logaddexp(gates[0] + generated, gates[1] + copied).sum()
    mean_logit = hidden @ weight.mean(0) + (0.0 if bias is None else bias.mean())
    return (1 - smoothing) * plain + smoothing * (total - mean_logit).sum(), plain.detach()


def _label_log_probs(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(n, D), (V, D), (V), (n) -> (n), (n): the log-probability of each label, and the logsumexp of its logits."""
    logits = F.linear(hidden, weight) if bias is None else F.linear(hidden, weight) + bias
    total = logits.float().logsumexp(-1)
    return logits.float().gather(1, labels.unsqueeze(1)).squeeze(1) - total, total


def _sampled_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float, samples: int
) -> tuple[Tensor, Tensor]:
    """A softmax over the labels of the batch and a weighted sample of the other tokens."""
    total, plain = linear_cross_entropy(hidden, *_sampled(weight, bias, labels, samples))
    return (total + smoothing * _smoothing_penalty(hidden, weight, bias, labels) if smoothing else total), plain


def _sampled(weight: Tensor, bias: Tensor | None, labels: Tensor, samples: int) -> tuple[Tensor, Tensor, Tensor]:
    """(V, D), (V), (N) -> (C, D), (C), (N): rows and biases of sampled tokens, and the place of each label."""
    tokens, weights = sample_softmax_tokens(labels, len(weight), samples)
    places = torch.empty(len(weight), dtype=torch.long, device=tokens.device)
    places[tokens] = torch.arange(len(tokens), device=tokens.device)
    return weight[tokens], weights.log() if bias is None else weights.log() + bias[tokens], places[labels]


def _smoothing_penalty(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    """Σ (label logit - mean logit): ε times this, added to the unsmoothed loss, is label smoothing."""
    penalty = (hidden * (F.embedding(labels, weight) - weight.mean(0))).sum()
    return penalty if bias is None else penalty + (bias[labels] - bias.mean()).sum()


def sample_softmax_tokens(labels: Tensor, vocab_size: int, samples: int) -> tuple[Tensor, Tensor]:
    """-> (n), (n): the labels of the batch and `samples` other tokens, and how many tokens each represents."""
    is_label = torch.zeros(vocab_size, dtype=torch.bool, device=labels.device)
    is_label[labels] = True
    others = (~is_label).nonzero().squeeze(1)
    sampled = others[torch.randperm(len(others), device=labels.device)[:samples]]
    tokens = torch.cat((is_label.nonzero().squeeze(1), sampled))
    weights = torch.ones(len(tokens), device=labels.device)
    weights[len(tokens) - len(sampled) :] = len(others) / max(1, len(sampled))
    return tokens, weights


def _sums(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    smoothing: float,
    use_softmax: Callable[[slice, Tensor], None] = lambda chunk, probs: None,
) -> tuple[Tensor, Tensor]:
    """The results of `linear_cross_entropy`; `use_softmax` receives (n, V) probabilities of every chunk of rows."""
    smoothed, plain = hidden.new_zeros((), dtype=torch.float64), hidden.new_zeros((), dtype=torch.float64)
    for chunk in _chunks(hidden, len(weight)):
        likelihood, uniform, probs = _losses(F.linear(hidden[chunk], weight, bias).float(), labels[chunk])
        smoothed += (1 - smoothing) * likelihood.sum() + smoothing * uniform.sum()
        plain += likelihood.sum()
        use_softmax(chunk, probs)
    return smoothed.float(), plain.float()


def _losses(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(N, V), (N) -> (N), (N), (N, V): -log p of the label, the mean of -log p over the vocabulary, and p.

    The probabilities overwrite the logits.
    """
    logits.sub_(logits.amax(-1, keepdim=True))
    label, mean = logits.gather(1, labels.unsqueeze(1)).squeeze(1), logits.mean(-1)
    total = logits.exp_().sum(-1, keepdim=True)
    log_total = total.log().squeeze(1)
    return log_total - label, log_total - mean, logits.div_(total)


def _chunks(hidden: Tensor, vocab_size: int) -> list[slice]:
    budget = CHUNK_LOGITS_CPU if hidden.device.type == "cpu" else CHUNK_LOGITS_GPU
    step = max(16, budget // vocab_size)
    return [slice(start, start + step) for start in range(0, len(hidden), step)]


class _LinearCrossEntropy(torch.autograd.Function):
    """The forward pass also computes the gradients, chunk by chunk, while it has the logits."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        d_hidden = torch.empty_like(hidden)
        d_weight = torch.zeros_like(weight)
        d_bias = None if bias is None else torch.zeros_like(bias)

        def add_gradients(chunk: slice, grad: Tensor) -> None:
            grad.sub_(smoothing / len(weight))  # softmax minus the smoothed label distribution
            grad[torch.arange(len(grad), device=grad.device), labels[chunk]] -= 1 - smoothing
            grad = grad.to(hidden.dtype)
            torch.mm(grad, weight, out=d_hidden[chunk])
            d_weight.addmm_(grad.t(), hidden[chunk])
            if d_bias is not None:
                d_bias.add_(grad.sum(0))

        smoothed, plain = _sums(hidden, weight, bias, labels, smoothing, add_gradients)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None]:
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        scale = grads[0]
        return d_hidden * scale, d_weight * scale, None if d_bias is None else d_bias * scale, None, None
