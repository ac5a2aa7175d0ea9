"""Files of large tensors in the format of the library safetensors, written and read without a copy in memory.

A file has three parts: eight bytes with the length of the header, the header in JSON, and the numbers. We do not use
the library, because it belongs to an extra, copies at least a whole GPU tensor, computes no checksum, and hides the
disk error that stopped it.
"""
import errno
import json
import math
import mmap
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from spinup.errors import UserError
from spinup.runs.files import write_whole
from spinup.runs.reading import FAULTS, room_for

TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
         "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}
NAMES = {dtype: name for name, dtype in TYPES.items()}
BLOCK = 1 << 22         # bytes that are written or read at a time


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str] | None = None) -> int:
    """Write tensors, `[...]` each, of types in `TYPES`, to a file, atomically. Return the CRC-32 of the file.

    about: texts for the header.
    """
    header, end, found = {}, 0, 0
    for name in sorted(tensors, key=lambda name: -tensors[name].element_size()):      # this order aligns each tensor
        x, start = tensors[name], end
        end += x.nbytes
        header[name] = {"dtype": NAMES[x.dtype], "shape": [*x.shape], "data_offsets": [start, end]}
    text = json.dumps(header | ({"__metadata__": {**about}} if about else {})).encode()
    text += b" " * (-len(text) % 8)

    def write(file: BinaryIO) -> None:
        nonlocal found
        for data in pieces([len(text).to_bytes(8, "little"), text], [tensors[name] for name in header]):
            found = zlib.crc32(data, found)
            file.write(data)

    write_whole(path, write)
    return found


def pieces(first: list[bytes], tensors: list[Tensor]) -> Iterator[bytes | memoryview]:
    """Yield the contents of a file: `first`, then the tensors, `[...]` each, in blocks. The blocks are views of the
    tensors. Only blocks of a GPU tensor, and tensors that are not contiguous, are copied."""
    yield from first
    for x in tensors:
        for block in x.detach().reshape(-1).split(BLOCK // x.element_size()):
            yield block.cpu().view(torch.uint8).numpy().data


def map_tensors(path: Path, crc32: int) -> dict[str, Tensor]:
    """Return the tensors, `[...]` each, of a file with this checksum. The operating system reads the numbers when they
    are used. They need no memory of the process.

    Raise FileNotFoundError if there is no such file, and UserError if it is damaged.
    """
    if not path.is_file():
        raise FileNotFoundError(path)
    try:
        with room_for(path), open(path, "rb") as file:
            found = 0
            while data := file.read(BLOCK):
                found = zlib.crc32(data, found)
            if found == crc32:
                # torch needs writable memory. We change nothing, and a change would not reach the file.
                return in_memory(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    except (OSError, *FAULTS) as error:
        if getattr(error, "errno", None) == errno.ENOMEM:
            raise UserError(f"not enough memory to map {path}; end other programs, or load it on a larger "
                            "machine") from None
    raise UserError(f"{path} is damaged or was not written with the checkpoint.pt beside it; restore a copy of both, "
                    "or start a new run")


def in_memory(memory: mmap.mmap | bytearray) -> dict[str, Tensor]:
    """Return the tensors, `[...]` each, of a mapped file, or of its bytes, as views. Raise ValueError, or another of
    FAULTS, if the header is wrong."""
    length = int.from_bytes(memory[:8], "little")
    header, first, tensors = json.loads(memory[8:8 + length]), 8 + length, {}
    for name, entry in header.items():
        if name == "__metadata__":                            # text, in files of other programs
            continue
        dtype, shape, (start, end) = TYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        count = math.prod(shape)
        if start < 0 or end - start != count * dtype.itemsize or (first + start) % dtype.itemsize:
            raise ValueError(f"the place of {name} does not match its shape")
        tensors[name] = (torch.frombuffer(memory, dtype=dtype, count=count, offset=first + start) if count
                         else torch.empty(0, dtype=dtype)).view(shape)
    return tensors
