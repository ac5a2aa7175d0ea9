"""Attempts to pass a check without solving the exercise: all fail, and simple attempts are named."""
import struct

import numpy as np
import pytest
import torch
from torch import nn

from spinup.exercises.child import overdue
from spinup.exercises.layers import Net, built, described
from spinup.exercises.outcome import equal
from spinup.exercises.process import Late, Stopped
from spinup.exercises.source import CONTENT, Entry, lines
from spinup.exercises.student import TAMPERING, functions, judge
from spinup.exercises.verdict import check, static
from spinup.exercises.wire import HEAD, MARK, Malformed, TooLong, Unknown, decode, encode

GAE = Entry("3_1_gae")
AT = lines(GAE.solution)["gae"]
WRONG = GAE.solution.replace("    return adv\n", "    return adv + 1\n")
LOOK = f"""
import importlib, os, subprocess
from pathlib import Path
for attempt in (lambda: importlib.import_module("spinup.core.kl"), lambda: subprocess.run(["true"]),
                lambda: open({str(CONTENT / 'src' / '3_1_gae.py')!r}), lambda: os.open(Path({__file__!r}), os.O_RDONLY),
                lambda: os.open(Path({str(CONTENT / 'checks' / '3_1_gae.py')!r}), os.O_RDONLY),
                lambda: os.link({str(CONTENT / 'src' / '3_1_gae.py')!r}, "linked.py"),
                lambda: torch.from_file({str(CONTENT / 'src' / '3_1_gae.py')!r}, size=8, dtype=torch.uint8)):
    try:
        attempt()
        print("done")
    except OSError as error:
        print(error)
"""
WRITE = """
import os
for descriptor in range(3, 30):
    try:
        os.write(descriptor, b'{"level": "property", "seconds": 0.1}\\n{"done": true}\\n')
    except OSError:
        pass
os._exit(0)
"""
ALLCLOSE = """
import numpy as np
for module in (np, torch):
    setattr(module, "allclose", lambda *_, **__: True)
    setattr(module, "isclose", lambda a, *_, **__: a == a)
"""


def checked(text, folder):
    file = folder / "3_1_gae.py"
    file.write_text(text)
    return check(GAE, file)


@pytest.mark.parametrize("attempt, words", [
    ("import numpy as np\nnp.allclose = lambda *_, **__: True", "replaces numpy.allclose. That is tampering"),
    ("torch.allclose = print", "replaces torch.allclose. That is tampering"),
    ("from spinup.exercises.checks import Function\nFunction.check = lambda *_: None",
     "imports spinup.exercises.checks. The library contains the answer"),
    ("import spinup.exercises.checks as c\nc.Function.check = print", "imports spinup.exercises.checks. "),
    ("import sys\nopen(sys.argv[5], 'w').write('{\"done\": true}\\n')", "uses sys.argv, .* That is tampering"),
    ("from sys import argv as a", "uses sys.argv, .* That is tampering"),
    ("import gc\ngc.get_objects()", "uses gc.get_objects, .* That is tampering"),
    ("from spinup.core.returns import gae as ours", "imports spinup.core.returns. The library contains the answer"),
    ("def f():\n    import llm.algos.ppo", "imports llm.algos.ppo. The library contains the answer")])
def test_attempt_is_named_with_its_line(attempt, words):
    found = static(GAE, GAE.solution + attempt)
    assert not found.passed and found.line == GAE.solution.count("\n") + 1 + attempt.count("\n") * (
        "numpy as" in attempt or "argv[" in attempt or "gc." in attempt or "def f" in attempt)
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(found.message)


# Catches: an honest file that is accused of tampering.
@pytest.mark.parametrize("honest", [
    "import sys\nsys.setrecursionlimit(5000)\nprint(sys.version)", "torch.backends.cudnn.benchmark = False",
    "if __name__ == '__main__':\n    import sys\n    from spinup import ppo\n    print(sys.argv)",
    "class A:\n    pass\nA.x = 1", "import numpy as np\nnp.random.seed(3)\ntorch.manual_seed(3)"])
def test_honest_file_is_not_accused(honest):
    assert static(GAE, GAE.solution + honest).passed


# Catches: a comparison in the process of the student's file.
def test_patched_comparison_has_no_effect(tmp_path):
    found = checked(WRONG.replace("def gae", ALLCLOSE + "def gae"), tmp_path)
    assert not found.passed and "1.625 at [0, 0], but 0.625 was expected" in found.message


# Catches: a verdict, or the end of an answer, that is accepted because it comes from the process.
def test_verdict_written_by_the_file_is_named_as_tampering(tmp_path):
    found = checked(GAE.solution + WRITE, tmp_path)
    assert not found.passed and TAMPERING in found.message


# Catches: a guard that a student's file can switch off or ask for the solution.
def test_student_file_cannot_reach_the_guard(tmp_path):
    code = ('for name in ("guard", "source"):\n    try:\n'
            '        m = __import__(f"spinup.exercises.{name}", fromlist=["x"])\n        m.OPENS = ()\n'
            '        exec(m.Entry("3_1_gae").solution, globals())\n'
            '    except (Exception, SystemExit) as error:\n        print(type(error).__name__)\n')
    found = checked(WRONG + code, tmp_path)
    assert not found.passed and found.printed.split() == ["Refused", "Refused"]


def test_student_file_cannot_reach_the_library_or_its_answers(tmp_path):
    found = checked(GAE.solution + LOOK, tmp_path)
    closed = "this file may contain the answer, so a check does not open it; write the function yourself"
    assert found.passed and found.printed.splitlines() == [
        "spinup may contain the answer, so a check forbids its import; write the function yourself",
        "a check does not allow a file to start another process; remove that code", closed, "done", closed, closed,
        closed]


class Liar:
    """A process that gives prepared answers."""

    def __init__(self, *says):
        self.says = [{"ready": True}, *says]

    def next(self):
        return self.says.pop(0)

    def ask(self, question):
        return decode(encode(self.next()))


# Catches: an answer whose form is not checked; a comparison of gradients with other shapes.
@pytest.mark.parametrize("answer", [
    {"done": True}, {"value": 1}, 3, None, [], {"value": None, "error": [1], "gradients": (), "inputs": {}, "line": 0},
    {"value": None, "error": [], "gradients": (torch.ones(2),), "inputs": {}, "line": 0},
    {"value": None, "error": [], "gradients": (), "inputs": 3, "line": 0},
    {"value": None, "error": [], "gradients": (), "inputs": {}, "line": "x"}])
def test_malformed_answer_is_named_as_tampering(answer):
    with pytest.raises(Stopped) as found:
        judge(GAE, Liar(answer), GAE.solution, "property")
    assert str(found.value) == TAMPERING


def test_reason_that_a_process_gives_for_its_end_is_reported():
    with pytest.raises(Stopped, match="a reason") as found:
        judge(GAE, Liar({"stopped": "a reason", "line": AT}), GAE.solution, "property")
    assert found.value.line == AT
    with pytest.raises(Late, match="still running after 20 seconds; this machine may be too slow"):
        judge(GAE, Liar(overdue(20.0, "property", 0)), GAE.solution, "property")
    with pytest.raises(Stopped, match="a loop that never ends"):
        judge(GAE, Liar(overdue(20.0, "property", AT)), GAE.solution, "property")
    ours = functions(GAE, Liar({"stopped": "a reason", "line": AT}).ask)
    assert ours.gae.arguments[:2] == ["rew", "value"]


@pytest.mark.parametrize("value", [
    None, True, 3, -2.5, "text", [1, (2, [3.0])], {"a": (1,), 2: "b"}, float("inf"), torch.zeros(0, 3),
    torch.tensor(2.0, dtype=torch.bfloat16), torch.arange(6).view(2, 3).T, torch.tensor([[True], [False]]),
    np.arange(4.0).reshape(2, 2).T, np.array(3, np.int8), np.array([], bool)])
def test_data_survive_encoding_and_decoding(value):
    found = decode(encode(value))
    assert type(found) is type(value) and equal(found, value, 0.0)
    if isinstance(value, torch.Tensor | np.ndarray):
        assert found.dtype == value.dtype and found.shape == value.shape


def test_network_survives_encoding_with_its_weights():
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1, bias=False).requires_grad_(False))
    found = built(decode(encode(net)))
    x = torch.randn(4, 2)
    assert torch.equal(found[:2](x), net[:2](x)) and not found[2].weight.requires_grad
    shared = described(nn.Sequential(net[0], net[1], net[0]))
    assert isinstance(shared, Net) and [layer.same_as for layer in shared.layers] == [-1, -1, 0]


@pytest.mark.parametrize("value", [object(), {1, 2}, np.array([object()]), 10**40, {(1, 2): 3}, torch.float32])
def test_unsupported_value_is_decoded_as_unknown(value):
    assert isinstance(decode(encode(value)), Unknown)


def test_endless_data_are_not_sent():
    endless = []
    endless.append(endless)
    with pytest.raises(TooLong):
        encode(endless)


def frame(text, blob=b""):
    return HEAD.pack(MARK, len(text), len(blob)) + text + blob


# Catches: a shape, a size or a type that is not checked; memory that is allocated because a frame requests it.
@pytest.mark.parametrize("data", [
    b"", b"{}", b"wire", frame(b"{"), frame(b"[]"), frame(b"{}"), frame(b'{"$": "call"}'), frame(b"[" * 100_000),
    frame(b"1" * 5000), frame(b'{"$": "list", "items": 3}'), frame(b'{"$": "dict", "items": [[[], 1]]}'),
    frame(b'{"$": "tensor", "dtype": "float32", "shape": [1000000, 1000000], "at": 0, "grad": false}'),
    frame(b'{"$": "tensor", "dtype": "float32", "shape": [-1], "at": 0, "grad": false}', bytes(4)),
    frame(b'{"$": "tensor", "dtype": "load", "shape": [], "at": 0, "grad": false}', bytes(4)),
    frame(b'{"$": "array", "dtype": "O", "shape": [1], "at": 0}', bytes(8)),
    frame(b'{"$": "array", "dtype": "<f8", "shape": [1], "at": 4}', bytes(8)),
    frame(b'{"$": "net", "data": {"$": "dict", "items": [["type", "eval"], ["layers", 3]]}}'),
    struct.pack("<4sII", MARK, 2**31, 0)])
def test_malformed_bytes_are_refused(data):
    with pytest.raises(Malformed):
        decode(data)
