"""Opens a checkpoint of OpenAI's whisper package: a .pt file with sizes and tensors, and a vocabulary beside it.

The vocabulary is a .tiktoken file, a line for each token: its bytes in base64 and its rank. It is looked for in the
folder of the checkpoint and in the installed package. Nothing of either is executed.
"""

from __future__ import annotations

import base64
import binascii
import re
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from heedful.config import SearchSettings
from heedful.errors import FolderError
from heedful.files import find, read_text
from heedful.inference.whisper_tokens import TIME_STEP, is_multilingual
from heedful.interop import pickles
from heedful.interop.untrusted import ForeignConfig
from heedful.interop.weight_files import ForeignWeights
from heedful.storage.folder import ModelFolder, check_vocabulary
from heedful.text import Tokenizer

SIZES = {  # name in the checkpoint -> name in a Hugging Face configuration
    "n_mels": "num_mel_bins",
    "n_vocab": "vocab_size",
    "n_audio_ctx": "max_source_positions",
    "n_audio_state": "d_model",
    "n_audio_head": "encoder_attention_heads",
    "n_audio_layer": "encoder_layers",
    "n_text_ctx": "max_target_positions",
    "n_text_state": "d_model",
    "n_text_head": "decoder_attention_heads",
    "n_text_layer": "decoder_layers",
}
NAMES = [  # parts of tensor names in the checkpoint -> in Hugging Face's folders
    (r"\.blocks\.", ".layers."), (r"\.cross_attn_ln\.", ".encoder_attn_layer_norm."),
    (r"\.attn_ln\.", ".self_attn_layer_norm."), (r"\.mlp_ln\.", ".final_layer_norm."),
    (r"\.cross_attn\.", ".encoder_attn."), (r"\.attn\.", ".self_attn."), (r"\.mlp\.0\.", ".fc1."),
    (r"\.mlp\.2\.", ".fc2."), (r"\.([qkv])(uery|ey|alue)\.", r".\1_proj."),
    (r"_attn\.out\.", "_attn.out_proj."), (r"\.ln(_post)?\.", ".layer_norm."),
    (r"\.token_embedding\.", ".embed_tokens."), (r"\.positional_embedding$", ".embed_positions.weight"),
]  # fmt: skip
MOST_VOCABULARY = 16 << 20  # bytes
LANGUAGES = (  # in the order of their tokens
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi ml"
    " cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu am"
    " yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue"
)


def read(path: Path) -> ModelFolder:
    """Open a .pt file."""
    from heedful.interop.huggingface import model_of
    from heedful.interop.whisper import Whisper

    checkpoint = pickles.load_checkpoint(path)
    sizes, state = checkpoint.get("dims"), checkpoint.get("model_state_dict")
    if not isinstance(sizes, dict) or not isinstance(state, dict) or not sizes.keys() >= SIZES.keys():
        raise FolderError(f"{path} is not a checkpoint of Whisper: it has no dims and model_state_dict.")
    tensors = pickles.named_tensors(state, path)
    weights = ForeignWeights(path, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, tensors.__getitem__)
    weights = weights.renamed({name: _renamed(name) for name in tensors})
    description = _description(ForeignConfig(sizes, path))
    model = model_of(Whisper(), ForeignConfig(description, path), weights)
    tokenizer = read_vocabulary(path, description["vocab_size"])
    check_vocabulary(path, tokenizer, model.config.vocab_size)
    return ModelFolder(model, tokenizer, tokenizer, SearchSettings(beam=1), path)


def _description(sizes: ForeignConfig) -> dict[str, Any]:
    """The sizes of a checkpoint as the configuration of a Hugging Face model."""
    sizes.same("n_audio_state", "n_text_state")
    width, vocab = sizes.integer("n_audio_state"), sizes.integer("n_vocab")
    config: dict[str, Any] = {theirs: sizes.integer(ours) for ours, theirs in SIZES.items()}
    eos = eos_of(vocab)
    ids = {"pad_token_id": eos, "eos_token_id": eos, "decoder_start_token_id": eos + 1}
    return config | ids | {"encoder_ffn_dim": 4 * width, "decoder_ffn_dim": 4 * width}


def _renamed(name: str) -> str:
    for pattern, new in NAMES:
        name = re.sub(pattern, new, name)
    return f"model.{name}"


def read_vocabulary(checkpoint: Path, vocab_size: int) -> Tokenizer:
    """The vocabulary of a checkpoint, with its special tokens and times."""
    name = "multilingual.tiktoken" if is_multilingual(vocab_size) else "gpt2.tiktoken"
    folder = next((candidate for candidate in _vocabulary_folders(checkpoint) if find(candidate, name)), None)
    if folder is None:
        raise FolderError(
            f"{checkpoint} needs its vocabulary {name}; copy that file beside it, or install openai-whisper, which has"
            " it (`pip install --no-deps openai-whisper`)."
        )
    ranks, eos = _ranks(folder, name), eos_of(vocab_size)
    inner = byte_pair_vocabulary(ranks)
    inner.add_special_tokens([token for token in special_tokens(vocab_size) if token.encode() not in ranks])
    return Tokenizer.from_json(inner.to_str(), str(folder / name), {"pad": eos, "bos": eos + 1, "eos": eos})


def eos_of(vocab_size: int) -> int:
    """The id of <|endoftext|>, which is also the padding; the start of a transcript follows it."""
    return 50257 if is_multilingual(vocab_size) else 50256


def special_tokens(vocab_size: int) -> list[str]:
    """The special tokens of a vocabulary, in the order of their ids; the times are the last 1,501."""
    languages = vocab_size - 51765 - is_multilingual(vocab_size)
    special = ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{code}|>" for code in LANGUAGES.split()[:languages])]
    special += ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>"]
    return [*special, "<|notimestamps|>", *(f"<|{step * TIME_STEP:.2f}|>" for step in range(1501))]


def _vocabulary_folders(checkpoint: Path) -> list[Path]:
    """Where a vocabulary may be: beside the checkpoint, and in the package openai-whisper, which is not imported."""
    package = PathFinder.find_spec("whisper")
    assets = [Path(place) / "assets" for place in (package.submodule_search_locations or [])] if package else []
    return [checkpoint.parent, *(folder for folder in assets if folder.is_dir())]


def _ranks(folder: Path, name: str) -> dict[bytes, int]:
    text, ranks = read_text(folder, name, MOST_VOCABULARY) or "", dict[bytes, int]()
    try:
        for number, line in enumerate(text.splitlines()):
            token, rank = line.split()
            # the last line of multilingual.tiktoken is "= 50256": an id without bytes
            ranks[b"" if token == "=" else base64.b64decode(token, validate=True)] = int(rank)
            if int(rank) != number:
                raise ValueError(line)
    except (ValueError, binascii.Error):
        raise FolderError(f"{folder / name} is damaged in line {number + 1}; copy it again.") from None
    if not all(bytes([byte]) in ranks for byte in range(256)):
        raise FolderError(f"{folder / name} lacks some of the 256 bytes; copy it again.")
    return ranks


def byte_pair_vocabulary(ranks: dict[bytes, int]) -> tokenizers.Tokenizer:
    """Tokens by rank -> a byte-level BPE vocabulary: the merge of a token is what its bytes become just before it."""
    letters = _byte_letters()

    def spell(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) > 1:
            parts = merge_bytes(token, ranks, rank)
            if len(parts) == 2:  # special tokens in the file are not made by merges
                merges.append((spell(parts[0]), spell(parts[1])))
    vocabulary = {spell(token): rank for token, rank in ranks.items()}
    inner = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return inner


def merge_bytes(token: bytes, ranks: dict[bytes, int], below: int) -> list[bytes]:
    """Merge the bytes of a token, lowest rank first, with all merges of a rank below `below`."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 1:
        rank, place = min((ranks.get(parts[i] + parts[i + 1], below), i) for i in range(len(parts) - 1))
        if rank >= below:
            break
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return parts


def _byte_letters() -> list[str]:
    """The printable character that stands for each byte in a byte-level vocabulary (Radford et al., 2019)."""
    shown = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in shown else chr(next(others)) for byte in range(256)]
