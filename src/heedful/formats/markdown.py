"""Markdown files to translate: paragraphs, headings, list items and table cells, with their inline markup.

markdown-it-py parses the file. Code, HTML blocks and front matter stay. A block whose translation would parse as other
markup keeps its text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from heedful.formats.document import Document, DocumentOptions, TargetText
from heedful.formats.encoded_text import EncodedText, Splice
from heedful.formats.segment import InlineCode, Segment, TaggedText, nest_codes

Rule = Callable[[StateInline, bool], bool]
FRONT_MATTER = re.compile(r"\A---[ \t]*\n.*?^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
SPECIAL = re.compile(r"[\\`*\[\]<]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)")
BLOCK_START = re.compile(r"(?=[-+#>=~]|:?-)|(?<=\d)(?=[.)]\s)")
RULES = (
    "newline",
    "escape",
    "backticks",
    "strikethrough",
    "emphasis",
    "link",
    "image",
    "autolink",
    "html_inline",
    "entity",
)
DELIMITERS = ("strikethrough", "emphasis")  # rules that push a text token for each delimiter


@dataclass(frozen=True)
class MarkdownBlock:
    """The place of a block's text in the file, in characters, and its inline markup."""

    start: int
    end: int
    shape: Counter[Any]
    in_table: bool


class MarkdownDocument(Document):
    """A Markdown file."""

    def __init__(self, content: EncodedText, options: DocumentOptions) -> None:
        super().__init__(content, options)
        self.parser = _positioned_parser()
        self.env: dict[str, Any] = {}
        self.text = content.text
        front = FRONT_MATTER.match(self.text)
        self.first = front.end() if front else 0
        lines = self.text[self.first :].split("\n")
        self.starts = [self.first]
        for text in lines:
            self.starts.append(self.starts[-1] + len(text) + 1)
        self.blocks: list[MarkdownBlock] = []
        segments = []
        columns: dict[int, int] = {}  # by line: where the next cell of a table starts
        tokens = self.parser.parse(self.text[self.first :].replace("\r\n", "\n"), self.env)
        for before, token in zip([None, *tokens], tokens, strict=False):
            if token.type != "inline" or not token.content.strip() or not token.map:
                continue
            place = self._locate(token, lines, columns)
            tagged = _tagged(token) if place else None
            if place is not None and tagged is not None and tagged.text.strip():
                in_table = before is not None and before.type in ("th_open", "td_open")
                self.blocks.append(MarkdownBlock(*place, _shape(token), in_table))
                line = self.text.count("\n", 0, place[0]) + 1
                segments.append(Segment(tagged, None, line))
        self.segments = segments

    def _locate(self, token: Token, lines: list[str], columns: dict[int, int]) -> tuple[int, int] | None:
        """Find the text of a block in its lines; None if it is not there as it is."""
        assert token.map is not None
        start, end, number = None, 0, token.map[0]
        for piece in token.content.split("\n"):
            at = lines[number].find(piece, columns.get(number, 0)) if number < len(lines) else -1
            if at < 0:
                return None
            start = self.starts[number] + at if start is None else start
            end = self.starts[number] + at + len(piece)
            columns[number] = at + len(piece)
            number += 1
        return (start, end) if start is not None else None

    def splices(self, targets: Mapping[int, TargetText]) -> list[Splice]:
        splices = []
        for number, target in targets.items():
            block = self.blocks[number]
            written = self._written(block, target.tagged)
            if written is not None:
                before = len(self.text[: block.start].encode("utf-8"))
                length = len(self.text[block.start : block.end].encode("utf-8"))
                splices.append(Splice(before, before + length, written))
        return splices

    def _written(self, block: MarkdownBlock, tagged: TaggedText) -> str | None:
        """The block in Markdown; None if it would parse as other markup."""
        one_line = TaggedText(tagged.text.replace("\n", " "), tagged.tags)
        written = one_line.markup(escape_markdown).lstrip(" ")  # with those of the block, it might be indented code
        if not tagged.tags or one_line.text[: tagged.tags[0].start].strip(" "):
            written = BLOCK_START.sub(r"\\", written, count=1) if BLOCK_START.match(written) else written
            written = re.sub(r"^(\d+)([.)]\s)", r"\1\\\2", written)
        if block.in_table:
            written = re.sub(r"(?<!\\)\|", r"\\|", written)
        parsed = self.parser.parse(written, dict(self.env))
        same = [token.type for token in parsed] == ["paragraph_open", "inline", "paragraph_close"]
        return written if same and _shape(parsed[1]) == block.shape else None


def escape_markdown(text: str) -> str:
    """Text with a backslash before characters that would be markup."""
    return SPECIAL.sub(r"\\\g<0>", text)


def _positioned_parser() -> MarkdownIt:
    """A parser of CommonMark with tables whose inline tokens know their place."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")
    rules = {rule.name: rule.fn for rule in parser.inline.ruler.__rules__}
    for name in RULES:
        parser.inline.ruler.at(name, _positioned(name, rules[name]))
    return parser


def _positioned(name: str, rule: Rule) -> Rule:
    """The same rule; it adds its name and the characters that it consumed to its tokens."""

    def positioned(state: StateInline, silent: bool) -> bool:
        start, known = state.pos, len(state.tokens) + bool(state.pending)
        if not rule(state, silent):
            return False
        at = start
        for token in [] if silent else state.tokens[known:]:
            if "rule" not in token.meta and (token.type != "text" or name in DELIMITERS):
                token.meta |= {"rule": name, "span": (start, state.pos), "at": at}
                at += len(token.content)
        if name == "link" and not silent:
            state.tokens[-1].meta["label_end"] = state.md.helpers.parseLinkLabel(state, start, True)
        return True

    return positioned


def _tagged(inline: Token) -> TaggedText | None:
    """The text of a block and its inline markup; None if the place of some markup is not known."""
    content, texts, codes = inline.content, [""], []
    length = position = 0
    skip_until = 0
    for token in inline.children or []:
        rule = token.meta.get("rule")
        if rule is None or token.type == "text":
            if rule is None and token.type != "text":
                return None
            continue
        start, end = _span(token)
        if start < skip_until:
            continue
        texts.append(content[position:start])
        length += len(texts[-1])
        if token.type in ("softbreak", "text_special"):
            texts.append(token.content or "\n")
            length += len(texts[-1])
        else:
            kind, key = _kind(token)
            codes.append(InlineCode(_markup(token, content[start:end]), length, kind, key))
            if token.type == "hardbreak":
                texts.append("\n")
                length += 1
        position = skip_until = end
    return nest_codes("".join([*texts, content[position:]]), codes)


def _span(token: Token) -> tuple[int, int]:
    """The characters of a token's markup."""
    start, end = token.meta["span"]
    at = token.meta["at"]
    match token.type:
        case "strong_open":
            return at - 1, at + 1
        case "em_open" | "em_close":
            return at, at + 1
        case "strong_close" | "s_open" | "s_close":
            return at, at + 2
        case "link_open" if token.meta["rule"] == "link":
            return start, start + 1
        case "link_close" if token.meta["rule"] == "link":
            return token.meta["label_end"], end
    return start, end


def _markup(token: Token, raw: str) -> str:
    """The markup of a token; spaces before a hard line break belong to it."""
    return f"  {raw}" if token.type == "hardbreak" and token.meta["rule"] == "newline" else raw


def _kind(token: Token) -> tuple[str, str]:
    """Whether markup opens or closes a pair, and the name of the pair."""
    if token.meta["rule"] == "html_inline":
        match = re.match(r"<(/?)([A-Za-z][\w-]*)", token.content)
        if match and not token.content.endswith("/>"):
            return ("close" if match[1] else "open"), f"<{match[2]}>"
        return "single", ""
    if token.meta["rule"] == "autolink" or not token.nesting:
        return "single", ""
    return ("open" if token.nesting > 0 else "close"), token.tag


def _shape(inline: Token) -> Counter[Any]:
    """The inline markup of a block, which a translation must have too."""
    return Counter(
        (token.type, tuple(sorted((token.attrs or {}).items())), token.content if not token.nesting else "")
        for token in inline.children or []
        if token.type not in ("text", "softbreak", "text_special")
    )
