"""The three families: encoder-decoder (the paper's Transformer), decoder alone (GPT), encoder alone (BERT).

They are stacks of the same block and differ by what a token may attend to: the source and its past, its past, or all.
The baselines that the paper compares itself with replace the stacks by recurrent or convolutional layers.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.baselines import bytenet, conv, memory_network, neural_gpu, rnn
from heedful.model.baselines.universal import UniversalStack
from heedful.model.block import Stack
from heedful.model.context import Context
from heedful.model.feed_forward import ACTIVATIONS
from heedful.model.front_end import ConvFrontEnd
from heedful.model.kv_cache import KVCache
from heedful.model.masks import causal, not_padding
from heedful.model.pointer import CopySource, Pointer
from heedful.model.sentences import embed_sentences
from heedful.model.syntax_positions import TreeReader
from heedful.ops.dropout import dropout


class Embedding(nn.Module):
    """A vector for each token, times √d_model (section 3.4 of the paper)."""

    def __init__(self, vocab_size: int, config: ModelConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, config.d_model))
        self.scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) -> (B, T, D)."""
        return F.embedding(ids, self.weight) * self.scale


Encoder = (
    Stack
    | rnn.RNNEncoder
    | conv.ConvEncoder
    | bytenet.ByteNetEncoder
    | neural_gpu.NeuralGPUEncoder
    | memory_network.MemoryEncoder
)
Decoder = (
    Stack
    | rnn.RNNDecoder
    | conv.ConvDecoder
    | bytenet.ByteNetDecoder
    | neural_gpu.NeuralGPUDecoder
    | memory_network.MemoryDecoder
)


def build_encoder(config: ModelConfig, memory: bool = False) -> Encoder:
    """The layers over a whole sequence; with `memory`, their output is what a decoder attends to."""
    config = config.model_copy(update={"max_length": config.source_length})
    if config.architecture == "rnn":
        return rnn.RNNEncoder(config, config.encoder_layers)
    if config.architecture == "conv":
        return conv.ConvEncoder(config, config.encoder_layers, memory)
    if config.architecture == "bytenet":
        return bytenet.ByteNetEncoder(config, config.encoder_layers, memory)
    if config.architecture == "neural-gpu":
        return neural_gpu.NeuralGPUEncoder(config, config.encoder_layers, memory)
    if config.architecture == "memory-network":
        return memory_network.MemoryEncoder(config, config.encoder_layers)
    return (UniversalStack if config.universal else Stack)(config, config.encoder_layers)


def build_decoder(config: ModelConfig, cross: bool = False) -> Decoder:
    """The causal layers; with `cross`, they also attend to the encoder memory."""
    if config.architecture == "rnn":
        return rnn.RNNDecoder(config, config.decoder_layers, cross)
    if config.architecture == "conv":
        return conv.ConvDecoder(config, config.decoder_layers, cross)
    if config.architecture == "bytenet":
        return bytenet.ByteNetDecoder(config, config.decoder_layers, cross)
    if config.architecture == "neural-gpu":
        return neural_gpu.NeuralGPUDecoder(config, config.decoder_layers)
    if config.architecture == "memory-network":
        return memory_network.MemoryDecoder(config, config.decoder_layers)
    return (UniversalStack if config.universal else Stack)(config, config.decoder_layers, cross, causal=True)


class Model(nn.Module):
    """What the families share: the embedding of the (target) vocabulary and the output projection."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config.vocab_size, config)
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False) if config.tie == "none" else None
        self.output_bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.output_bias else None
        self.logits = nn.Identity()  # a tap
        self._logits_hooks = self.logits._forward_hooks

    @property
    def output_weight(self) -> Tensor:
        """(V, D): the embedding matrix itself unless untied."""
        return self.embedding.weight if self.output is None else self.output.weight

    def before_output(self, hidden: Tensor) -> Tensor:
        """(..., D) -> (..., D): the hidden states that the output projection multiplies."""
        return hidden

    def project(self, hidden: Tensor) -> Tensor:
        """(..., D) -> (..., V): logits."""
        logits = F.linear(self.before_output(hidden), self.output_weight, self.output_bias)
        return self.logits(logits) if self._logits_hooks else logits

    def initialize(self) -> None:
        """Glorot-uniform matrices, zero biases, embeddings of standard deviation d_model ** -0.5."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, Embedding):
                nn.init.normal_(module.weight, std=self.config.d_model**-0.5)

    def _causal_mask(self, queries: int, keys: int, device: torch.device) -> Tensor | None:
        """The causal mask of a decoder with full attention; all other decoders are causal without one."""
        full = self.config.architecture == "transformer" and self.config.attention_of_decoder == "full"
        return causal(queries, keys, device) if full else None

    def _check_length(self, length: int, most: int | None = None) -> None:
        most = most or self.config.max_length
        if length > most:
            raise ValueError(f"{length} tokens, but the model takes {most} at most")


class EncoderDecoder(Model):
    """The Transformer of the paper: the encoder reads the source, the decoder writes the target."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        separate = config.tie != "all" and not config.features
        self.source_embedding = Embedding(config.source_vocab_size or config.vocab_size, config) if separate else None
        self.front_end = ConvFrontEnd(config) if config.features else None
        self.encoder = build_encoder(config, memory=True)
        self.decoder = build_decoder(config, cross=True)
        self.ctc = nn.Linear(config.d_model, config.vocab_size) if config.ctc else None
        self.pointer = Pointer(config) if config.pointer else None
        self.trees: TreeReader | None = None  # the dependency trees of a source, for syntax positions
        self.initialize()

    def forward(self, source: Tensor, target: Tensor, source_lengths: Tensor | None = None) -> Tensor:
        """(B, S), (B, T), (B,) -> (B, T, D); `project` maps it to logits. See `encode`."""
        return self.decode(target, self.encode(source, source_lengths))

    def encode(self, source: Tensor, source_lengths: Tensor | None = None) -> Context:
        """(B, S) ids, or (B, frames, F) audio features -> the encoder memory (B, S, D) and its mask.

        `source_lengths` (B,) counts the real positions of audio, all of them if None; ids need none.
        """
        x, keep = self._embed_source(source, source_lengths)
        self._check_length(x.size(1), self.config.source_length)
        tree = None if self.trees is None else self.trees(source)
        real = None if keep is None else keep[:, 0, 0]
        memory: Tensor = self.encoder(x, Context(keep, real=real, tree=tree))
        copies = None
        if self.pointer is not None:
            assert keep is not None
            copies = self.pointer.source(source, memory, keep)
        return Context(memory=memory, memory_keep=keep, copies=copies)

    def _embed_source(self, source: Tensor, source_lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if self.front_end is not None:
            keep = None if source_lengths is None else self.front_end.mask(source, source_lengths)
            return self.front_end(source), keep
        embedding = self.embedding if self.source_embedding is None else self.source_embedding
        return embedding(source), not_padding(source, self.config.pad_id)

    def decode(self, target: Tensor, context: Context) -> Tensor:
        """(B, T) -> (B, T, D); with a KV cache, `target` holds only the tokens that follow the cached ones."""
        past = context.cache.length if context.cache else 0
        self._check_length(past + target.size(1))
        keep = self._causal_mask(target.size(1), past + target.size(1), target.device)
        real = None
        if context.cache is None and self.config.bos_id != self.config.pad_id:
            real = target != self.config.pad_id
            keep = keep if keep is None else keep & not_padding(target, self.config.pad_id)
        hidden: Tensor = self.decoder(
            self.embedding(target), Context(keep, context.memory, context.memory_keep, context.cache, real)
        )
        return hidden

    def start(self, source: Tensor, source_lengths: Tensor | None = None) -> KVCache:
        """(B, S), (B,) -> a KV cache that holds the source, projected by every decoder layer. See `encode`."""
        context = self.encode(source, source_lengths)
        cache = self.decoder.start_cache(context)
        cache.copies = context.copies
        return cache

    def step(self, target: Tensor, cache: KVCache) -> Tensor:
        """(R, T) -> (R, T, D): the hidden states of the tokens that follow the cached ones."""
        return self.decode(target, Context(memory_keep=cache.memory_keep, cache=cache))

    def project(self, hidden: Tensor, copies: CopySource | None = None) -> Tensor:
        """(R, ..., D) -> (R, ..., V): logits; those of a pointer-generator, which needs `copies`, are normalized."""
        if self.pointer is None:
            return super().project(hidden)
        if copies is None:
            raise ValueError("a pointer-generator needs the source that it copies from")
        logits = F.linear(hidden, self.output_weight, self.output_bias)
        mixture: Tensor = self.logits(self.pointer.mix(hidden, logits, copies))
        return mixture

    def target_logits(self, source: Tensor, target: Tensor, source_lengths: Tensor | None = None) -> Tensor:
        """(B, S), (B, T), (B,) -> (B, T, V): the logits of every token that follows one of the target."""
        context = self.encode(source, source_lengths)
        return self.project(self.decode(target, context), context.copies)


class DecoderModel(Model):
    """A language model: each token attends to itself and to what came before (GPT)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.decoder = build_decoder(config)
        self.initialize()

    def forward(self, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        """(B, T) -> (B, T, D); `project` maps it to logits."""
        past = cache.length if cache else 0
        self._check_length(past + ids.size(1))
        keep = self._causal_mask(ids.size(1), past + ids.size(1), ids.device)
        real = cache.not_padding(ids.size(1)) if cache else None
        keep = real if keep is None else keep if real is None else keep & real
        hidden: Tensor = self.decoder(self.embedding(ids), Context(keep, cache=cache, ids=ids))
        return hidden

    def start(self) -> KVCache:
        """An empty KV cache."""
        return self.decoder.start_cache(Context())

    def step(self, ids: Tensor, cache: KVCache) -> Tensor:
        """(R, T) -> (R, T, D)."""
        hidden: Tensor = self(ids, cache)
        return hidden


class Transform(nn.Module):
    """LayerNorm(f(x W + b)): BERT's transform of hidden states before the output projection."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.d_model, config.d_model, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = nn.LayerNorm(config.d_model, eps=config.norm_eps)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        normed: Tensor = self.norm(self.activation(self.dense(hidden)))
        return normed


class EncoderModel(Model):
    """Bidirectional hidden states: a token attends to all tokens except padding (BERT; Devlin et al., 2019)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.token_types = Embedding(config.token_types, config) if config.token_types else None
        self.encoder = build_encoder(config)
        self.transform = Transform(config) if config.head == "transform" else None
        self.pooler = nn.Linear(config.d_model, config.d_model, bias=config.bias) if config.pooler else None
        self.classifier = nn.Linear(config.d_model, len(config.labels)) if config.labels else None
        self.initialize()

    def forward(self, ids: Tensor, keep: Tensor | None = None, types: Tensor | None = None) -> Tensor:
        """(B, S), (B, 1, 1, S) and (B, S) -> (B, S, D); without `keep`, padding is masked by its id."""
        self._check_length(ids.size(1))
        x = self.embedding(ids)
        if self.token_types is not None:
            x = x + self.token_types(torch.zeros_like(ids) if types is None else types)
        keep = not_padding(ids, self.config.pad_id) if keep is None else keep
        if self.config.sentence_input:
            return self._read_sentences(x, ids, keep[:, 0, 0])
        hidden: Tensor = self.encoder(x, Context(keep, real=keep[:, 0, 0], ids=ids))
        return hidden

    def _read_sentences(self, x: Tensor, ids: Tensor, real: Tensor) -> Tensor:
        """(B, S, D), (B, S) twice -> (B, S, D): the hidden state of the question, the same at every token."""
        sentences, exist = embed_sentences(x, ids, real, self.config)
        hidden: Tensor = self.encoder(sentences, Context(exist[:, None, None], real=exist))
        return hidden[:, :1].expand_as(x)

    def before_output(self, hidden: Tensor) -> Tensor:
        if self.config.head == "none":
            raise ValueError("this encoder gives hidden states and no logits: model.head is none")
        return hidden if self.transform is None else self.transform(hidden)

    def embed(self, ids: Tensor, types: Tensor | None = None) -> Tensor:
        """(B, S) twice -> (B, D): the mean of the hidden states of each text, of length 1."""
        real = (ids != self.config.pad_id).unsqueeze(2)  # (B, S, 1)
        hidden: Tensor = self(ids, types=types)
        return F.normalize((hidden * real).sum(1) / real.sum(1), dim=1)

    def pool(self, hidden: Tensor) -> Tensor:
        """(B, S, D) -> (B, D): one vector per sequence, from its first token."""
        if self.pooler is None:
            raise ValueError("this encoder has no pooler: model.pooler is false")
        return torch.tanh(self.pooler(hidden[:, 0]))

    def pool_sequence(self, hidden: Tensor, real: Tensor) -> Tensor:
        """(B, S, D), (B, S) -> (B, D): the classifier's input, by the pooler or as the mean over real tokens."""
        if self.pooler is not None:
            vector = self.pool(hidden)
        else:
            weights = real.to(hidden.dtype).unsqueeze(2)  # (B, S, 1)
            vector = (hidden * weights).sum(1) / weights.sum(1)
        return dropout(vector, self.config.dropout, self.training)

    def classifier_input(self, hidden: Tensor, real: Tensor) -> Tensor:
        """(B, S, D), (B, S) -> (B, D), or (B, S, D) if the labels are those of tokens."""
        if self.config.label_kind in ("tagging", "question-answering"):
            return dropout(hidden, self.config.dropout, self.training)
        return self.pool_sequence(hidden, real)

    def classify(self, hidden: Tensor, real: Tensor) -> Tensor:
        """(B, S, D), (B, S) -> (B, C): logits of the labels of each text; or (B, S, C), of each token."""
        if self.classifier is None:
            raise ValueError("this encoder has no classifier: model.labels is empty")
        logits: Tensor = self.classifier(self.classifier_input(hidden, real))
        return logits


FAMILIES: dict[str, type[EncoderDecoder] | type[DecoderModel] | type[EncoderModel]] = {
    "encoder-decoder": EncoderDecoder,
    "decoder": DecoderModel,
    "encoder": EncoderModel,
}


def build_model(config: ModelConfig) -> EncoderDecoder | DecoderModel | EncoderModel:
    """A model of the family and sizes in `config`, with new random weights."""
    return FAMILIES[config.family](config)
