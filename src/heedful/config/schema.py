"""The settings of each part of a run: name, default, limits and help text, once. `config` puts them together."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from heedful.config.presets import Architecture, Family

Probability = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
AttentionKind = Literal["full", "window", "sparse", "linformer", "linear"]
Paths = Annotated[tuple[Path, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str | Path) else value)]


def parse_duration(duration: str) -> float:
    """'90s', '30m', '1.5h' or '1h30m' -> seconds."""
    if not re.fullmatch(r"(?:\d++(?:\.\d++)?[hms])++", duration):
        raise ValueError("a duration looks like 90s, 30m or 1h30m")
    parts = re.findall(r"([\d.]+)([hms])", duration)
    return sum(float(n) * {"h": 3600, "m": 60, "s": 1}[unit] for n, unit in parts)


def _duration(text: str) -> str:
    if parse_duration(text) <= 0:
        raise ValueError("a duration must be longer than nothing")
    return text


class Section(BaseModel):
    """Settings that belong together. Unknown keys are errors, and what was validated cannot change."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


class DataSettings(Section):
    """Which files are read, and which pairs are kept."""

    source: Path | None = Field(None, description="Source side, one sentence a line; plain or .gz.")
    target: Path | None = Field(None, description="Target side, line by line the translation of the source.")
    pairs: Path | None = Field(None, description="One TSV file, source TAB target, instead of source and target.")
    valid_source: Path | None = Field(None, description="Source side of the validation set.")
    valid_target: Path | None = Field(None, description="Target side of the validation set.")
    valid_pairs: Path | None = Field(None, description="Validation set as one TSV file.")
    text: Paths = Field((), description="Plain text for a GPT or a BERT, one file or many; plain or .gz.")
    valid_text: Paths = Field((), description="Text of the validation set.")
    documents: Literal["blank-lines", "files"] = Field(
        "blank-lines", description="What ends a document of a text: a blank line or the end of a file."
    )
    labeled: Path | None = Field(None, description="Examples for a classifier: label TAB text [TAB second text].")
    valid_labeled: Path | None = Field(None, description="Labeled examples of the validation set.")
    valid_size: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="Sources, documents or labeled texts to hold out when there are no validation files; chosen from"
        " the corpus if not set.",
    )
    max_length: Count = Field(256, description="Longest side of a training pair, in tokens; longer pairs are dropped.")
    max_ratio: float = Field(9.0, ge=1, description="Largest ratio between the lengths of both sides, in tokens.")
    cache_dir: Path | None = Field(
        None, description="Folder for encoded corpora; `.heedful` beside the output folder if not set."
    )
    deduplicate: bool = Field(True, description="Drop pairs that are exact copies of an earlier pair.")
    strict: bool = Field(
        False,
        description="Refuse a corpus with lines that cannot be read (not UTF-8, a NUL character, missing columns)"
        " instead of dropping and reporting them.",
    )


class TextSettings(Section):
    """How text becomes token ids."""

    vocab_size: Annotated[int, Field(ge=16, le=1_000_000)] | None = Field(
        None, description="Size of the subword vocabulary; chosen from the corpus if not set."
    )
    kind: Literal["bpe", "bytes", "characters"] = Field(
        "bpe", description="Tokens of plain text: learned subwords, bytes, or characters."
    )
    joint: bool = Field(True, description="One vocabulary for both languages (the paper), or one for each.")
    lowercase: bool = Field(False, description="Fold everything to lower case.")


class ModelConfig(Section):
    """The shape of a model. The defaults are the base model of the paper."""

    family: Family = Field("encoder-decoder", description="Translator, GPT or BERT: set by what is trained.")
    vocab_size: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        37_000, description="Tokens of the target vocabulary (and of the source's if shared): set by the tokeniser."
    )
    source_vocab_size: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        None, description="Tokens of a separate source vocabulary: set by the tokeniser."
    )
    d_model: Annotated[int, Field(ge=1, le=65_536)] = Field(512, description="Width of the hidden states.")
    d_ff: Annotated[int, Field(ge=1, le=1_048_576)] = Field(2048, description="Inner width of the feed-forward layer.")
    n_heads: Annotated[int, Field(ge=1, le=1024)] = Field(8, description="Attention heads; must divide d_model.")
    d_key: Annotated[int, Field(ge=1, le=65_536)] | None = Field(
        None, description="Width of one head's queries and keys; d_model / n_heads if not set (Table 3, row B)."
    )
    encoder_layers: Annotated[int, Field(ge=1, le=1024)] = Field(6, description="Blocks of the encoder.")
    decoder_layers: Annotated[int, Field(ge=1, le=1024)] = Field(
        6, description="Blocks of the decoder; one or two make a translator that is fast on a CPU."
    )
    architecture: Architecture = Field(
        "transformer",
        description="transformer, the choice for almost everything; rnn, the recurrent encoder-decoder before it, to"
        " compare with; conv, gated convolutions with attention (Gehring et al.), quick on short text.",
    )
    attention: AttentionKind = Field(
        "full",
        description="Self-attention of a Transformer: full, up to some thousand tokens; window, only the near tokens,"
        " for long text whose ties are local; sparse, a window with some far tokens, where distant ties matter too;"
        " linformer, long encoders of a fixed length, never causal; linear, the longest text and constant memory when"
        " generating, at some loss of quality. Attention over the source is always full.",
    )
    decoder_attention: AttentionKind | None = Field(
        None, description="Self-attention of the decoder; the same as attention if not set."
    )
    attention_window: Annotated[int, Field(ge=1, le=65_536)] = Field(
        64, description="Neighbours on each side that window and sparse attention see."
    )
    attention_global: Annotated[int, Field(ge=0, le=4096)] = Field(
        1, description="First tokens that all others see in sparse attention, and that see all others."
    )
    attention_stride: Annotated[int, Field(ge=2, le=65_536)] = Field(
        32, description="In sparse attention, all tokens see every so many-th token, the last one of each block."
    )
    attention_rank: Annotated[int, Field(ge=1, le=65_536)] = Field(
        64, description="Keys and values that Linformer attention makes of all tokens."
    )
    universal: bool = Field(
        False,
        description="Universal Transformer: the layers of each side are one block, applied again and again; few"
        " weights, the same time.",
    )
    act_halting: bool = Field(
        False, description="Adaptive computation time (ACT), with universal: each token decides when it is done."
    )
    ponder_cost: Annotated[float, Field(ge=0, le=10)] = Field(
        0.01, description="With act_halting: what each step of a token adds to the loss."
    )
    cell: Literal["rnn", "lstm", "gru"] = Field(
        "lstm", description="Cells of an rnn: lstm; gru, somewhat cheaper; rnn, without gates, to see why gates matter."
    )
    bidirectional: bool = Field(True, description="An rnn's encoder reads in both directions, each half as wide.")
    source_attention: Literal["none", "additive", "dot", "general"] = Field(
        "additive",
        description="How an rnn's decoder sees the source: additive (Bahdanau), before each step; dot or general"
        " (Luong), after it, and much faster; none, one vector for the whole source.",
    )
    kernel_width: Annotated[int, Field(ge=2, le=65)] = Field(3, description="Tokens that a convolution sees at once.")
    dilated: bool = Field(
        False, description="Convolutions skip 1, 2, 4, 8, 16 tokens, layer by layer (ByteNet): few layers see far."
    )
    pre_norm: bool = Field(
        False,
        description="LayerNorm before each sublayer (pre-norm), which trains more easily, or after it (the paper).",
    )
    norm_eps: float = Field(1e-5, gt=0, le=0.1, description="Added to the variance in LayerNorm.")
    activation: Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu"] = Field(
        "relu", description="Nonlinearity of the feed-forward layer; swiglu adds a gate, and a third matrix."
    )
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "relative"] = Field(
        "sinusoidal",
        description="How order gets in: added to embeddings (sinusoidal, learned), by turning queries and keys"
        " (rotary), or on the scores (alibi; relative as in Shaw et al.).",
    )
    relative_window: Annotated[int, Field(ge=1, le=4096)] = Field(
        16, description="Distance at which relative positions stop telling tokens apart."
    )
    max_length: Annotated[int, Field(ge=2, le=1_048_576)] = Field(
        1024, description="Longest sequence the model accepts, in tokens."
    )
    tie: Literal["all", "target", "none"] = Field(
        "all", description="Share embeddings three ways (the paper), only decoder input with output, or not at all."
    )
    scale_embedding: bool = Field(True, description="Multiply embeddings by the square root of d_model.")
    embedding_norm: bool = Field(False, description="LayerNorm right after the embeddings (BERT).")
    bias: bool = Field(True, description="Biases in every linear layer.")
    output_bias: bool = Field(False, description="A bias on the output projection.")
    token_types: Annotated[int, Field(ge=0, le=16)] = Field(0, description="Kinds of segments an encoder tells apart.")
    head: Literal["linear", "transform", "none"] = Field(
        "linear",
        description="From an encoder's hidden states to logits: the output projection alone, or after a dense layer,"
        " activation and LayerNorm (BERT); none for an encoder that only gives hidden states.",
    )
    pooler: bool = Field(False, description="Learn a vector for a whole sequence from its first token (BERT).")
    labels: tuple[str, ...] = Field((), description="Classes that an encoder tells apart: set by what is trained.")
    dropout: Probability = Field(0.1, description="Dropout on embeddings and on every sublayer's output.")
    attention_dropout: Probability = Field(0.0, description="Dropout on attention weights.")
    activation_dropout: Probability = Field(0.0, description="Dropout inside the feed-forward layer.")
    pad_id: Annotated[int, Field(ge=0)] = Field(0, description="Token that fills up a batch: set by the tokeniser.")
    bos_id: Annotated[int, Field(ge=0)] = Field(2, description="Token that decoding starts from: set by the tokeniser.")
    eos_id: Annotated[int, Field(ge=0)] = Field(3, description="Token that ends a sentence: set by the tokeniser.")

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> Self:
        if info.context == "draft":  # a preset will still fill in the rest
            return self
        if self.architecture == "transformer":
            self._attention_fits()
        else:
            self._other_architecture_fits()
        if self.positions == "sinusoidal" and self.architecture != "rnn" and self.d_model % 2:
            raise ValueError(f"sinusoidal positions need an even d_model, and it is {self.d_model}")
        if self.source_vocab_size is not None and self.tie == "all":
            raise ValueError("separate vocabularies cannot share embeddings three ways; set model.tie=target")
        if self.family != "encoder" and (self.head != "linear" or self.pooler or self.labels):
            raise ValueError(f"head, pooler and labels are parts of an encoder, and this is the {self.family} family")
        if self.max_length * self.d_model > 2**28:
            raise ValueError(f"max_length ({self.max_length}) times d_model ({self.d_model}) is more than 2 ** 28")
        if max(self.pad_id, self.bos_id, self.eos_id) >= self.vocab_size:
            raise ValueError(f"pad_id, bos_id and eos_id must be below vocab_size ({self.vocab_size})")
        return self

    def _attention_fits(self) -> None:
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model ({self.d_model}) must be divisible by n_heads ({self.n_heads})")
        if self.positions == "rotary" and self.key_width % 2:
            raise ValueError(f"rotary positions need an even width of a head's keys, and it is {self.key_width}")
        if self.family == "encoder" and self.decoder_attention is not None:
            raise ValueError("decoder_attention is set, but a model of the encoder family has no decoder; leave it out")
        if self.family != "encoder" and self.attention_of_decoder == "linformer":
            raise ValueError(
                "linformer attention mixes all tokens into a few, so a decoder would see what is to come; "
                "set model.decoder_attention, or model.attention in a GPT, to another kind"
            )
        for kind in (self.attention, self.attention_of_decoder):
            if kind in ("linformer", "linear") and self.positions in ("alibi", "relative"):
                raise ValueError(
                    f"{kind} attention has no scores of two tokens for {self.positions} positions to act on; "
                    "set model.positions to sinusoidal, learned or rotary"
                )
            if kind == "linear" and self.attention_dropout:
                raise ValueError("linear attention has no weights to drop; set model.attention_dropout to 0")
        if self.act_halting and not self.universal:
            raise ValueError("act_halting ends the steps of a Universal Transformer; set model.universal=true with it")

    def _other_architecture_fits(self) -> None:
        mine = self.architecture
        usual = {"attention": "full", "decoder_attention": None, "universal": False, "act_halting": False}
        for name, value in usual.items():
            if getattr(self, name) != value:
                raise ValueError(f"{name} is a choice within a Transformer, and the architecture is {mine}")
        if mine == "rnn" and self.bidirectional and self.d_model % 2:
            raise ValueError(f"a bidirectional encoder needs an even d_model, and it is {self.d_model}")
        if mine == "conv" and self.family != "decoder" and self.kernel_width % 2 == 0:
            raise ValueError(f"a convolution over a source needs an odd kernel_width, and it is {self.kernel_width}")
        if mine == "conv" and self.positions not in ("sinusoidal", "learned"):
            raise ValueError(f"convolutions know no {self.positions} positions; set model.positions=sinusoidal")

    @property
    def attention_of_decoder(self) -> AttentionKind:
        """The kind of self-attention in a decoder."""
        return self.decoder_attention or self.attention

    @property
    def d_head(self) -> int:
        """Width of one head's values."""
        return self.d_model // self.n_heads

    @property
    def key_width(self) -> int:
        """Width of one head's queries and keys."""
        return self.d_key or self.d_head


class TrainSettings(Section):
    """How the model learns."""

    init: Path | None = Field(None, description="Model folder whose vocabulary and weights the run starts from.")
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(1, description="Everything random follows from it.")
    batch_tokens: Count = Field(4096, description="Most tokens of either side in one update, padding included.")
    block_size: Annotated[int, Field(ge=8, le=1_048_576)] = Field(
        256, description="Tokens of plain text in one training example."
    )
    mask_prob: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.15,
        description="Share of tokens that masked-lm predicts: 80 % masked, 10 % replaced at random, 10 % unchanged.",
    )
    whole_words: bool = Field(False, description="Mask whole words instead of single tokens.")
    micro_batches: Count = Field(
        1, description="Gradient accumulation: micro-batches that batch_tokens is divided into; more need less memory."
    )
    max_updates: Count = Field(100_000, description="Updates after which training ends.")
    time: Annotated[str, AfterValidator(_duration)] | None = Field(
        None, description="Time to train for, such as 30m; the schedule is planned to end with it."
    )
    learning_rate: Annotated[float, Field(gt=0, le=10)] | None = Field(
        None, description="Peak learning rate; (d_model * warmup) ** -0.5, as in the paper, if not set."
    )
    schedule: Literal["inverse-sqrt", "linear", "cosine", "constant"] = Field(
        "inverse-sqrt", description="After warm-up: the paper's decay, or a decay to zero at the planned end, or none."
    )
    warmup: Count = Field(4000, description="Updates over which the learning rate rises to its peak.")
    optimizer: Literal["adam", "muon"] = Field(
        "adam",
        description="adam (the paper), or muon, which orthogonalizes the updates of weight matrices and learns more"
        " from few updates.",
    )
    beta1: Probability = Field(0.9, description="Adam's memory of gradients.")
    beta2: Probability = Field(0.98, description="Adam's memory of squared gradients.")
    epsilon: float = Field(1e-9, gt=0, description="Adam's epsilon.")
    weight_decay: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Decoupled weight decay on matrices; chosen from the corpus for a translator that Muon trains.",
    )
    clip_norm: float = Field(0.0, ge=0, description="Largest norm of the gradient; 0 for no limit.")
    label_smoothing: Probability = Field(0.1, description="Probability taken from the right token.")
    label_smoothing_form: Literal["uniform", "others"] = Field(
        "uniform", description="Spread label_smoothing over all V tokens (the paper) or over the V - 1 wrong ones."
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
    checkpoint_every: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Updates between two checkpoints, each with a validation; chosen from the length if not set."
    )
    keep_checkpoints: Count = Field(2, description="Complete checkpoints kept to resume from.")
    average_checkpoints: Count = Field(
        5, description="Most checkpoints whose weights are averaged; fewer, or the last alone, if their loss is lower."
    )
    patience: Annotated[int, Field(ge=0)] = Field(
        10, description="Validations without a better score before training stops; 0 for never."
    )
    valid_sentences: Count = Field(500, description="Validation sentences that are translated for BLEU and chrF.")
    valid_tokens: Count = Field(100_000, description="Most held-out tokens of plain text that a validation reads.")
    sample: Annotated[int, Field(ge=0)] = Field(
        120, description="Tokens of text that a GPT writes at each validation, to be looked at; 0 for none."
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto",
        description="Numbers the products are computed in; auto takes bfloat16 where the machine is faster in it.",
    )
    backend: Literal["auto", "native", "torch"] = Field(
        "auto",
        description="What computes losses, gradients and Muon's steps: native, the compiled CPU engine, or torch; auto"
        " takes native where it supports the model.",
    )
    compile: bool = Field(
        False, description="Let torch.compile make kernels for the model; it begins later, and pays on a GPU."
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto, cpu or cuda.")
    threads: Annotated[int, Field(ge=0)] = Field(0, description="CPU threads; 0 for all cores.")
    bpe_dropout: Probability = Field(
        0.0,
        description="BPE-dropout (Provilkov et al., 2020): chance that a subword is replaced by the two that it was"
        " merged from, drawn anew each time a pair is read; for encoder-decoders.",
    )
    embedding_init: Literal["random", "lsa"] = Field(
        "random",
        description="Initial embeddings: random, or by latent semantic analysis (lsa) of which tokens occur in the same"
        " pairs.",
    )
    pretrained_embeddings: Path | None = Field(None, description="Pretrained word vectors, word2vec or GloVe text.")
    freeze_embeddings: bool = Field(False, description="Do not train the embeddings found in pretrained_embeddings.")


class SearchSettings(Section):
    """How a trained model is decoded. Saved in the model folder as its defaults."""

    beam: Annotated[int, Field(ge=1, le=1000)] = Field(4, description="Hypotheses kept at each step; 1 is greedy.")
    length_penalty: float = Field(
        0.6, ge=0, le=10, description="α of GNMT: scores are divided by ((5 + length) / 6) ** α."
    )
    max_extra: Annotated[int, Field(ge=0)] = Field(
        50, description="Output may be longer than the source by so many tokens (the paper)."
    )
