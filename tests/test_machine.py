"""Memory, cores, threads and devices that a process may use."""
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from spinup import machine
from spinup.errors import UserError
from spinup.machine import check_same_device, cores, free_memory


# Catches: an ignored memory limit of a container; the ignored use of its memory; a file cache that counts as used.
def test_free_memory_respects_the_limit_of_a_container(monkeypatch, tmp_path):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    assert free_memory() == 1000
    (tmp_path / "memory.stat").write_text("anon 100\ninactive_file 50\n")
    for limit, current, free in ("900", "350", 600), ("max", "300", 1000), ("9000", "300", 1000):
        (tmp_path / "memory.max").write_text(limit + "\n")
        (tmp_path / "memory.current").write_text(current + "\n")
        assert free_memory() == free


# Catches: limits that are read from the root of the control groups alone, as in a container; a larger limit in place of
# the smaller one.
def test_limits_of_a_job_are_the_smallest_of_all_its_cgroups(monkeypatch, tmp_path):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=10_000))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64), raising=False)
    monkeypatch.setattr(machine, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(machine, "OWN", tmp_path / "own")
    (tmp_path / "own").write_text("4:memory:/elsewhere\n0::/job_1/step\n")
    for folder, memory, cpu in ("job_1", "900", "150000 100000"), ("job_1/step", "max", "max 100000"):
        (tmp_path / "cgroup" / folder).mkdir(parents=True)
        for name, text in {"memory.max": memory, "memory.current": "100", "memory.stat": "inactive_file 0",
                           "cpu.max": cpu}.items():
            (tmp_path / "cgroup" / folder / name).write_text(text + "\n")
    assert (free_memory(), cores()) == (800, 2)


# Catches: all cores of the machine in place of those that the process may use, so that its threads wait for each other.
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="there a process has all cores")
def test_cores_are_those_that_this_process_may_use():
    all_of_them = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, [min(all_of_them)])
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, all_of_them)
    assert cores() == len(all_of_them)


# The thread library of torch prints the settings that it has read. Catches: an environment variable that is set after
# torch is loaded.
@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch has another library of threads")
def test_idle_threads_of_torch_soon_sleep():
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    told = subprocess.run([sys.executable, "-c", "import llm, torch"], capture_output=True, text=True,
                          env=environment | {"OMP_DISPLAY_ENV": "verbose"}).stderr
    assert re.search(r"GOMP_SPINCOUNT = '3000'", told), told


# Catches: the state of a GPU's random number generator that is loaded on a CPU, which ended a resumed run with a wrong
# error message.
def test_run_resumes_only_on_its_kind_of_device():
    check_same_device("cpu", "cpu")
    with pytest.raises(UserError, match="began on cuda, .* resume it on cuda$"):
        check_same_device("cuda", "cpu")
    with pytest.raises(UserError, match="resume it on cpu: type CUDA_VISIBLE_DEVICES= before the command$"):
        check_same_device("cpu", "cuda")
