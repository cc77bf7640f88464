"""An explanation -> one self-contained HTML file with style, script and data; it loads nothing else.

The policy in its head allows this script and this style, by their hashes, and no connection at all.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from importlib.resources import files
from typing import Any

from heedful import __version__
from heedful.inside.page_packing import pack

# In the order in which they build on each other.
SCRIPTS = (
    "data", "core", "formula", "heat", "lines", "overview", "heads", "attend", "steps", "output", "decoding",
    "alignment", "sound", "hops", "experts", "positions", "main",
)  # fmt: skip


def render(data: dict[str, Any]) -> str:
    """The HTML page of an explanation."""
    script = '"use strict";\n(() => {\n' + "\n".join(_part(f"{name}.js") for name in SCRIPTS) + "})();\n"
    style = _part("page.css")
    parts = {
        "version": html.escape(__version__),
        "title": html.escape(f"{_short(data['text'])} · heedful"),
        "style": style,
        "style_hash": _hash(style),
        "script": script,
        "script_hash": _hash(script),
        "data": pack(data),
    }
    # One pass over the template: what is put in is not looked at again.
    return re.sub(r"\{(\w+)\}", lambda place: parts[place[1]], _part("page.html"))


def _part(name: str) -> str:
    return (files("heedful.inside") / "page" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _short(text: str, most: int = 80) -> str:
    text = " ".join(text.replace("\0", " ").split())
    return text if len(text) <= most else text[: most - 1] + "…"
