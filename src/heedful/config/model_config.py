"""`model.*`: architecture and sizes of the model, saved in the model folder; `model_checks` refuses contradictions."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, model_validator

from heedful.config.model_checks import check_model
from heedful.config.presets import Architecture, Family
from heedful.config.section import Probability, Section

LabelKind = Literal["classification", "regression", "tagging", "question-answering"]
AttentionKind = Literal["full", "window", "sparse", "linformer", "linear"]
NormKind = Literal["layer", "rms", "batch", "instance"]
PositionKind = Literal["sinusoidal", "learned", "rotary", "alibi", "relative", "syntax"]


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
    memory_noise: Annotated[float, Field(ge=0, le=1)] = Field(
        0.1,
        description="Random noise of a memory-network that answers questions: in training, up to this many empty"
        " memories for each real one, at random places.",
    )
    sentence_input: bool = Field(
        False,
        description="A Transformer encoder that answers questions reads each sentence as one vector, the sum of its"
        " word embeddings weighted by their places; the last sentence is the question (Dehghani et al., 2019).",
    )
    sentence_ends: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (),
        description="Ids of tokens that end a sentence, where a model reads sentences; set by the tokenizer.",
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
    pointer: bool = Field(
        False,
        description="Pointer-generator (See et al., 2017): the decoder may copy a token of the source, such as a name"
        " or a number, instead of generating one. Needs a shared vocabulary.",
    )
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
        if info.context != "draft":  # a preset fills in the rest of a draft
            check_model(self)
        return self

    @property
    def one_state(self) -> bool:
        """Whether an encoder has one hidden state for a whole text, that of its question, and none for its tokens."""
        return self.architecture == "memory-network" or self.sentence_input

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
