"""Vocabulary files of transformers -> heedful tokenizers, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from heedful.config import ModelConfig
from heedful.errors import FolderError
from heedful.files import find, read_json, read_text
from heedful.storage import folder
from heedful.storage.atomic import atomic_write
from heedful.storage.folder import ModelFolder
from heedful.text import Tokenizer
from heedful.text.sentencepiece_models import SentencePieceTokenizer, checked_table
from heedful.text.tokenizer import explain_errors

MOST_TABLE = 16 << 20  # bytes of a vocab.json, vocab.txt, merges.txt or .spm file
MOST_JSON = 64 << 20  # bytes of a tokenizer.json
PROBE = "A first word, 1st of many: ｆｕｌｌ, naïve – 你好 🙂"
TARGET = "target_tokenizer"  # folder of the target vocabulary if a translator has two
ENDOFTEXT = "<|endoftext|>"


def read(path: Path, config: ModelConfig) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of target and source."""
    if config.family == "encoder-decoder" and find(path, "source.spm"):
        target, source = _marian(path, config)
    elif config.source_vocab_size is not None:
        if (path / TARGET).is_symlink():
            raise FolderError(f"{path / TARGET} is a link out of its folder; copy what it points to into the folder.")
        target, source = (_whole(place, folder.special_ids(config, place is path)) for place in (path / TARGET, path))
    else:
        target = source = _single(path, config)
    folder.check_vocabulary(path, target, config.vocab_size)
    folder.check_vocabulary(path, source, config.source_vocab_size or config.vocab_size)
    return target, source


def has_two(path: Path) -> bool:
    """Whether source and target have a vocabulary each."""
    return (path / TARGET).is_dir() or find(path, "target_vocab.json") is not None


def _single(path: Path, config: ModelConfig) -> Tokenizer:
    ids = {} if config.family == "encoder" else folder.special_ids(config)
    if find(path, "tokenizer.json"):
        return _whole(path, ids)
    if config.family == "encoder-decoder" and find(path, "merges.txt"):
        with explain_errors(str(path / "vocab.json")):
            inner = _framed(_bytes(path))
        return _used(Tokenizer.from_json(inner.to_str(), str(path / "vocab.json"), ids))
    if config.family == "encoder-decoder":
        raise FolderError(f"{path} has neither source.spm and target.spm nor tokenizer.json; it needs a vocabulary.")
    name, build = ("vocab.json", _bytes) if config.family == "decoder" else ("vocab.txt", _words)
    with explain_errors(str(path / name)):
        inner = build(path)
    return _used(Tokenizer.from_json(inner.to_str(), str(path / name), ids))


def _whole(path: Path, ids: dict[str, int]) -> Tokenizer:
    """The tokenizer of a tokenizer.json."""
    file = find(path, "tokenizer.json", MOST_JSON)
    if file is None:
        raise FolderError(f"{path} has no tokenizer.json; a model needs its vocabulary.")
    return _used(Tokenizer.load(file, ids=ids))


def _used(tokenizer: Tokenizer) -> Tokenizer:
    """Encode and decode a probe: some damage shows only in use."""
    tokenizer.decode(tokenizer.encode(PROBE))
    return tokenizer


def _bytes(path: Path) -> tokenizers.Tokenizer:
    """GPT-2's vocab.json and merges.txt: byte-pair encoding over bytes."""
    table, merges = _table(path, "vocab.json"), _needed(path, "merges.txt")
    pairs = [line.split(" ") for line in merges.split("\n") if line and not line.startswith("#version")]
    if any(len(pair) != 2 for pair in pairs):
        raise FolderError(f"{path / 'merges.txt'} has a line that is not two pieces; copy it again.")
    inner = tokenizers.Tokenizer(models.BPE(vocab=table, merges=[(a, b) for a, b in pairs]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([ENDOFTEXT] if ENDOFTEXT in table else [])
    return inner


def _framed(inner: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """BART's form of GPT-2's vocabulary: `<s> text </s>`."""
    table = inner.get_vocab()
    inner.add_special_tokens([piece for piece in ("<s>", "<pad>", "</s>", "<unk>", "<mask>") if piece in table])
    inner.post_processor = processors.RobertaProcessing(
        ("</s>", table["</s>"]), ("<s>", table["<s>"]), trim_offsets=False, add_prefix_space=False
    )
    return inner


def _words(path: Path) -> tokenizers.Tokenizer:
    """BERT's vocab.txt, one token per line: WordPiece."""
    lines = _needed(path, "vocab.txt").split("\n")
    table = {piece.rstrip("\r"): index for index, piece in enumerate(lines) if piece or index < len(lines) - 1}
    settings = read_json(path, "tokenizer_config.json") or {}
    strip = settings.get("strip_accents")
    inner = tokenizers.Tokenizer(models.WordPiece(table, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=settings.get("tokenize_chinese_chars") is not False,
        strip_accents=strip if isinstance(strip, bool) else None,
        lowercase=settings.get("do_lower_case") is not False,
    )
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece(prefix="##")
    inner.add_special_tokens([token for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if token in table])
    return inner


def _marian(path: Path, config: ModelConfig) -> tuple[Tokenizer, Tokenizer]:
    """source.spm and target.spm with one vocab.json, or with one for each language."""
    source_table = target_table = _table(path, "vocab.json")
    if config.source_vocab_size is not None:
        target_table = _table(path, "target_vocab.json")
    target, source = (
        SentencePieceTokenizer(_model(path, name), table, folder.special_ids(config, of_source), str(path / name))
        for name, table, of_source in (("target.spm", target_table, False), ("source.spm", source_table, True))
    )
    return target, source


def _table(path: Path, name: str) -> dict[str, int]:
    return checked_table(read_json(path, name, MOST_TABLE), str(path / name))


def _needed(path: Path, name: str) -> str:
    text = read_text(path, name, MOST_TABLE)
    if text is None:
        raise FolderError(f"{path} has neither tokenizer.json nor {name}; a model needs its vocabulary.")
    return text


def _model(path: Path, name: str) -> bytes:
    file = find(path, name, MOST_TABLE)
    if file is None:
        raise FolderError(f"{path} has no {name}; copy the folder again.")
    return file.read_bytes()


def write(opened: ModelFolder, path: Path) -> None:
    """Write the files that AutoTokenizer loads; the folder `target_tokenizer` holds a second vocabulary."""
    config, source, target = opened.model.config, opened.source_tokenizer, opened.tokenizer
    if isinstance(source, SentencePieceTokenizer) and isinstance(target, SentencePieceTokenizer):
        _write_marian(source, target, config, path)
        return
    _write_whole(source, config, path)
    if source is not target:
        (path / TARGET).mkdir()
        _write_whole(target, config, path / TARGET)


def _write_marian(
    source: SentencePieceTokenizer, target: SentencePieceTokenizer, config: ModelConfig, path: Path
) -> None:
    separate = config.source_vocab_size is not None
    atomic_write(path / "source.spm", source.model)
    atomic_write(path / "target.spm", target.model)
    atomic_write(path / "vocab.json", json.dumps(source.table, indent=2))
    if separate:
        atomic_write(path / "target_vocab.json", json.dumps(target.table, indent=2))
    _write_settings(path, {"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate}, source, config)


def _write_whole(tokenizer: Tokenizer, config: ModelConfig, path: Path) -> None:
    inner = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    bos, eos = tokenizer.pieces([tokenizer.bos_id, tokenizer.eos_id])
    if inner.post_processor is None and config.family != "decoder":
        first = f"{bos} " if config.family == "encoder" else ""
        pair = f"{eos} $B:1 {eos}:1" if config.family == "encoder" else f"$B {eos}"
        inner.post_processor = processors.TemplateProcessing(
            single=f"{first}$A {eos}",
            pair=f"{first}$A {pair}",
            special_tokens=[(bos, tokenizer.bos_id), (eos, tokenizer.eos_id)],
        )
    atomic_write(path / "tokenizer.json", inner.to_str(pretty=True))
    # special tokens in a user's text are plain text, even "</s>", except [MASK] for an encoder
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "split_special_tokens": config.family != "encoder"}
    _write_settings(path, settings, tokenizer, config)


def _write_settings(path: Path, settings: dict[str, Any], tokenizer: Tokenizer, config: ModelConfig) -> None:
    parts = {"pad_token": tokenizer.pad_id, "eos_token": tokenizer.eos_id, "bos_token": tokenizer.bos_id}
    if config.family == "encoder":
        parts |= {"cls_token": tokenizer.bos_id, "sep_token": tokenizer.eos_id}
    parts |= {f"{name}_token": number for name, number in tokenizer.extras.items()}
    settings |= {name: tokenizer.pieces([number])[0] for name, number in parts.items()}
    inputs = ["input_ids", *(["token_type_ids"] if config.family == "encoder" else []), "attention_mask"]
    settings |= {"model_input_names": inputs, "model_max_length": config.max_length}
    settings["clean_up_tokenization_spaces"] = False
    atomic_write(path / "tokenizer_config.json", json.dumps(settings, indent=2, ensure_ascii=False))
