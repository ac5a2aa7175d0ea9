"""The output of doctor for this machine, and its exit code."""
import re
import tomllib
from pathlib import Path

import pytest
import torch

from spinup.view import doctor as module
from spinup.view.doctor import CORE, EXTRAS, doctor

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def test_packages_and_extras_are_those_of_pyproject_toml():
    assert set(CORE) == {re.match(r"[\w-]+", line)[0] for line in PROJECT["dependencies"]}
    assert set(EXTRAS) == set(PROJECT["optional-dependencies"]) - {"all"}


@pytest.mark.long
def test_each_part_has_a_line_and_this_machine_has_no_problem(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(module.EXTRAS, "grid", ("no_such_module",))
    monkeypatch.chdir(tmp_path)
    assert doctor() == 0
    out = capsys.readouterr().out
    lines = {m[1].strip(): (m[2], m[3]) for m in re.finditer(r"^(.+?)  +(ok|missing|problem)  +(.+)$", out, re.M)}
    assert {"python", "packages", "torch", "CUDA", "C++ compiler", "log folder", "memory"} <= set(lines)
    assert "MuJoCo renders" in lines
    assert lines["MuJoCo steps"][0] == lines["extra test"][0] == "ok"
    assert lines["extra grid"] == ("missing", "no no_such_module; type: pip install 'spinup-rl[grid]'")
    assert not list(tmp_path.iterdir())                                   # MuJoCo may leave a log file


def test_missing_package_is_a_problem(capsys, monkeypatch):
    monkeypatch.setattr(module, "CORE", (*CORE, "no_such_module"))
    assert doctor() == 1
    assert "no_such_module not installed; type: pip install spinup-rl" in capsys.readouterr().out


# Catches: a device that can multiply but not train, reported as ok; a traceback of its driver; a folder that remains.
def test_accelerator_is_ok_only_if_training_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "accelerators", lambda: {"CUDA": [], "MPS": [torch.device("cpu")]})
    assert module.devices()[1:] == [("CUDA", "missing", module.no_cuda(torch.version.cuda)),
                                    ("MPS", "ok", "cpu, a short training run works")]
    monkeypatch.setattr("spinup.algos.ppo.train", lambda *_: torch.zeros(2) @ torch.zeros(3))
    assert "training on cpu fails (RuntimeError: inconsistent tensor size" in module.devices()[2][2]
    monkeypatch.setattr(module, "accelerators", lambda: {"MPS": [torch.device("mps")]})
    assert re.fullmatch(r"training on mps fails \(\w+: .+\); use --device cpu", module.devices()[1][2])
    assert not list(tmp_path.iterdir())
