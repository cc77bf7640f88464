"""Encodes arrays and strings as one string that is safe inside an HTML page.

A JSON header, in which every array is a place in the bytes behind it, then these bytes; compressed, and written in
letters and digits only, so that no text of a user can be anything but text. `page/data.js` is the other half.
"""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

TYPES = {"float16": "f2", "float32": "f4", "uint8": "u1", "uint16": "u2", "int32": "i4"}


def pack(data: Any) -> str:
    """Encode a JSON value that may contain arrays."""
    body = bytearray()
    header = json.dumps(_placed(data, body), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    header += b" " * (-(len(header) + 4) % 8)
    whole = len(header).to_bytes(4, "little") + header + bytes(body)
    return base64.b64encode(gzip.compress(whole, 6, mtime=0)).decode()


def _placed(data: Any, body: bytearray) -> Any:
    if isinstance(data, np.ndarray):
        body.extend(b"\0" * (-len(body) % 8))
        start = len(body)
        body.extend(np.ascontiguousarray(data).astype(data.dtype.newbyteorder("<")).tobytes())
        return {"$": [TYPES[data.dtype.name], list(data.shape), start]}
    if isinstance(data, dict):
        return {key: _placed(value, body) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_placed(value, body) for value in data]
    return data


def half(tensor: Tensor) -> NDArray[np.float16]:
    """Float16 with about three digits; larger numbers are clipped."""
    largest = float(np.finfo(np.float16).max)
    return np.asarray(tensor.float().clamp(-largest, largest).numpy(), np.float16)


def shares(tensor: Tensor, fine: bool) -> NDArray[Any]:
    """Numbers from 0 to 1, quantized to 16 or 8 bits."""
    most, kind = (65535, np.uint16) if fine else (255, np.uint8)
    return np.asarray((tensor.float().clamp(0, 1) * most).round().numpy(), kind)
