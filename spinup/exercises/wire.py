"""Format for plain data between a student's process and the checking process; pickle is never used.

A frame is 12 bytes (a mark and two lengths), then JSON, then the bytes of all arrays. In the JSON, `{"$": KIND, ...}`
represents types that JSON does not have: tuples, dictionaries, tensors, arrays, networks. The reader checks kinds,
types, shapes and sizes. It raises `Malformed` if `encode` did not write these bytes.
"""
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor, nn

from spinup.exercises.layers import Net, described

HEAD, MARK = struct.Struct("<4sII"), b"wire"
LONGEST = 64 << 20       # bytes of each part of a frame
WORDS = 20_000           # characters of a text
DEPTH = 12               # depth of nested lists
TENSORS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "uint8", "int8", "int16", "int32",
           "int64", "bool")
ARRAYS = "biufc"         # kinds of NumPy's dtypes


class Malformed(Exception):
    """Raised if the bytes are not a frame."""


class TooLong(Exception):
    """Raised if the data do not fit into a frame."""


@dataclass(frozen=True)
class Unknown:
    """A value that the format does not support, given by the name of its type."""

    type: str


def encode(value: Any) -> bytes:
    """Encode a value as a frame. TooLong if its arrays or its text are larger than a frame."""
    blob = bytearray()
    text = json.dumps(packed(value, blob, 0)).encode()
    if max(len(text), len(blob)) > LONGEST:
        raise TooLong(f"more than {LONGEST >> 20} MB")
    return HEAD.pack(MARK, len(text), len(blob)) + text + blob


def packed(x: Any, blob: bytearray, depth: int) -> Any:
    """Convert a value to JSON data, and append the numbers of arrays to `blob`. TooLong if there are too many."""
    if depth > DEPTH or len(blob) > LONGEST:
        raise TooLong("lists in lists without an end" if depth > DEPTH else f"more than {LONGEST >> 20} MB")
    if isinstance(x, np.generic) and x.dtype.kind in ARRAYS:
        x = x.item()
    if x is None or isinstance(x, bool | float):
        return x
    if isinstance(x, int):
        return int(x) if abs(x) < 2**63 else {"$": "unknown", "type": "int (of more than 63 bits)"}
    if isinstance(x, str):
        return str(x)[:WORDS]
    if isinstance(x, list | tuple):
        return {"$": "list" if isinstance(x, list) else "tuple", "items": [packed(y, blob, depth + 1) for y in x]}
    if isinstance(x, Mapping) and all(isinstance(k, str | int) for k in x):
        return {"$": "dict", "items": [[k, packed(y, blob, depth + 1)] for k, y in x.items()]}
    if isinstance(x, nn.Module | Net):
        net = x if isinstance(x, Net) else described(x)
        return {"$": "net", "data": packed(net.as_dict(), blob, depth + 1)}
    if isinstance(x, Tensor) and (name := str(x.dtype).removeprefix("torch.")) in TENSORS and not x.is_sparse:
        flat = x.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        return array("tensor", name, x.shape, flat.view(torch.uint8).numpy().tobytes(), blob) | {
            "grad": x.requires_grad}
    if isinstance(x, np.ndarray) and x.dtype.kind in ARRAYS:
        return array("array", x.dtype.str, x.shape, x.tobytes(), blob)
    return {"$": "unknown", "type": type(x).__name__[:100]}


def array(kind: str, dtype: str, shape: tuple[int, ...], content: bytes, blob: bytearray) -> dict[str, Any]:
    """Describe an array and append its content to `blob`."""
    blob += content
    return {"$": kind, "dtype": dtype, "shape": list(shape), "at": len(blob) - len(content)}


def decode(frame: bytes) -> Any:
    """Decode a frame to a new value. Malformed if the bytes are not a frame."""
    if len(frame) < HEAD.size:
        raise Malformed("a frame is cut off")
    mark, words, size = HEAD.unpack_from(frame)
    if mark != MARK or len(frame) != HEAD.size + words + size:
        raise Malformed("a frame has the wrong size")
    try:
        return unpacked(json.loads(frame[HEAD.size:HEAD.size + words]), frame[HEAD.size + words:], 0)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError, RuntimeError) as error:
        raise Malformed(f"{type(error).__name__}: {error}") from None


def unpacked(x: Any, blob: bytes, depth: int) -> Any:
    """Convert JSON data back to a value. Malformed, or a Python error, if it is invalid."""
    if depth > 2 * DEPTH:
        raise Malformed("lists in lists without an end")
    if x is None or isinstance(x, bool | float) or (isinstance(x, int) and abs(x) < 2**63):
        return x
    if isinstance(x, str) and len(x) <= WORDS:
        return x
    if not isinstance(x, dict) or "$" not in x:
        raise Malformed("no value has this form")
    kind = x["$"]
    if kind in ("list", "tuple"):
        found = [unpacked(y, blob, depth + 1) for y in listed(x["items"])]
        return found if kind == "list" else tuple(found)
    if kind == "dict":
        return {name(k): unpacked(y, blob, depth + 1) for k, y in listed(x["items"])}
    if kind == "net":
        return Net.from_dict(unpacked(x["data"], blob, depth + 1))
    if kind == "unknown" and isinstance(x["type"], str):
        return Unknown(x["type"][:100])
    if kind == "tensor" and x["dtype"] in TENSORS:
        dtype = getattr(torch, x["dtype"])
        found = numbers(x, blob, dtype.itemsize, lambda data: torch.frombuffer(data, dtype=dtype), torch.empty(
            0, dtype=dtype))
        return found.requires_grad_(x["grad"] is True and (dtype.is_floating_point or dtype.is_complex))
    if kind == "array" and re.fullmatch(rf"[<>|=][{ARRAYS}]\d\d?", x["dtype"]):
        dtype = np.dtype(x["dtype"])
        return numbers(x, blob, dtype.itemsize, lambda data: np.frombuffer(data, dtype), np.empty(0, dtype))
    raise Malformed("no value is of this kind")


def numbers(x: dict[str, Any], blob: bytes, size: int, read: Callable[[bytearray], Any], empty: Any) -> Any:
    """Read the array of a description, with elements of `size` bytes; the result is a writable copy."""
    shape, at = listed(x["shape"]), x["at"]
    if len(shape) > DEPTH or not all(type(n) is int and 0 <= n <= LONGEST for n in [*shape, at]):
        raise Malformed("no array has this shape")
    count = math.prod(shape)
    if at + count * size > len(blob):
        raise Malformed("an array is longer than its numbers")
    found = read(bytearray(blob[at:at + count * size])) if count else empty
    return found.reshape(shape)


def listed(x: Any) -> list[Any]:
    """Return `x`, which must be a list. Malformed if it is not."""
    if not isinstance(x, list):
        raise Malformed("a list was expected")
    return x


def name(x: Any) -> str | int:
    """Return `x`, which must be a dictionary key. Malformed if it is not."""
    if not isinstance(x, str | int):
        raise Malformed("a name was expected")
    return x


def send(stream: BinaryIO, value: Any) -> None:
    """Write a value to a stream. TooLong if it does not fit; OSError if the reader is gone."""
    stream.write(encode(value))
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Read the next value of a stream. EOFError at its end; Malformed for other data."""
    head = stream.read(HEAD.size)
    if not head:
        raise EOFError
    if len(head) < HEAD.size or head[:len(MARK)] != MARK or max(HEAD.unpack(head)[1:]) > LONGEST:
        raise Malformed("this is not the beginning of a frame")
    return decode(head + stream.read(sum(HEAD.unpack(head)[1:])))
