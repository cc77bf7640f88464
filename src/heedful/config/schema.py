"""Every setting once: name, type, default, limits and help text.

The command line, TOML files, the settings reference and model folders all use these classes; `loading` combines them
into a `RunConfig`. Knows no torch.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from heedful.config.presets import Architecture, Family

Probability = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
LabelKind = Literal["classification", "regression", "tagging", "question-answering"]
AttentionKind = Literal["full", "window", "sparse", "linformer", "linear"]
NormKind = Literal["layer", "rms", "batch", "instance"]
PositionKind = Literal["sinusoidal", "learned", "rotary", "alibi", "relative", "syntax"]
LanguageTag = Annotated[str, Field(pattern=r"^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*$")]
Paths = Annotated[tuple[Path, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str | Path) else value)]


def parse_duration(duration: str) -> float:
    """'90s', '30m', '1.5h' or '1h30m' -> seconds."""
    if not re.fullmatch(r"(?:\d++(?:\.\d++)?[hms])++", duration):
        raise ValueError("a duration looks like 90s, 30m or 1h30m")
    parts = re.findall(r"([\d.]+)([hms])", duration)
    return sum(float(n) * {"h": 3600, "m": 60, "s": 1}[unit] for n, unit in parts)


def _duration(text: str) -> str:
    if parse_duration(text) <= 0:
        raise ValueError("a duration must be longer than 0 seconds")
    return text


class Section(BaseModel):
    """A group of settings. Unknown keys are errors; instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


class DataSettings(Section):
    """Files of the corpus, filters, and the validation set."""

    source: Path | None = Field(None, description="Source text, one sentence per line; plain or .gz.")
    target: Path | None = Field(None, description="Target text: line n is the translation of line n of the source.")
    pairs: Paths = Field(
        (),
        description="Files or folders of pairs instead of source and target: TSV (source TAB target), TMX, XLIFF, PO,"
        " CSV, JSON Lines, Parquet; plain or compressed.",
    )
    valid_source: Path | None = Field(None, description="Source text of the validation set.")
    valid_target: Path | None = Field(None, description="Target text of the validation set.")
    valid_pairs: Paths = Field((), description="Files or folders of pairs of the validation set.")
    source_language: LanguageTag | None = Field(
        None, description="Language to read as the source in files of several languages, such as en or en-GB."
    )
    target_language: LanguageTag | None = Field(
        None, description="Language to read as the target in files of several languages, such as de or pt-BR."
    )
    text: Paths = Field((), description="Plain text for a language model, one file or more; plain or .gz.")
    valid_text: Paths = Field((), description="Plain text of the validation set.")
    documents: Literal["blank-lines", "files"] = Field(
        "blank-lines", description="Where a document of plain text ends: at a blank line or at the end of a file."
    )
    labeled: Path | None = Field(
        None,
        description="Labeled examples: label TAB text [TAB second text] (classification), number TAB text [TAB second"
        " text] (regression), a CoNLL file (tagging), or a SQuAD file (question-answering).",
    )
    valid_labeled: Path | None = Field(None, description="Labeled examples of the validation set.")
    audio: Path | None = Field(
        None, description="Recordings with transcripts, a TSV file: path TAB text; paths are relative to the file."
    )
    valid_audio: Path | None = Field(None, description="Recordings of the validation set.")
    max_seconds: Annotated[float, Field(gt=0, le=600)] = Field(
        30.0, description="Maximum length of a recording, in seconds; longer ones are dropped."
    )
    speed_perturbation: tuple[Annotated[float, Field(ge=0.5, le=2)], ...] = Field(
        (1.0, 0.9, 1.1),
        description="Speeds at which every recording is trained on; another speed also changes the pitch (Ko et al.,"
        " 2015). 1 alone switches it off.",
    )
    trees: Paths = Field(
        (),
        description="CoNLL-U files with dependency trees of source sentences, for model.positions=syntax; a sentence is"
        " found by its words.",
    )
    valid_size: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="Size of the validation set held out from the training data if there are no validation files:"
        " distinct source sentences, documents or labeled texts; chosen by the size of the corpus if not set.",
    )
    max_length: Count = Field(
        256, description="Maximum length of either side of a pair, in tokens; longer pairs are dropped."
    )
    max_source_length: Count | None = Field(
        None, description="Maximum length of a source, in tokens; the same as max_length if not set."
    )
    truncate_source: bool = Field(
        False,
        description="Truncate longer sources at their end instead of dropping their pairs; true for summarization.",
    )
    max_ratio: float = Field(
        9.0, ge=1, description="Maximum ratio between the lengths of both sides, in tokens; other pairs are dropped."
    )
    cache_dir: Path | None = Field(
        None, description="Cache folder for encoded corpora; `.heedful` beside the output folder if not set."
    )
    deduplicate: bool = Field(True, description="Drop pairs that are exact copies of an earlier pair.")
    filters: tuple[Literal["copy", "placeholders", "numbers"], ...] | None = Field(
        None,
        description="Filters for training pairs, as in `heedful clean`: copy (the target is the source), placeholders"
        " and numbers (they differ). If not set: copy and placeholders for TMX, XLIFF, PO and other files of segments,"
        " none for line-aligned files and TSV.",
    )
    strict: bool = Field(
        False,
        description="Treat lines and segments that cannot be read (not UTF-8, a NUL character, missing columns, invalid"
        " XML, PO, CSV or JSON) as an error instead of dropping and reporting them.",
    )


class TextSettings(Section):
    """Vocabulary and tokenization."""

    vocab_size: Annotated[int, Field(ge=16, le=1_000_000)] | None = Field(
        None, description="Size of the subword vocabulary; chosen by the size of the corpus if not set."
    )
    kind: Literal["bpe", "bytes", "characters"] = Field(
        "bpe", description="Tokens of plain text: subwords (byte-pair encoding), bytes, or characters."
    )
    joint: bool = Field(True, description="One vocabulary shared by source and target (the paper), or one for each.")
    lowercase: bool = Field(False, description="Convert all text to lower case.")


class ModelConfig(Section):
    """Architecture and sizes of the model. The defaults are the base model of the paper."""

    family: Family = Field(
        "encoder-decoder", description="encoder-decoder (translator), decoder (GPT) or encoder (BERT); set by the task."
    )
    vocab_size: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        37_000, description="Size of the target vocabulary (and of the source's if shared); set by the tokenizer."
    )
    source_vocab_size: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        None, description="Size of a separate source vocabulary; set by the tokenizer."
    )
    d_model: Annotated[int, Field(ge=1, le=65_536)] = Field(512, description="Width of the hidden states.")
    d_ff: Annotated[int, Field(ge=1, le=1_048_576)] = Field(2048, description="Inner width of the feed-forward layer.")
    n_heads: Annotated[int, Field(ge=1, le=1024)] = Field(8, description="Attention heads; must divide d_model.")
    d_key: Annotated[int, Field(ge=1, le=65_536)] | None = Field(
        None, description="Width of one head's queries and keys; d_model / n_heads if not set (Table 3, row B)."
    )
    encoder_layers: Annotated[int, Field(ge=1, le=1024)] = Field(6, description="Encoder blocks.")
    decoder_layers: Annotated[int, Field(ge=1, le=1024)] = Field(
        6, description="Decoder blocks; with one or two, translation is fast on a CPU."
    )
    features: Annotated[int, Field(ge=0, le=1024)] = Field(
        0,
        description="Audio input: log-mel bins of a frame, which two convolutions read; 0 for token input. Set by the"
        " task.",
    )
    feature_stride: Literal[2, 4] = Field(
        2, description="Audio input: frames of 10 ms that become one position of the encoder."
    )
    full_window: bool = Field(
        False, description="Audio input: pad every recording with silence to source_max_length (Whisper)."
    )
    ctc: bool = Field(False, description="CTC output layer on the encoder; set by train.ctc_weight.")
    architecture: Architecture = Field(
        "transformer",
        description="transformer, the best choice for almost everything; rnn, a recurrent encoder-decoder, as a"
        " baseline; conv, gated convolutions with attention (Gehring et al., 2017), fast on short text; bytenet,"
        " dilated convolutions without attention (Kalchbrenner et al., 2016), linear in the length of the text;"
        " neural-gpu, a memory that convolutional gated recurrent units change (Kaiser & Sutskever, 2015), for"
        " algorithms; memory-network, several hops of attention over sentences (Sukhbaatar et al., 2015), for questions"
        " about a text.",
    )
    attention: AttentionKind = Field(
        "full",
        description="Self-attention of a Transformer: full, for up to a few thousand tokens; window, sliding-window"
        " attention for long text with local dependencies; sparse, a window plus global and strided tokens, for"
        " long-range dependencies too; linformer, low-rank attention for long encoder inputs, never causal; linear,"
        " kernel attention for the longest text, with constant memory in generation and some loss of quality."
        " Cross-attention is always full.",
    )
    decoder_attention: AttentionKind | None = Field(
        None, description="Self-attention of the decoder; the same as model.attention if not set."
    )
    attention_window: Annotated[int, Field(ge=1, le=65_536)] = Field(
        64, description="Tokens on each side that window and sparse attention attend to."
    )
    attention_global: Annotated[int, Field(ge=0, le=4096)] = Field(
        1,
        description="Global tokens of sparse attention, at the start: they attend to all tokens, and all attend to"
        " them.",
    )
    attention_stride: Annotated[int, Field(ge=2, le=65_536)] = Field(
        32, description="Stride of sparse attention: all tokens attend to the last token of every block of this size."
    )
    attention_rank: Annotated[int, Field(ge=1, le=65_536)] = Field(
        64, description="Length that Linformer attention projects keys and values to."
    )
    universal: bool = Field(
        False,
        description="Universal Transformer: all layers of each side share the weights of one block.",
    )
    act_halting: bool = Field(
        False,
        description="Adaptive computation time (ACT) in a Universal Transformer: the number of steps is learned per"
        " token.",
    )
    ponder_cost: Annotated[float, Field(ge=0, le=10)] = Field(
        0.01, description="With act_halting: weight of the number of steps in the loss."
    )
    experts: Annotated[int, Field(ge=0, le=4096)] = Field(
        0,
        description="Mixture of experts (Shazeer et al., 2017): feed-forward layers of a block, of which each token"
        " uses experts_per_token; 0 for one layer that all tokens use.",
    )
    experts_per_token: Annotated[int, Field(ge=1, le=64)] = Field(
        2, description="Experts that the gating network selects for each token, k in the paper."
    )
    load_balance: Annotated[float, Field(ge=0, le=10)] = Field(
        0.1, description="With experts: weight of the load-balancing loss, for importance and load alike."
    )
    cell: Literal["rnn", "lstm", "gru", "flstm"] = Field(
        "lstm",
        description="Cell of an rnn: lstm; gru, somewhat cheaper; rnn, without gates, as a baseline; flstm, an lstm"
        " whose weight matrix is a product of two smaller ones (Kuchaiev & Ginsburg, 2017).",
    )
    cell_rank: Annotated[int, Field(ge=1, le=65_536)] | None = Field(
        None, description="Inner width of the two factors of an flstm; half the width of the cells if not set."
    )
    bidirectional: bool = Field(
        True, description="Bidirectional encoder of an rnn, each direction with half the width."
    )
    source_attention: Literal["none", "additive", "dot", "general", "concat"] = Field(
        "additive",
        description="Cross-attention of an rnn: additive (Bahdanau et al.), before each step; dot, general or concat"
        " (Luong et al.), after it and much faster; none, the last state of the encoder only.",
    )
    source_span: Literal["global", "local-m", "local-p"] = Field(
        "global",
        description="Source tokens that Luong's attention weighs: global, all; local-m, a window at the position of"
        " the target token (monotonic); local-p, a window at a predicted position (predictive).",
    )
    source_window: Annotated[int, Field(ge=1, le=4096)] = Field(
        10, description="Source tokens on each side of the center of local-m and local-p attention, D in the paper."
    )
    kernel_width: Annotated[int, Field(ge=2, le=65)] = Field(3, description="Kernel width of convolutions, in tokens.")
    dilated: bool = Field(
        False,
        description="Dilated convolutions (ByteNet): dilation 1, 2, 4, 8, 16, layer by layer, for a large receptive"
        " field.",
    )
    unfold_ratio: Annotated[float, Field(ge=1, le=16)] = Field(
        1.2, description="Columns of the encoder of bytenet or neural-gpu per source token, a in a · length + b."
    )
    unfold_extra: Annotated[int, Field(ge=0, le=4096)] = Field(
        4, description="Columns of the encoder of bytenet or neural-gpu in addition, b in a · length + b."
    )
    memory_width: Annotated[int, Field(ge=1, le=64)] = Field(
        4, description="Rows of the memory of a neural-gpu, each as long as the sequence."
    )
    autoregressive: bool = Field(
        True,
        description="Decoder of a neural-gpu: true, token by token (Extended Neural GPU; Kaiser & Bengio, 2016); false,"
        " all outputs at once.",
    )
    memory_size: Annotated[int, Field(ge=1, le=65_536)] = Field(
        50, description="Memories of a memory-network: the last sentences before a question, or the last tokens."
    )
    sentence_ends: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (), description="Ids of tokens that end a sentence, for a memory-network; set by the tokenizer."
    )
    separable: bool = Field(
        False,
        description="Separable convolutions: one kernel per channel, then a product over channels at each token;"
        " O(k · n · d + n · d²) instead of O(k · n · d²).",
    )
    norm: NormKind = Field(
        "layer",
        description="Norm of the sublayers of a Transformer: layer (the paper); rms, cheaper and as good; batch or"
        " instance, over the tokens of a batch or of a sequence, for comparison. Instance norm cannot be causal: a"
        " decoder keeps layer.",
    )
    pre_norm: bool = Field(
        False,
        description="Norm before each sublayer (pre-norm), which trains more easily, or after it (the paper).",
    )
    norm_eps: float = Field(1e-5, gt=0, le=0.1, description="Added to the variance, or to the mean square, in norms.")
    activation: Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu"] = Field(
        "relu", description="Activation of the feed-forward layer; swiglu adds a gate and a third matrix."
    )
    positions: PositionKind = Field(
        "sinusoidal",
        description="Position encoding: added to embeddings (sinusoidal, learned), applied to queries and keys"
        " (rotary), or added to attention scores (alibi; relative, Shaw et al., 2018); syntax adds the position in the"
        " dependency tree of a source sentence (Wang et al., 2019), given by data.trees.",
    )
    relative_window: Annotated[int, Field(ge=1, le=4096)] = Field(
        16, description="Maximum distance that relative positions distinguish."
    )
    max_length: Annotated[int, Field(ge=2, le=1_048_576)] = Field(
        1024, description="Maximum sequence length, in tokens."
    )
    source_max_length: Annotated[int, Field(ge=2, le=1_048_576)] | None = Field(
        None, description="Maximum length of the source, in positions of the encoder; max_length if not set."
    )
    tie: Literal["all", "target", "none"] = Field(
        "all",
        description="Share source, target and output embeddings (all; the paper), target and output (target), or none.",
    )
    scale_embedding: bool = Field(True, description="Multiply embeddings by the square root of d_model.")
    embedding_norm: bool = Field(False, description="LayerNorm after the embeddings (BERT).")
    bias: bool = Field(True, description="Biases in every linear layer.")
    output_bias: bool = Field(False, description="Bias of the output projection.")
    token_types: Annotated[int, Field(ge=0, le=16)] = Field(0, description="Token types (segments) of an encoder.")
    head: Literal["linear", "transform", "none"] = Field(
        "linear",
        description="Head of an encoder: linear, the output projection alone; transform, after a dense layer,"
        " activation and LayerNorm (BERT); none, hidden states only.",
    )
    pooler: bool = Field(False, description="Pooler: a dense layer and tanh on the first token (BERT).")
    labels: tuple[str, ...] = Field((), description="Labels that an encoder predicts; set by the corpus.")
    label_kind: LabelKind = Field(
        "classification",
        description="What the labels of an encoder describe: a text (classification, or regression, where a number is"
        " predicted), each token (tagging), or the start and end of an answer (question-answering); set by the task.",
    )
    dropout: Probability = Field(0.1, description="Dropout on embeddings and on every sublayer's output.")
    attention_dropout: Probability = Field(0.0, description="Dropout on attention weights.")
    activation_dropout: Probability = Field(0.0, description="Dropout after the activation of the feed-forward layer.")
    pad_id: Annotated[int, Field(ge=0)] = Field(0, description="Id of the padding token; set by the tokenizer.")
    bos_id: Annotated[int, Field(ge=0)] = Field(
        2, description="Id of the token that decoding starts from; set by the tokenizer."
    )
    eos_id: Annotated[int, Field(ge=0)] = Field(3, description="Id of the end-of-sequence token; set by the tokenizer.")

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> Self:
        if info.context == "draft":  # a preset will still fill in the rest
            return self
        if self.architecture == "transformer":
            self._attention_fits()
        else:
            self._other_architecture_fits()
        if self.positions in ("sinusoidal", "syntax") and self.has_positions and self.d_model % 2:
            raise ValueError(f"{self.positions} positions need an even d_model, and it is {self.d_model}")
        if self.source_vocab_size is not None and self.tie == "all":
            raise ValueError("separate vocabularies cannot share embeddings three ways; set model.tie=target")
        if self.family != "encoder" and (self.head != "linear" or self.pooler or self.labels):
            raise ValueError(f"head, pooler and labels are parts of an encoder, and this is the {self.family} family")
        self._features_fit()
        if max(self.max_length, self.source_length) * self.d_model > 2**28:
            longest = max(self.max_length, self.source_length)
            raise ValueError(f"max_length ({longest}) times d_model ({self.d_model}) is more than 2 ** 28")
        if max(self.pad_id, self.bos_id, self.eos_id) >= self.vocab_size:
            raise ValueError(f"pad_id, bos_id and eos_id must be below vocab_size ({self.vocab_size})")
        return self

    def _features_fit(self) -> None:
        if not self.features:
            for name in ("full_window", "ctc"):
                if getattr(self, name):
                    raise ValueError(f"{name} is for audio input, and this model reads tokens; leave it out")
        elif self.family != "encoder-decoder" or self.architecture != "transformer":
            raise ValueError("audio input needs a Transformer of the encoder-decoder family")
        elif self.act_halting or self.experts:
            raise ValueError("audio input does not work with act_halting or experts; leave them out")
        elif self.source_vocab_size is not None or self.tie == "target":
            raise ValueError("a model with audio input has no source vocabulary; set model.tie to all or none")

    def _attention_fits(self) -> None:
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model ({self.d_model}) must be divisible by n_heads ({self.n_heads})")
        if self.positions == "rotary" and self.key_width % 2:
            raise ValueError(f"rotary positions need an even width of a head's keys, and it is {self.key_width}")
        if self.family == "encoder" and self.decoder_attention is not None:
            raise ValueError("decoder_attention is set, but a model of the encoder family has no decoder; leave it out")
        if self.family != "encoder" and self.attention_of_decoder == "linformer":
            raise ValueError(
                "linformer attention projects all tokens onto a few, so it cannot be causal; "
                "set model.decoder_attention, or model.attention in a GPT, to another kind"
            )
        for kind in (self.attention, self.attention_of_decoder):
            if kind in ("linformer", "linear") and self.positions in ("alibi", "relative"):
                raise ValueError(
                    f"{kind} attention computes no score per pair of tokens, which {self.positions} positions need; "
                    "set model.positions to sinusoidal, learned or rotary"
                )
            if kind == "linear" and self.attention_dropout:
                raise ValueError(
                    "linear attention has no attention weights to apply dropout to; set model.attention_dropout to 0"
                )
        if self.positions == "syntax" and (
            self.family != "encoder-decoder" or self.attention != "full" or self.universal
        ):
            raise ValueError(
                "syntax positions are those of a source sentence under full attention; set model.positions to another "
                "scheme, or model.attention=full and model.universal=false in a translator"
            )
        if self.act_halting and not self.universal:
            raise ValueError("act_halting needs a Universal Transformer; set model.universal=true")
        if self.experts and self.experts_per_token > self.experts:
            raise ValueError(f"experts_per_token ({self.experts_per_token}) is more than experts ({self.experts})")
        if self.norm == "instance" and self.family == "decoder":
            raise ValueError(
                "instance norm takes statistics over a whole sequence, so a language model cannot be causal with it; "
                "set model.norm to layer, rms or batch"
            )

    def _other_architecture_fits(self) -> None:
        architecture = self.architecture
        usual: dict[str, object] = {"attention": "full", "decoder_attention": None, "universal": False}
        usual |= {"act_halting": False, "experts": 0, "norm": "layer"}
        for name, value in usual.items():
            if getattr(self, name) != value:
                raise ValueError(
                    f"{name} is a setting of the transformer architecture, and model.architecture is {architecture}"
                )
        if architecture == "rnn" and self.source_span != "global" and self.source_attention in ("none", "additive"):
            raise ValueError(
                f"{self.source_span} attention is Luong's, and source_attention is {self.source_attention}; "
                "set model.source_attention to dot, general or concat"
            )
        if architecture == "rnn" and self.bidirectional and self.d_model % 2:
            raise ValueError(f"a bidirectional encoder needs an even d_model, and it is {self.d_model}")
        if architecture == "bytenet" and self.d_model % 2:
            raise ValueError(f"a bytenet halves d_model inside its blocks, and it is odd: {self.d_model}")
        if architecture == "memory-network" and self.family == "encoder-decoder":
            raise ValueError(
                "a memory-network answers questions (the encoder family) or models language (decoder), and translates "
                "nothing; use another architecture"
            )
        if architecture == "neural-gpu" and self.family == "decoder":
            raise ValueError(
                "a neural-gpu transforms a source, and a language model has none; use another architecture"
            )
        if (
            architecture in ("conv", "bytenet", "neural-gpu")
            and self.family != "decoder"
            and self.kernel_width % 2 == 0
        ):
            raise ValueError(f"a convolution over a source needs an odd kernel_width, and it is {self.kernel_width}")
        if architecture == "conv" and self.positions not in ("sinusoidal", "learned"):
            raise ValueError(
                f"the conv architecture does not support {self.positions} positions; set model.positions=sinusoidal"
            )

    @property
    def has_positions(self) -> bool:
        """Whether model.positions has an effect; other architectures know the order of tokens without it."""
        return self.architecture in ("transformer", "conv")

    @property
    def has_cross_attention(self) -> bool:
        """Whether the decoder attends to the source, so that alignments can be read off."""
        return self.architecture in ("transformer", "conv") or (
            self.architecture == "rnn" and self.source_attention != "none"
        )

    @property
    def attention_of_decoder(self) -> AttentionKind:
        """The kind of self-attention in the decoder."""
        return self.decoder_attention or self.attention

    @property
    def positions_of_decoder(self) -> PositionKind:
        """The position scheme of the decoder, whose text has no tree yet."""
        return "sinusoidal" if self.positions == "syntax" else self.positions

    @property
    def norm_of_decoder(self) -> NormKind:
        """The norm of causal layers."""
        return "layer" if self.norm == "instance" else self.norm

    @property
    def source_length(self) -> int:
        """Maximum length of the source."""
        return self.source_max_length or self.max_length

    @property
    def d_head(self) -> int:
        """Width of one head's values."""
        return self.d_model // self.n_heads

    @property
    def key_width(self) -> int:
        """Width of one head's queries and keys."""
        return self.d_key or self.d_head


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
    embedding_init: Literal["random", "lsa"] = Field(
        "random",
        description="Initial embeddings: random, or lsa: latent semantic analysis of the co-occurrence of tokens in"
        " sentence pairs.",
    )
    pretrained_embeddings: Path | None = Field(
        None, description="File of pretrained word vectors in word2vec or GloVe text format."
    )
    freeze_embeddings: bool = Field(False, description="Do not train the embeddings found in pretrained_embeddings.")


class SearchSettings(Section):
    """Defaults of decoding, saved in the model folder."""

    beam: Annotated[int, Field(ge=1, le=1000)] = Field(4, description="Beam size; 1 is greedy search.")
    length_penalty: float = Field(
        0.6, ge=0, le=10, description="Length penalty α (GNMT): scores are divided by ((5 + length) / 6) ** α."
    )
    max_extra: Annotated[int, Field(ge=0)] = Field(
        50, description="Maximum output length: source length plus this many tokens (the paper)."
    )
    max_length: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Maximum number of output tokens, eos included; derived from the source if not set."
    )
    min_length: Annotated[int, Field(ge=0)] = Field(0, description="Minimum number of output tokens, eos not included.")
    no_repeat_ngram: Annotated[int, Field(ge=0)] = Field(
        0, description="No n-gram of this length occurs twice in an output (Paulus et al., 2018); 0 allows all."
    )
    loop_guard: bool = Field(
        True,
        description="Search a sentence again if its output repeats an n-gram four times in a row or more, and its"
        " source does not. Other outputs stay the same.",
    )
