"""`train.*`: optimization, schedule, regularization, validation and hardware of a training run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from heedful.config.section import Count, Probability, Section


def parse_duration(duration: str) -> float:
    """'90s', '30m', '1.5h' or '1h30m' -> seconds."""
    if not re.fullmatch(r"(?:\d+(?:\.\d+)?[hms])+", duration):
        raise ValueError("a duration looks like 90s, 30m or 1h30m")
    parts = re.findall(r"([\d.]+)([hms])", duration)
    return sum(float(n) * {"h": 3600, "m": 60, "s": 1}[unit] for n, unit in parts)


def _duration(text: str) -> str:
    if parse_duration(text) <= 0:
        raise ValueError("a duration must be longer than 0 seconds")
    return text


class TrainSettings(Section):
    """Optimization, schedule, regularization, validation and hardware."""

    init: Path | None = Field(None, description="Model folder whose vocabulary and weights the run starts from.")
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(1, description="Seed of all random numbers.")
    batch_tokens: Count = Field(4096, description="Maximum tokens of either side in one update, padding included.")
    block_size: Annotated[int, Field(ge=8, le=1_048_576)] = Field(
        256, description="Context length of language models: tokens of plain text per training example."
    )
    mask_prob: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.15,
        description="Share of tokens that masked-lm predicts: 80 % masked, 10 % replaced at random, 10 % unchanged.",
    )
    infill_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.3, description="Share of tokens that denoising masks, in spans of three tokens on average (BART)."
    )
    whole_words: bool = Field(False, description="Mask whole words instead of single tokens.")
    micro_batches: Count = Field(
        1, description="Gradient accumulation: number of micro-batches per update; each has a part of batch_tokens."
    )
    max_updates: Count = Field(100_000, description="Maximum number of updates.")
    time: Annotated[str, AfterValidator(_duration)] | None = Field(
        None, description="Time budget, such as 30m; the learning-rate schedule ends with it."
    )
    learning_rate: Annotated[float, Field(gt=0, le=10)] | None = Field(
        None, description="Peak learning rate; (d_model * warmup) ** -0.5, as in the paper, if not set."
    )
    schedule: Literal["inverse-sqrt", "linear", "cosine", "constant"] = Field(
        "inverse-sqrt",
        description="Learning rate after warm-up: inverse-sqrt (the paper), linear or cosine decay to zero, or"
        " constant.",
    )
    warmup: Count = Field(4000, description="Updates over which the learning rate rises to its peak.")
    optimizer: Literal["adam", "muon"] = Field(
        "adam",
        description="adam (the paper), or muon, which orthogonalizes the updates of weight matrices and needs fewer"
        " updates.",
    )
    beta1: Probability = Field(0.9, description="Adam's β1: decay of the mean of gradients.")
    beta2: Probability = Field(0.98, description="Adam's β2: decay of the mean of squared gradients.")
    epsilon: float = Field(1e-9, gt=0, description="Adam's ε.")
    weight_decay: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Decoupled weight decay of matrices; chosen by the size of the corpus for a translator trained"
        " with Muon.",
    )
    clip_norm: float = Field(
        0.0, ge=0, description="Gradient clipping: maximum norm of the gradient; 0 for no clipping."
    )
    label_smoothing: Probability = Field(
        0.1, description="Label smoothing ε: probability that is taken from the correct token and spread over others."
    )
    label_smoothing_form: Literal["uniform", "others"] = Field(
        "uniform",
        description="Spread label_smoothing over all V tokens (uniform; the paper) or over the V - 1 others (others).",
    )
    sampled_softmax: Annotated[int, Field(ge=0)] = Field(
        0,
        description="Sampled softmax (Jean et al., 2015): negative samples drawn from the tokens that a batch does not"
        " contain; 0 computes the softmax over the whole vocabulary.",
    )
    rdrop: Annotated[float, Field(ge=0)] = Field(
        0.0,
        description="R-Drop's α (Liang et al., 2021): every pair is computed twice with different dropout, and the"
        " divergence of the two outputs is added to the loss; 0 switches it off.",
    )
    ctc_weight: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0,
        description="Speech: share of an auxiliary CTC loss on the encoder (Watanabe et al., 2017), which makes it"
        " align sound and text; 0 switches it off.",
    )
    freq_masks: Annotated[int, Field(ge=0, le=100)] = Field(
        0, description="Speech: SpecAugment (Park et al., 2019), bands of mel bins that are masked in each recording."
    )
    freq_mask_width: Count = Field(15, description="Speech: maximum width of a masked band, in mel bins.")
    time_masks: Annotated[int, Field(ge=0, le=100)] = Field(
        0, description="Speech: SpecAugment, spans of time that are masked in each recording."
    )
    time_mask_share: Probability = Field(
        0.1, description="Speech: maximum length of a masked span, as a share of the recording."
    )
    checkpoint_every: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="Updates between checkpoints, each with a validation; chosen by the length of the run if not set.",
    )
    keep_checkpoints: Count = Field(2, description="Number of most recent checkpoints to keep.")
    average_checkpoints: Count = Field(
        5,
        description="Maximum number of checkpoints to average; fewer, or the last alone, if their validation loss is"
        " lower.",
    )
    patience: Annotated[int, Field(ge=0)] = Field(
        10, description="Early stopping: validations without improvement before training stops; 0 for never."
    )
    valid_sentences: Count = Field(500, description="Validation sentences that are translated for BLEU and chrF.")
    valid_tokens: Count = Field(100_000, description="Maximum tokens of plain text per validation.")
    sample: Annotated[int, Field(ge=0)] = Field(
        120, description="Tokens of sample text that a GPT generates at each validation; 0 for none."
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto",
        description="Precision of matrix products; auto uses bfloat16 where it is faster on this machine.",
    )
    backend: Literal["auto", "native", "torch"] = Field(
        "auto",
        description="What computes losses, gradients and Muon's updates: native, the compiled CPU engine, or torch;"
        " auto uses native where it supports the model.",
    )
    compile: bool = Field(
        False, description="Compile the model with torch.compile: training starts later; worthwhile on a GPU."
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto, cpu or cuda.")
    threads: Annotated[int, Field(ge=0)] = Field(0, description="CPU threads; 0 for all cores.")
    bpe_dropout: Probability = Field(
        0.0,
        description="BPE-dropout (Provilkov et al., 2020): probability that a merge is undone, drawn anew each time a"
        " pair is read; for encoder-decoders.",
    )
    glossary_augmentation: Probability = Field(
        0.0,
        description="Share of the training pairs whose source terms are annotated with their translations (Dinu et al.,"
        " 2019): the model inflects the terms of a glossary; for translators with a joint vocabulary.",
    )
    embedding_init: Literal["random", "lsa"] = Field(
        "random",
        description="Initial embeddings: random, or lsa: latent semantic analysis of the co-occurrence of tokens in"
        " sentence pairs.",
    )
    pretrained_embeddings: Path | None = Field(
        None, description="File of pretrained word vectors in word2vec or GloVe text format."
    )
    freeze_embeddings: bool = Field(False, description="Do not train the embeddings found in pretrained_embeddings.")
