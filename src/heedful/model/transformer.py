"""The three families: encoder-decoder (the paper's Transformer), decoder alone (GPT), encoder alone (BERT).

They are stacks of the same block and differ by what a token may attend to: the other sequence, the past, or everything.
In place of the stacks there may be what the paper compares them with, recurrent or convolutional layers.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.baselines import conv, rnn
from heedful.model.baselines.universal import UniversalStack
from heedful.model.block import ACTIVATIONS, Stack
from heedful.model.cache import Cache
from heedful.model.masks import causal, not_padding
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


def build_encoder(config: ModelConfig, memory: bool = False) -> Stack | rnn.RNNEncoder | conv.ConvEncoder:
    """Layers that see a whole sequence, (B, S, D) embeddings and what is no padding -> (B, S, D), or a `memory`."""
    if config.architecture == "rnn":
        return rnn.RNNEncoder(config, config.encoder_layers)
    if config.architecture == "conv":
        return conv.ConvEncoder(config, config.encoder_layers, memory)
    return (UniversalStack if config.universal else Stack)(config, config.encoder_layers)


def build_decoder(config: ModelConfig, cross: bool = False) -> Stack | rnn.RNNDecoder | conv.ConvDecoder:
    """Layers that see what came before and, if `cross`, a memory."""
    if config.architecture == "rnn":
        return rnn.RNNDecoder(config, config.decoder_layers, cross)
    if config.architecture == "conv":
        return conv.ConvDecoder(config, config.decoder_layers, cross)
    return (UniversalStack if config.universal else Stack)(config, config.decoder_layers, cross, causal=True)


class Model(nn.Module):
    """What the families share: the embedding of the (target) vocabulary and the projection back onto it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config.vocab_size, config)
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False) if config.tie == "none" else None
        self.output_bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.output_bias else None
        self.logits = nn.Identity()  # a tap
        self._listeners = self.logits._forward_hooks

    @property
    def output_weight(self) -> Tensor:
        """(V, D): the embeddings themselves unless untied."""
        return self.embedding.weight if self.output is None else self.output.weight

    def before_output(self, hidden: Tensor) -> Tensor:
        """(..., D) -> (..., D): hidden states as the output projection takes them."""
        return hidden

    def project(self, hidden: Tensor) -> Tensor:
        """(..., D) -> (..., V): logits."""
        logits = F.linear(self.before_output(hidden), self.output_weight, self.output_bias)
        return self.logits(logits) if self._listeners else logits

    def initialize(self) -> None:
        """Glorot-uniform matrices, zero biases, embeddings of standard deviation d_model ** -0.5."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, Embedding):
                nn.init.normal_(module.weight, std=self.config.d_model**-0.5)

    def _past(self, queries: int, keys: int, device: torch.device) -> Tensor | None:
        """The mask over what is to come. Only full attention needs it; all else in a decoder cannot look ahead."""
        full = self.config.architecture == "transformer" and self.config.attention_of_decoder == "full"
        return causal(queries, keys, device) if full else None

    def _check_length(self, ids: Tensor, start: int = 0) -> None:
        if start + ids.size(1) > self.config.max_length:
            raise ValueError(f"{start + ids.size(1)} tokens, but the model takes {self.config.max_length} at most")


class EncoderDecoder(Model):
    """The Transformer of the paper: the encoder reads the source, the decoder writes the target."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        separate = config.tie != "all"
        self.source_embedding = Embedding(config.source_vocab_size or config.vocab_size, config) if separate else None
        self.encoder = build_encoder(config, memory=True)
        self.decoder = build_decoder(config, cross=True)
        self.initialize()

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """(B, S), (B, T) -> (B, T, D); `project` makes logits of it."""
        source_keep = not_padding(source, self.config.pad_id)
        return self.decode(target, self.encode(source, source_keep), source_keep)

    def encode(self, source: Tensor, source_keep: Tensor) -> Tensor:
        """(B, S) -> (B, S, D), or what else the decoder takes for a memory."""
        self._check_length(source)
        embedding = self.embedding if self.source_embedding is None else self.source_embedding
        hidden: Tensor = self.encoder(embedding(source), source_keep)
        return hidden

    def decode(
        self, target: Tensor, memory: Tensor | None, source_keep: Tensor | None, cache: Cache | None = None
    ) -> Tensor:
        """(B, T), (B, S, D) -> (B, T, D); with a cache, `target` holds only what comes after the cached tokens."""
        past = cache.length if cache else 0
        self._check_length(target, past)
        keep = self._past(target.size(1), past + target.size(1), target.device)
        if keep is not None and cache is None and self.config.bos_id != self.config.pad_id:
            keep = keep & not_padding(target, self.config.pad_id)
        hidden: Tensor = self.decoder(self.embedding(target), keep, memory, source_keep, cache)
        return hidden

    def start(self, source: Tensor) -> Cache:
        """(B, S) -> a cache that holds the source, projected for every decoder layer."""
        source_keep = not_padding(source, self.config.pad_id)
        return self.decoder.start(self.encode(source, source_keep), source_keep)

    def step(self, target: Tensor, cache: Cache) -> Tensor:
        """(R, T) -> (R, T, D): the hidden states of the tokens that follow the cached ones."""
        return self.decode(target, None, cache.source_keep, cache)


class DecoderModel(Model):
    """A language model: each token attends to itself and to what came before (GPT)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.decoder = build_decoder(config)
        self.initialize()

    def forward(self, ids: Tensor, cache: Cache | None = None) -> Tensor:
        """(B, T) -> (B, T, D); `project` makes logits of it."""
        past = cache.length if cache else 0
        self._check_length(ids, past)
        keep, own = self._past(ids.size(1), past + ids.size(1), ids.device), cache.keep(ids.size(1)) if cache else None
        keep = own if keep is None else keep if own is None else keep & own
        hidden: Tensor = self.decoder(self.embedding(ids), keep, cache=cache)
        return hidden

    def start(self) -> Cache:
        """An empty cache."""
        return self.decoder.start()

    def step(self, ids: Tensor, cache: Cache) -> Tensor:
        """(R, T) -> (R, T, D)."""
        hidden: Tensor = self(ids, cache)
        return hidden


class Transform(nn.Module):
    """LayerNorm(f(x W + b)): what BERT does to hidden states before it compares them with the embeddings."""

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
    """Hidden states that see the whole sequence, padding excepted (BERT; Devlin et al., 2019)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.token_types = Embedding(config.token_types, config) if config.token_types else None
        self.encoder = build_encoder(config)
        self.transform = Transform(config) if config.head == "transform" else None
        self.pooler = nn.Linear(config.d_model, config.d_model, bias=config.bias) if config.pooler else None
        self.classifier = nn.Linear(config.d_model, len(config.labels)) if config.labels else None
        self.initialize()

    def forward(self, ids: Tensor, keep: Tensor | None = None, types: Tensor | None = None) -> Tensor:
        """(B, S), (B, 1, 1, S) and (B, S) -> (B, S, D); without `keep`, padding is found by its id."""
        self._check_length(ids)
        x = self.embedding(ids)
        if self.token_types is not None:
            x = x + self.token_types(torch.zeros_like(ids) if types is None else types)
        hidden: Tensor = self.encoder(x, not_padding(ids, self.config.pad_id) if keep is None else keep)
        return hidden

    def before_output(self, hidden: Tensor) -> Tensor:
        if self.config.head == "none":
            raise ValueError("this encoder gives hidden states and no logits: model.head is none")
        return hidden if self.transform is None else self.transform(hidden)

    def pool(self, hidden: Tensor) -> Tensor:
        """(B, S, D) -> (B, D): one vector for each sequence, from its first token."""
        if self.pooler is None:
            raise ValueError("this encoder has no pooler: model.pooler is false")
        return torch.tanh(self.pooler(hidden[:, 0]))

    def pool_sequence(self, hidden: Tensor, real: Tensor) -> Tensor:
        """(B, S, D), (B, S) -> (B, D): what a classifier sees, by the pooler or else the mean of the real tokens."""
        if self.pooler is not None:
            vector = self.pool(hidden)
        else:
            weights = real.to(hidden.dtype).unsqueeze(2)  # (B, S, 1)
            vector = (hidden * weights).sum(1) / weights.sum(1)
        return dropout(vector, self.config.dropout, self.training)

    def classify(self, hidden: Tensor, real: Tensor) -> Tensor:
        """(B, S, D), (B, S) -> (B, C): logits of the labels."""
        if self.classifier is None:
            raise ValueError("this encoder has no classifier: model.labels is empty")
        logits: Tensor = self.classifier(self.pool_sequence(hidden, real))
        return logits


FAMILIES: dict[str, type[EncoderDecoder] | type[DecoderModel] | type[EncoderModel]] = {
    "encoder-decoder": EncoderDecoder,
    "decoder": DecoderModel,
    "encoder": EncoderModel,
}


def build_model(config: ModelConfig) -> EncoderDecoder | DecoderModel | EncoderModel:
    """A model of the family and shape that `config` says, with fresh weights."""
    return FAMILIES[config.family](config)
