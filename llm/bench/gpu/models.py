"""Parts with language models, and the tests of the GPU."""
import os
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import torch

import llm
from llm.bench.costs import MODELS
from llm.bench.gpu.parts import ROOT, goal
from llm.bench.roofline import SHAPES, grpo_step, roofline
from spinup.machine import cores, missing_for_compile
from spinup.runs.files import read_json
from spinup.runs.records import read_run

Found = tuple[list[dict[str, Any]], dict[str, Any]]       # lines of the result, and details for the raw file
SHARES = {1: 0.3, 64: 0.5, 256: 0.3}                      # goals of sampling by batch, as shares of the bandwidth
MFU = 0.4                                                 # goal of training
THREADS = 2                                               # of the CPU in a GRPO update
PROCESSES = 8                                             # at most, for the tests: each holds memory of the GPU
ACCURACY = 0.97                                           # goal on `reverse`, that of the CPU
TINY = {"task": "reverse:length=2,symbols=10", "preset": "none", "total_steps": 2, "prompts": 2, "samples": 2,
        "held_out": 4, "layers": 1, "width": 16, "heads": 2, "sft_accuracy": 0.01}


def tests(device: str, quick: bool, folder: str) -> Found:
    """Run the tests in `tests/gpu`. Without a GPU they are skipped, each with its reason."""
    report = Path(folder, "tests.xml")
    processes = ["-n", str(max(1, min(PROCESSES, cores() // 2)))] if find_spec("xdist") else []
    options = ["-q", "-o", "addopts=--import-mode=importlib -p no:cacheprovider", *processes, f"--junitxml={report}"]
    subprocess.run([sys.executable, "-m", "pytest", *options, "tests/gpu"], cwd=ROOT,
                   env={**os.environ, "SPINUP_TEST_DEVICE": device})
    outcomes, reasons, names = Counter(), Counter(), []
    for case in ElementTree.parse(report).iter("testcase"):
        kind = next((e.tag for e in case if e.tag in ("failure", "error", "skipped")), "passed")
        outcomes[kind] += 1
        if kind == "skipped":
            reasons[case.find("skipped").get("message")] += 1
        elif kind != "passed":
            names.append(f"{case.get('classname')}::{case.get('name')}")
    wrong = outcomes["failure"] + outcomes["error"]
    return [goal("tests passed", outcomes["passed"], 0 if device == "cpu" else 1),
            goal("tests failed", wrong, most=0), goal("tests skipped", outcomes["skipped"])], {
            "failed": names, "skipped": dict(reasons)}


def limits(device: str, quick: bool, folder: str) -> Found:
    """Measure `spinup bench roofline`, on a GPU with compiled layers if there is a compiler."""
    out, gpu = Path(folder, "roofline.json"), device != "cpu"
    roofline(device=device, shape="0.5b" if gpu else "small", batches=(1, 8) if quick else (), out=out,
             compile=gpu and not missing_for_compile())
    found = read_json(out)
    goals, mfu = ({}, None) if found["kind"] == "cpu" else (SHARES, MFU)
    shares = {row["batch"]: row["bandwidth_share"] for row in found["sampling"]}
    lines = [goal(f"share of the bandwidth in sampling, batch {batch}", shares.get(batch), goals.get(batch))
             for batch in {**shares, **goals}]
    lines.append(goal("share of the peak FLOP/s in training", (found["training"] or {}).get("mfu"), mfu))
    lines += [goal(f"share of a GRPO update: {phase}", share)
              for phase, share in ((found["grpo_step"] or {}).get("shares") or {}).items()]
    return lines, {"roofline": found}


def grpo_update(device: str, quick: bool, folder: str) -> Found:
    """Measure a GRPO update with random weights, with few short responses and with many long ones, and on the CPU."""
    shape, cases = MODELS["SmolLM2-135M"], {"8 x 8 responses of 24 tokens": (8, 8, 24),
                                            "32 x 8 responses of 128 tokens": (32, 8, 128)}
    if quick:
        shape, cases = SHAPES["small"], {"2 x 2 responses of 4 tokens": (2, 2, 4)}
    lines, rows = [], {}
    for name, (prompts, samples, tokens) in cases.items():
        first = name == next(iter(cases))
        for where in dict.fromkeys((device, "cpu") if first else (device,)):
            dtype = torch.float32 if where == "cpu" else torch.bfloat16
            row = grpo_step(torch.device(where), shape, dtype, tokens, prompts=prompts, samples=samples,
                            threads=THREADS)
            rows[f"{name}, {where}"] = row
            lines += [goal(f"{name}, seconds an update on {where}", row["seconds"]),
                      goal(f"{name}, tokens a second on {where}", row["tokens_per_second"])]
    seconds = [rows[f"{next(iter(cases))}, {where}"]["seconds"] for where in ("cpu", device)]
    if device != "cpu":
        lines.append(goal("seconds on the CPU divided by those on the GPU", seconds[0] / seconds[1], 1.0))
    return lines, {"settings": {"shape": asdict(shape), "dtype": {"cuda": "bfloat16", "cpu": "float32"},
                                "threads": THREADS}, "rows": rows}


def learning(device: str, quick: bool, folder: str) -> Found:
    """Train with GRPO on `reverse`, on the device and on the CPU, after SFT on the same device."""
    lines, rows = [], {}
    for where in dict.fromkeys((device, "cpu")):
        settings = {"task": "reverse", **(TINY if quick else {})}
        run = llm.grpo(**settings, seed=1, device=where, quiet=True, tensorboard=find_spec("tensorboard") is not None,
                       log_dir=f"{folder}/{where}")
        seconds, about = run.progress["wall_seconds"][-1], read_run(run.directory)
        accuracy = run.progress["held_out_accuracy"][-1]
        rows[where] = {"held_out_accuracy": accuracy, "seconds": seconds, "sft_seconds": about["start_seconds"],
                       "settings": about["config"], "curve": {
                           name: list(run.progress[name]) for name in ("steps", "wall_seconds", "held_out_accuracy")}}
        least = None if quick else ACCURACY
        lines += [goal(f"held-out accuracy on {where}", accuracy, least), goal(f"seconds on {where}", seconds)]
    return lines, {"rows": rows}
