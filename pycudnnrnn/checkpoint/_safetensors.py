"""The bytes of a safetensors file: the same for the same tensors and metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy.typing as npt
import safetensors.numpy

ALIGNMENT: Final = 8
"""The header is padded with spaces to a multiple of this. Source: the safetensors format."""


def image_of(arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """Return the bytes as the library writes them, but with sorted metadata: the library's order is that of a hash."""
    data = memoryview(safetensors.numpy.save(dict(arrays), dict(metadata)))
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(bytes(data[8:end]))
    ordered = {name: dict(sorted(found.items())) if name == "__metadata__" else found for name, found in header.items()}
    text = json.dumps(ordered, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return b"".join((len(text).to_bytes(8, "little"), text, data[end:]))
