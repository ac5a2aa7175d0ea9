"""Files of large tensors: any reader of the format reads them, saving makes no copy, and a wrong file is refused."""
import json
import zlib

import pytest
import safetensors.torch
import torch

from spinup.errors import UserError
from spinup.runs.tensors import BLOCK, map_tensors, write_tensors

GROWTH = """
import resource, sys
from pathlib import Path
import torch
from spinup.core.fast.adam import FlatAdam
from spinup.runs import checkpoint
from spinup.runs.reading import restore
checkpoint.LARGE = 2**20
model = torch.nn.Sequential(torch.nn.Linear(2000, 2500), torch.nn.Linear(2500, 2000))     # 120 MB to save
optimizer = FlatAdam(model.parameters(), lr=1e-3)
optimizer.first.fill_(1.0), optimizer.second.fill_(2.0)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
before = peak()
state = {"steps": 3, "parts": {"model": model.state_dict(), "optimizer": optimizer.state_dict()}}
written = checkpoint.save_checkpoint(Path(sys.argv[1], "checkpoint.pt"), state)
for name, part in (("model", model), ("optimizer", optimizer)):
    restore(part, written["parts"][name])
print(peak() - before)
"""


# Catches: names or offsets in the header that the library cannot read; the numbers of a transposed tensor in the order
# of memory.
def test_safetensors_library_reads_the_same_numbers(tmp_path):
    torch.manual_seed(0)
    tensors = {"flags": torch.rand(5) > 0.5, "half": torch.randn(3, 5).bfloat16(), "weight": torch.randn(7, 3).T,
               "long": torch.randn(BLOCK // 2), "count": torch.tensor(7), "none": torch.zeros(0, 4),
               "é\"": torch.randn(2, dtype=torch.float64), "bytes": torch.arange(3, dtype=torch.uint8)}
    crc32, path = write_tensors(tmp_path / "x.safetensors", tensors), tmp_path / "x.safetensors"
    assert crc32 == zlib.crc32(path.read_bytes())
    for found in safetensors.torch.load_file(path), map_tensors(path, crc32):
        assert found.keys() == tensors.keys()
        assert all(torch.equal(found[name], x) and found[name].dtype == x.dtype for name, x in tensors.items())


# Catches: cloned tensors, even one at a time; a check for NaN that allocates a mask of the size of the model.
def test_saving_needs_little_memory(start, tmp_path):
    pytest.importorskip("resource", reason="Windows does not tell the peak")
    script = tmp_path / "growth.py"
    script.write_text(GROWTH)
    done = start(tmp_path, script=script).end()
    assert done.code == 0, done.err
    assert int(done.out) < 16e6
    assert sum(file.stat().st_size for file in tmp_path.glob("*.safetensors")) > 120e6


HEADERS = {"not JSON": b"{", "a list": b"[1]", "of an unknown type": {"dtype": "F4"}, "beyond the end": {
    "data_offsets": [4, 20]}, "before the start": {"data_offsets": [-8, 8]}, "of another size": {"shape": [5]},
    "negative": {"shape": [-2, -2]}, "huge": {"shape": [2**40], "data_offsets": [0, 2**42]}, "of text": {"shape": "4"},
    "lacking": {"dtype": None}, "out of line": {"data_offsets": [1, 17]}, "deep": b"[" * 100_000}


# Catches: a header that is not checked because the checksum is correct, as it is in a file from an untrusted source.
@pytest.mark.parametrize("name", HEADERS)
def test_wrong_header_is_refused(name, tmp_path):
    header = HEADERS[name]
    if isinstance(header, dict):
        header = json.dumps({"x": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]} | header}).encode()
    data = len(header).to_bytes(8, "little") + header + bytes(16)
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(UserError, match="x.safetensors is damaged or was not written with .*; restore a copy of both"):
        map_tensors(path, zlib.crc32(data))


def test_empty_file_is_refused(tmp_path):
    (tmp_path / "x.safetensors").touch()
    with pytest.raises(UserError, match="is damaged"):
        map_tensors(tmp_path / "x.safetensors", 0)
    with pytest.raises(FileNotFoundError):
        map_tensors(tmp_path, 0)
