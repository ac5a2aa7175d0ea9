"""Checkpoints whose large parts are in separate files: a kill during writing, a full disk, and damaged files."""
import errno
import os
import shutil
import signal
import zlib
from pathlib import Path

import pytest
import safetensors.torch
import torch

import llm
from llm.policy.checkpoint import load_pretrained
from spinup.errors import UserError
from spinup.runs import checkpoint, tensors
from spinup.runs.checkpoint import load_checkpoint, read_checkpoint
from spinup.runs.tensors import write_tensors

RUN = Path("runs/x/x_s1")
WORDS = ["llm", "sft", "--task", "reverse:length=2,symbols=10", "--held-out", 8, "--threads", 1, "--no-tensorboard",
         "--preset", "none", "--exp-name", "x", "--batch", 8, "--demonstrations", 50, "--total-steps", 12,
         "--checkpoint-steps", 4, "--quiet"]
KEPT = {"checkpoint.pt", "model-12.safetensors", "optimizer-12.safetensors"}
# Kills the process at a given moment while it writes a checkpoint. A run has three checkpoints, at steps 4, 8 and 12.
KILL = """
import os, signal
from spinup.runs import checkpoint, tensors
checkpoint.LARGE = 100
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
replace, given, renamed = os.replace, tensors.pieces, []
def rename(source, target):
    renamed.append(os.path.basename(target))
    if {moment!r} == f"rename {{renamed.count(renamed[-1])}} of {{renamed[-1]}}":
        die()
    replace(source, target)
    if {moment!r} == "deletion" and renamed.count("checkpoint.pt") == 2:
        die()
def pieces(first, each):
    for i, piece in enumerate(given(first, each)):
        yield piece
        if {moment!r} == "middle" and "checkpoint.pt" in renamed and i > 3:
            die()
os.replace, tensors.pieces = rename, pieces
"""
# For each moment of the kill, the step of the checkpoint that is then on disk; None if there is no checkpoint.
MOMENTS = {"rename 1 of checkpoint.pt": None, "middle": 4, "rename 1 of model-8.safetensors": 4,
           "rename 1 of optimizer-8.safetensors": 4, "rename 2 of checkpoint.pt": 4, "deletion": 8}


@pytest.fixture
def large(monkeypatch) -> None:
    """Treat each part of a checkpoint with more than a hundred numbers as a large one."""
    monkeypatch.setattr(checkpoint, "LARGE", 100)


@pytest.fixture
def run(beginner, large, cli, tmp_path) -> Path:
    """The folder of a finished run with a large model."""
    assert cli(*WORDS, "--model", beginner).code == 0
    return tmp_path / RUN


def files(run: Path) -> set[str]:
    """The names of a run's checkpoint and files of tensors, temporary ones included."""
    return {file.name for file in run.iterdir() if "safetensors" in file.name or "checkpoint" in file.name}


# Catches: old files that are deleted before the new checkpoint.pt exists; new files under the old names; temporary
# files that are left over; a moment of Adam or a weight that is not restored; a large model that trains differently
# from a small one.
@pytest.mark.long("rename 1 of checkpoint.pt", "rename 2 of checkpoint.pt", "rename 1 of optimizer-8.safetensors",
                  "rename 1 of model-8.safetensors", "deletion")
@pytest.mark.parametrize("moment", MOMENTS)
def test_run_killed_while_saving_resumes_with_the_curve_of_a_small_model(moment, beginner, start, cli, curve,
                                                                         monkeypatch, tmp_path):
    words, left = [*WORDS, "--model", beginner], MOMENTS[moment]
    assert cli(*words, "--log-dir", "whole").code == 0
    assert files(tmp_path / "whole/x/x_s1") == {"checkpoint.pt"}
    assert start(*words, prelude=KILL.format(moment=moment)).end().code == -signal.SIGKILL
    run = tmp_path / RUN
    assert len(files(run)) > (1 if left is None else 3)                   # there are leftover files
    if left is not None:
        assert load_checkpoint(run / "checkpoint.pt")["steps"] == left
    monkeypatch.setattr(checkpoint, "LARGE", 100)
    usage, seen = shutil.disk_usage, []
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: seen.append(files(run)) or usage(folder))
    assert cli("resume", RUN).code == 0
    assert curve(run) == curve(tmp_path / "whole/x/x_s1") and files(run) == KEPT
    tidy = {f"model-{left}.safetensors", f"optimizer-{left}.safetensors"} if left else set()
    assert {name for name in seen[0] if "safetensors" in name} == tidy    # deleted before the free space is measured
    one, other = (load_checkpoint(x / "checkpoint.pt")["parts"] for x in (run, tmp_path / "whole/x/x_s1"))
    assert all(torch.equal(one[part][name], torch.as_tensor(x)) if isinstance(x, torch.Tensor) else one[part][name] == x
               for part in other for name, x in other[part].items())


# Catches: files that are written before the free disk space is checked, or that are left over if it was too small; an
# old checkpoint that is deleted to free space.
@pytest.mark.parametrize("known", [True, False])
def test_full_disk_keeps_the_last_checkpoint(known, beginner, large, cli, curve, monkeypatch, tmp_path):
    assert cli(*WORDS, "--model", beginner, "--log-dir", "whole").code == 0
    pieces, count = tensors.pieces, [0]

    def full(first, each):
        count[0] += 1
        for piece in pieces(first, each):
            yield piece
            if count[0] == 4 and not known:                               # the optimiser's file at step 8
                raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tensors, "pieces", full)
        if known:
            free = iter([10**9, 10**6, 10**6])
            patch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 0, next(free)))
        done = cli(*WORDS, "--model", beginner)
    assert done.code == 2 and done.err.count("\n") == 1
    assert "cannot be written (no space left on device); free disk space, or choose another --log-dir" in done.err
    assert files(tmp_path / RUN) == {"checkpoint.pt", "model-4.safetensors", "optimizer-4.safetensors"}
    assert load_checkpoint(tmp_path / RUN / "checkpoint.pt")["steps"] == 4
    assert cli("resume", RUN).code == 0
    assert curve(tmp_path / RUN) == curve(tmp_path / "whole/x/x_s1") and files(tmp_path / RUN) == KEPT


# Catches: a checkpoint of an earlier version, in one file, that can no longer be read.
def test_run_with_a_checkpoint_in_one_file_resumes_with_several_files(beginner, cli, curve, monkeypatch, tmp_path):
    words = [*WORDS, "--model", beginner]
    assert cli(*words, "--log-dir", "whole").code == 0
    assert cli(*[6 if word == 12 else word for word in words], "--no-anneal").code == 0
    assert files(tmp_path / RUN) == {"checkpoint.pt"}
    monkeypatch.setattr(checkpoint, "LARGE", 100)
    assert cli("resume", RUN, "--total-steps", 12).code == 0
    assert files(tmp_path / RUN) == KEPT and len(curve(tmp_path / RUN)) > 6
    assert cli(*words, "--no-anneal", "--log-dir", "straight").code == 0
    one, other = (load_checkpoint(x / "checkpoint.pt")["parts"]["model"]
                  for x in (tmp_path / RUN, tmp_path / "straight/x/x_s1"))
    assert all(torch.equal(one[name], other[name]) for name in other)


# Catches: a policy that cannot be loaded without the optimiser's file; weights that differ from those of the run.
def test_policy_is_loaded_without_the_file_of_the_optimiser(run, cli, tmp_path):
    state = load_checkpoint(run / "checkpoint.pt")["parts"]["model"]
    assert all(torch.equal(x, state[name]) for name, x in
               safetensors.torch.load_file(run / "model-12.safetensors").items())
    (run / "optimizer-12.safetensors").unlink()
    policy = llm.load(run)
    assert all(torch.equal(x, state[name]) for name, x in policy.model.state_dict().items())
    assert cli("llm", "export", RUN, "exported").code == 0
    exported, _ = load_pretrained(tmp_path / "exported")
    assert all(torch.equal(x, state[name]) for name, x in exported.state_dict().items())
    assert cli("eval", RUN).code == 0 and cli("watch", RUN).code == 0
    refused = cli("resume", RUN, "--total-steps", 24)
    assert refused.code == 2 and refused.err == (f"spinup: {RUN} lacks optimizer-12.safetensors, which belongs to its "
                                                 "checkpoint.pt; restore the file, or start a new run\n")


def damage(run: Path, fault: str) -> None:
    """Put a fault into the checkpoint of a run."""
    path, weights = run / "checkpoint.pt", run / "model-12.safetensors"
    state, data = read_checkpoint(path), bytearray(weights.read_bytes())
    stored, numbers = state["tensors"]["model"], safetensors.torch.load_file(weights)
    first = next(iter(numbers))
    shutil.copy(weights, run.parent / "model-12.safetensors")
    match fault:
        case "changed byte":
            data[len(data) // 2] ^= 1
            weights.write_bytes(data)
        case "truncated":
            weights.write_bytes(data[:-1])
        case "file of another run":
            weights.write_bytes((run / "optimizer-12.safetensors").read_bytes())
        case "missing":
            weights.unlink()
        case "folder":
            weights.unlink()
            weights.mkdir()
        case "not finite" | "whole numbers" | "another shape" | "lacks a weight":
            numbers[first] = {"not finite": numbers[first] * torch.nan, "whole numbers": numbers[first].long(),
                              "another shape": numbers[first][..., None]}.get(fault)
            stored["crc32"] = write_tensors(weights, {k: x for k, x in numbers.items() if x is not None})
        case "outside" | "absolute" | "of no text" | "without checksum" | "of an unknown part":
            wrong = {"outside": {"file": "../model-12.safetensors"}, "of no text": {"file": 3},
                     "absolute": {"file": str(run.parent / "model-12.safetensors")},
                     "without checksum": {"crc32": None}}
            state["tensors"]["model"] = stored | wrong.get(fault, {})
            if fault == "of an unknown part":
                state["tensors"]["other"] = state["tensors"].pop("model")
    torch.save(state, path)


# Catches: a fault of this list that is not detected, that gives a traceback, or that creates or deletes a file.
@pytest.mark.parametrize("fault", [
    "changed byte", "truncated", "file of another run", "missing", "folder", "not finite", "whole numbers",
    "another shape", "lacks a weight", "outside", "absolute", "of no text", "without checksum", "of an unknown part"])
def test_damaged_checkpoint_is_refused_in_one_sentence(fault, run, cli, tree, tmp_path):
    damage(run, fault)
    before = tree()
    for words in (["resume", RUN, "--total-steps", 24], ["eval", RUN], ["llm", "export", RUN, "exported"]):
        done = cli(*words)
        assert done.code == 2 and done.err.startswith("spinup: ") and done.err.count("\n") == 1, (words, done)
        assert "checkpoint.pt" in done.err or "model-12.safetensors" in done.err
        assert tree() == before
    with pytest.raises(UserError):
        llm.load(run)


# Catches: an error in a program that reads the checkpoint while the run replaces it.
def test_reader_finds_the_new_files_while_a_run_replaces_them(run, monkeypatch):
    path, read = run / "checkpoint.pt", checkpoint.read_checkpoint
    new, calls = read(path), []
    old = {**new, "tensors": {name: {"file": x["file"].replace("12", "8"), "crc32": 1}
                              for name, x in new["tensors"].items()}}
    monkeypatch.setattr(checkpoint, "read_checkpoint", lambda path: calls.append(path) or (
        old if len(calls) == 1 else read(path)))
    assert load_checkpoint(path)["parts"]["model"].keys() == safetensors.torch.load_file(
        run / "model-12.safetensors").keys()
    assert len(calls) == 3


# Catches: a file that is replaced while the checkpoint on disk still names it with the old checksum.
def test_two_checkpoints_of_the_same_step_have_different_files(large, tmp_path, monkeypatch):
    path, x = tmp_path / "checkpoint.pt", torch.arange(200.0)
    for round_ in range(3):
        names = files(tmp_path)
        checkpoint.save_checkpoint(path, {"steps": 5, "parts": {"model": {"x": x + round_}}})
        assert not {name for name in files(tmp_path) & names if "model" in name} and len(files(tmp_path)) == 2
    stored = read_checkpoint(path)["tensors"]["model"]
    assert zlib.crc32((tmp_path / stored["file"]).read_bytes()) == stored["crc32"]
    (tmp_path / "model.safetensors").touch()                              # files of the user or of an export
    (tmp_path / "model-00001-of-00002.safetensors").touch()
    checkpoint.remove_leftovers(path)
    assert len(files(tmp_path)) == 4
    monkeypatch.setattr(os, "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        checkpoint.save_checkpoint(path, {"steps": 6, "parts": {"model": {"x": x}}})
    assert len(files(tmp_path)) == 4 and read_checkpoint(path)["tensors"]["model"] == stored
