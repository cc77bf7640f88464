"""Models with random weights that transformers itself makes and saves, with vocabularies."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

LINES = [
    "A man rides a bicycle through the town.",
    "Two young children play in the garden, and it does not rain.",
    "Ein Mann fährt mit dem Fahrrad durch die Stadt.",
    "Zwei kleine Kinder spielen im Garten; es regnet nicht.",
    "L'été, où l'on n'a rien à faire… « rien ! »",
] * 4
TEXTS = ["A man plays in the garden.", "x", "Zwei Kinder, ｆｕｌｌ 日本 – it's ①!", "  the   town  "]


def shaken(model: Any, seed: int = 0) -> Any:
    """Random numbers everywhere, the biases and norms included; eos gets a chance to be chosen."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.requires_grad:  # not the sinusoids
                spread = 1.2 * min(weight.shape) ** -0.5 if weight.dim() > 1 else 0.2
                weight.copy_(torch.randn(weight.shape, generator=generator) * spread + (name.endswith("norm.weight")))
        if hasattr(model, "final_logits_bias"):
            bias = torch.randn(model.final_logits_bias.shape, generator=generator)
            bias[0, model.config.eos_token_id] += 5.0
            model.final_logits_bias.copy_(bias)
    return model.eval()


@cache
def spm(language: int) -> bytes:
    """A small SentencePiece model of the even or the odd lines."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES[language::2]), model_writer=model, vocab_size=90, hard_vocab_limit=False,
        minloglevel=2,
    )  # fmt: skip
    return model.getvalue()


def pieces(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def table(*spms: bytes) -> dict[str, int]:
    """As OPUS-MT has it: eos first, pad last."""
    result = [piece for model in spms for piece in pieces(model) if piece not in ("<s>", "</s>", "<unk>")]
    return {piece: i for i, piece in enumerate(["</s>", "<unk>", ">>fr<<", *dict.fromkeys(result), "<pad>"])}


def marian(
    path: Path, seed: int = 0, separate: bool = False, save: bool = True, kind: str = "MarianMTModel", **changes: Any
) -> Any:
    """A MarianMTModel or its like, saved with its vocabularies; they are different sizes if `separate`."""
    both = table(spm(0), spm(1))
    source, target = (table(spm(0)), table(spm(1))) if separate else (both, both)
    if separate:  # pad has one id for both sides
        for item in (source, target):
            item["<pad>"], item[next(k for k, v in item.items() if v == 3)] = 3, item["<pad>"]
    pad = target["<pad>"]
    settings = {
        "vocab_size": len(source), "decoder_vocab_size": len(target), "d_model": 16, "encoder_layers": 2,
        "decoder_layers": 1, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "max_position_embeddings": 64, "activation_function": "swish",
        "scale_embedding": True, "pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0,
        "forced_eos_token_id": 0, "share_encoder_decoder_embeddings": not separate, **changes,
    }  # fmt: skip
    make = getattr(transformers, kind)
    model = shaken(make(make.config_class(**settings)), seed)
    model.generation_config.update(bad_words_ids=[[pad]], num_beams=3)
    if save:
        model.save_pretrained(path)
        (path / "source.spm").write_bytes(spm(0))
        (path / "target.spm").write_bytes(spm(1))
        (path / "vocab.json").write_text(json.dumps(source))
        if separate:
            (path / "target_vocab.json").write_text(json.dumps(target))
        settings = {"separate_vocabs": separate, "source_lang": "en", "target_lang": "de"}
        (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer", **settings}))
    return model


@cache
def byte_level() -> str:
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator(LINES, trainer)
    return inner.to_str()


def gpt2(path: Path, seed: int = 0, **changes: Any) -> Any:
    """A GPT2LMHeadModel with vocab.json and merges.txt."""
    inner = tokenizers.Tokenizer.from_str(byte_level())
    end = inner.token_to_id("<|endoftext|>")
    settings = {
        "vocab_size": inner.get_vocab_size(), "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 64,
        "bos_token_id": end, "eos_token_id": end, **changes,
    }  # fmt: skip
    model = shaken(transformers.GPT2LMHeadModel(transformers.GPT2Config(**settings)), seed)
    model.save_pretrained(path)
    inner.model.save(str(path))
    return model


def bart(path: Path, seed: int = 0, whole: bool = True, **changes: Any) -> Any:
    """A BartForConditionalGeneration with tokenizer.json, or with vocab.json and merges.txt."""
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=special, show_progress=False, initial_alphabet=alphabet
    )
    inner.train_from_iterator(LINES, trainer)
    inner.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=False)
    settings = {
        "vocab_size": inner.get_vocab_size(), "d_model": 16, "encoder_layers": 2, "decoder_layers": 1,
        "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        "max_position_embeddings": 64, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
        "decoder_start_token_id": 2, "forced_eos_token_id": None, **changes,
    }  # fmt: skip
    model = shaken(transformers.BartForConditionalGeneration(transformers.BartConfig(**settings)), seed)
    model.save_pretrained(path)
    if whole:
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=inner, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
        ).save_pretrained(path)
    else:
        inner.model.save(str(path))
    return model


def pegasus(path: Path, seed: int = 0, **changes: Any) -> Any:
    """A PegasusForConditionalGeneration with the tokenizer.json that transformers writes for it."""
    inner = tokenizers.Tokenizer(models.Unigram())
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<pad>", "</s>", "<mask_1>", "<mask_2>", "<unk_2>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=special, unk_token="<unk>", show_progress=False)
    inner.train_from_iterator(LINES, trainer)
    vocab = [(piece, score) for piece, score in json.loads(inner.to_str())["model"]["vocab"]]
    tokenizer = transformers.PegasusTokenizer(vocab=vocab, offset=3)
    tokenizer.save_pretrained(path)
    settings = {
        "vocab_size": len(tokenizer), "d_model": 16, "encoder_layers": 2, "decoder_layers": 1,
        "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        "max_position_embeddings": 64, "activation_function": "relu", "scale_embedding": True, "pad_token_id": 0,
        "decoder_start_token_id": 0, "eos_token_id": 1, "forced_eos_token_id": None, **changes,
    }  # fmt: skip
    model = shaken(transformers.PegasusForConditionalGeneration(transformers.PegasusConfig(**settings)), seed)
    model.save_pretrained(path)
    return model


@cache
def word_pieces(lowercase: bool = True) -> str:
    inner = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    inner.train_from_iterator(
        LINES, trainers.WordPieceTrainer(vocab_size=180, special_tokens=special, show_progress=False)
    )
    return inner.to_str()


def bert(path: Path, kind: str = "BertForMaskedLM", seed: int = 0, **changes: Any) -> Any:
    """A BERT of some kind with vocab.txt."""
    inner = tokenizers.Tokenizer.from_str(word_pieces())
    settings = {
        "vocab_size": inner.get_vocab_size(), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 24, "max_position_embeddings": 64, "pad_token_id": 0, **changes,
    }  # fmt: skip
    model = shaken(getattr(transformers, kind)(transformers.BertConfig(**settings)), seed)
    model.save_pretrained(path)
    words = sorted(inner.get_vocab().items(), key=lambda item: item[1])
    (path / "vocab.txt").write_text("\n".join(word for word, _ in words) + "\n", encoding="utf-8")
    return model


def padded(lengths: list[int], size: int, pad: int, seed: int = 0, avoid: tuple[int, ...] = (0, 1)) -> torch.Tensor:
    """(B, longest) random ids, padded on the right."""
    generator = torch.Generator().manual_seed(seed)
    usable = torch.tensor([i for i in range(size) if i != pad and i not in avoid])
    ids = torch.full((len(lengths), max(lengths)), pad)
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = usable[torch.randint(len(usable), (length,), generator=generator)]
    return ids
