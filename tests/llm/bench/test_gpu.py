"""`.ci/gpu` on the CPU with tiny sizes: every part measures, writes its raw file, and is not repeated."""
import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from llm.algos import sft
from llm.bench import roofline
from llm.bench.gpu import agents, models, parts
from spinup.errors import UserError

DOOR = parts.ROOT / ".ci" / "gpu"
KEYS = {"part", "about", "command", "quick", "device", "kind", "commit", "source", "versions", "lines", "met"}


@pytest.fixture
def brief(monkeypatch):
    """Shorten the roofline to a second, and end the SFT of an initial policy at its first evaluation."""
    monkeypatch.setattr(sft, "solved", lambda rewards: 1.0)
    monkeypatch.setattr(roofline, "copy_pace", lambda device: 1e9)
    monkeypatch.setattr(roofline, "product_pace", lambda device, dtype: 2e9)
    monkeypatch.setattr(roofline, "grpo_step", lambda *_, **__: {"seconds": 1.0, "answers": 1, "tokens_each": 1.0,
                                                           "shares": {"rollout": 0.4, "update": 0.6}})
    for name, value in {"ROWS": {"cpu": (2, 16)}, "CONTEXT": 16, "NEW": 4, "REPEATS": 1}.items():
        monkeypatch.setattr(roofline, name, value)


# Catches: a part that fails; a raw file without numbers, settings or versions.
@pytest.mark.long("pong_dqn", "pong_ppo", "atari", "grpo")
@pytest.mark.parametrize("name", [name for name in parts.PARTS if name != "tests"])
def test_each_part_runs_on_the_cpu(name, brief):
    found = json.loads(json.dumps(parts.measure(name, "cpu", True)))
    assert found.keys() >= KEYS and found["met"] and found["kind"] == "cpu" and "CPU" in found["device"]
    assert found["versions"]["torch"] == torch.__version__ and found["lines"]
    assert any(line["value"] for line in found["lines"])
    assert all(line["value"] is not None for line in found["lines"] if "return" not in line["what"])    # no game ended


# Catches: a part that is repeated without need, or skipped after its code has changed; a `.ci/gpu` that needs an
# installation.
@pytest.mark.long
def test_part_is_repeated_only_on_request_or_after_a_code_change(tmp_path, monkeypatch, capfd):
    def ran(*words):
        code = parts.main(["rl2", "--device", "cpu", "--quick", "--out", str(tmp_path), *words])
        said.append(capfd.readouterr().out)
        return code, "skipped" not in said[-1]

    def here(command, **_):                                               # in this process, which has the imports
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", command[1:2] + command[3:])
            exec(command[2], {})
        return subprocess.CompletedProcess(command, 0)
    said = []
    with monkeypatch.context() as patch:
        patch.setattr(parts, "subprocess", SimpleNamespace(run=here, TimeoutExpired=subprocess.TimeoutExpired))
        assert ran() == (0, True) and "rl2, steps a second on cpu" in said[0]
    found = json.loads((tmp_path / "rl2.json").read_text())
    assert found["commit"] and found["source"] == parts.source() and found["settings"]["num_envs"] == 64
    environment = {**os.environ, "PYTHON": sys.executable, "OUT": str(tmp_path)}
    done = subprocess.run(["bash", str(DOOR), "rl2", "--device", "cpu", "--quick"], cwd=tmp_path, env=environment,
                          capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("rl2: skipped, because"), done.stderr
    calls = []

    def again(command, **_):
        calls.append(command)
        return subprocess.CompletedProcess(command, 0)
    monkeypatch.setattr(parts.subprocess, "run", again)
    assert ran() == (0, False) and not calls
    assert ran("--again") == (0, True) and len(calls) == 1
    monkeypatch.setattr(parts, "source", lambda: "other code")
    assert ran() == (0, True) and len(calls) == 2


# Catches: a part that fails because of a missing package, or does not name it; exit code 0 after a failure or a missed
# goal.
def test_missing_packages_failures_and_missed_goals_are_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(parts, "find_spec", lambda name: None if name == "ale_py" else name)
    assert parts.run("atari", "cpu", True, tmp_path) == 0 and not list(tmp_path.iterdir())
    assert capsys.readouterr().out == "atari: skipped, because ale_py is missing\n"
    monkeypatch.setattr(parts, "PROGRAM", "raise SystemExit(3)")
    assert parts.run("rl2", "cpu", True, tmp_path) == 1
    assert "rl2: failed, because it ended with 3" in capsys.readouterr().out
    monkeypatch.setattr(parts, "LIMIT", 0.2)
    monkeypatch.setattr(parts, "PROGRAM", "import time; time.sleep(9)")
    assert parts.run("rl2", "cpu", True, tmp_path) == 1 and "more than 0.2 s" in capsys.readouterr().out
    missed = {"lines": [parts.goal("x", 1.0, 2.0, "a paper"), parts.goal("y", None, 2.0)], "met": False}
    monkeypatch.setattr(parts, "PROGRAM", f"open({str(tmp_path / 'rl2.json')!r}, 'w').write({json.dumps(missed)!r})")
    monkeypatch.setattr(parts, "LIMIT", 60)
    assert parts.run("rl2", "cpu", True, tmp_path) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  x: 1; goal 2 (a paper) missed", "  y: not measured; goal 2 missed"]
    with pytest.raises(UserError, match="there is no part 'rl3'. Did you mean 'rl2'"):
        parts.main(["rl3"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="there is no device 'cuda' here"):
        parts.main([])


# Catches: a goal that is met although a test failed, or although no test passed on a GPU.
@pytest.mark.parametrize(("cases", "device", "met"), [
    ("<testcase><skipped message='no GPU'/></testcase>", "cpu", True), ("<testcase/>", "cuda", True),
    ("<testcase><skipped message='no GPU'/></testcase>", "cuda", False),
    ("<testcase/><testcase classname='a' name='b'><failure/></testcase>", "cpu", False)])
def test_failed_or_missing_gpu_tests_miss_the_goal(cases, device, met, tmp_path, monkeypatch):
    monkeypatch.setattr(models.subprocess, "run", lambda *_, **__: (tmp_path / "tests.xml").write_text(
        f"<testsuite>{cases}</testsuite>"))
    lines, details = models.tests(device, True, str(tmp_path))
    assert all(line["met"] for line in lines) == met
    assert details["failed"] == ["a::b"] * ("failure" in cases)
    assert details["skipped"] == ({"no GPU": 1} if "skipped" in cases else {})


# Catches: a run that ignores the time limit; a run that is lost at the time limit.
@pytest.mark.long
def test_pong_stops_at_its_time_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(agents, "SECONDS", 0)
    before = signal.getsignal(signal.SIGINT)
    _, details = agents.pong("ppo", "cpu", True, str(tmp_path))
    assert details["status"] == "interrupted" and details["curve"]["steps"] == [16]
    assert signal.getsignal(signal.SIGINT) is before
