"""Speed benchmarks with a real model: GRPO against TRL's trainer, sampling against transformers; two threads each.

Both libraries read one folder. It holds the weights, and a tokenizer without a chat template and without an end token.
The model's own chat template has turned the prompts into text already, so both libraries get equal token ids. The end
id is one above the vocabulary, so no response ends early. Each GRPO run counts its tokens and fails if one is missing.
Runs alternate (A B A B), each in its own process. The time of an update is the median over all updates except the
first. The reward is a hash of prompt and response, so no group has zero variance.
"""
import json
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

import llm
from llm.bench.questions import check_installed
from llm.bench.sampling import both, conclude, peer_sample, race
from llm.bench.speed import LR, call, compare, report, train_trl
from llm.policy.export import save_pretrained
from llm.policy.generate import Prompts, Sampler
from llm.policy.hf import HFTokenizer
from llm.policy.load import load_model
from llm.tasks.sentence import Sentence
from llm.tasks.task import Problem
from spinup.bench.process import answer, check_out, finish
from spinup.errors import UserError
from spinup.runs.files import read_json
from spinup.runs.threads import limited

PROMPTS, SAMPLES, NEW, THREADS = 8, 8, Sentence.max_tokens, 2             # per update or call; NEW tokens each
STEPS = 5                                                 # updates per run; the first is not timed
MEASURED = "smollm2"                                      # the model of the goals below
GOALS = {"float32": (3.8, 12.0), "bfloat16": (None, 7.0)}                 # least ratio, most seconds an update
CASES = ((PROMPTS, SAMPLES, 2.4), (32, 1, 1.6))           # of sampling: prompts, responses each, goal
NOTES = (
    "spinup reads a prompt once for its eight responses; trl reads it once per response, in sampling and in training",
    "spinup splits the responses into micro-batches by its default; trl trains on all responses at once, its default",
    "spinup uses the defaults of pretrained models, but only one held-out prompt, so it writes a row for each update; "
    "the seconds of evaluation are not counted; trl evaluates nothing",
    "spinup writes its only checkpoint after the last update, untimed; trl writes none here",
    "in bfloat16 spinup keeps fp32 copies of the weights; trl has weights and Adam's moments in bfloat16 and sets bf16",
    "gradient checkpointing, which trl switches on by default, is off in both")


@dataclass
class Written(Sentence):
    """Prompts of the task `sentence`, as text with the chat template applied; every response has a different reward.

    Attributes:
        before, after: the text of the chat template before and after the user's words.
    """

    before: str = ""
    after: str = ""

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        return [replace(p, prompt=f"{self.before}{p.prompt}{self.after}") for p in super().problems(n, rng, held_out)]

    def reward(self, problem: Problem, response: str) -> float:
        """Return a number in [0, 1) that depends only on prompt and response."""
        return crc32((problem.prompt + response).encode()) / 2**32


def prepare(model: str, folder: Path) -> dict[str, Any]:
    """Write the model for both libraries to `folder`, as described at the top of this file.

    Return the text of the chat template before and after the user's words, and the mean length of a prompt in tokens.
    Raise UserError if there is no such model, or if its tokenizer is not from Hugging Face. Also raise UserError if the
    text of a prompt does not have the token ids of the chat template.
    """
    start = load_model(model)
    ours = start.tokenizer
    if not isinstance(ours, HFTokenizer):
        raise UserError(f"--model {model} reads single characters; leave out --model to measure such models, or choose "
                        f"a pretrained one, such as {MEASURED}")
    from transformers import PreTrainedTokenizerFast
    words = [p.prompt for p in Sentence().problems(64, np.random.default_rng(0))]
    ids = [ours.prompt(text) for text in words]
    whole = ours.tokenizer.decode(ids[0], skip_special_tokens=False, clean_up_tokenization_spaces=False)
    before, _, after = whole.partition(words[0])
    inner = ours.tokenizer.backend_tokenizer
    inner.post_processor = None                                           # otherwise it adds a second `<s>`
    ours.tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner,
                                             pad_token=ours.tokenizer.convert_ids_to_tokens(ours.end))
    if ours.tokenizer([f"{before}{text}{after}" for text in words])["input_ids"] != ids:
        raise UserError(f"the prompts of --model {model} have different tokens as plain text; choose another model, "
                        f"such as {MEASURED}")
    ours.end = start.model.shape.vocab_size                               # no logit has this id
    ours.ends = frozenset([ours.end])
    save_pretrained(folder, start.model, ours)
    return {"before": before, "after": after, "prompt_tokens": float(np.mean([len(row) for row in ids]))}


def peer_tokenizer(folder: str) -> Any:
    """Load the tokenizer in `folder`. Add the end token that TRL needs: the first id above the model's vocabulary."""
    from transformers import AutoTokenizer
    tokenizer, end = AutoTokenizer.from_pretrained(folder), read_json(Path(folder, "config.json"))["vocab_size"]
    tokenizer.add_tokens([f"<unused {i}>" for i in range(len(tokenizer), end)])
    tokenizer.add_special_tokens({"eos_token": "<end of response>"})
    assert tokenizer.eos_token_id == end
    return tokenizer


def real_grpo(model: str, *, dtype: str = "float32", total_steps: int = STEPS, rounds: int = 3,
              out: Path | None = None) -> int:
    """Compare the speed of GRPO with TRL's on the model `model`; print JSON last.

    Return an exit code: 1 if the median ratio or the seconds an update miss their goal. Before any run, raise UserError
    for an unknown model, too few steps, a missing library, or a file that cannot be written.
    """
    if total_steps < 2:
        raise UserError(f"--total-steps {total_steps} leaves no update to measure after the first; choose at least 2")
    check_out(out)
    check_installed("trl")
    rows, (least, most) = PROMPTS * SAMPLES, GOALS[dtype] if model == MEASURED else (None, None)
    runs: dict[str, list[dict[str, Any]]] = {"spinup": [], "trl": []}
    with tempfile.TemporaryDirectory(prefix="spinup-bench-") as folder:
        about = prepare(model, Path(folder, "model"))
        print(f"grpo, {model} in {dtype}: {total_steps} updates of {rows} responses of {NEW} tokens to prompts of "
              f"{about['prompt_tokens']:.0f}, {rounds} {'pair' if rounds == 1 else 'pairs'}, {THREADS} threads each",
              flush=True)
        job = {**about, "model": str(Path(folder, "model")), "steps": total_steps, "threads": THREADS, "dtype": dtype}
        flops = call("limit", job)["flops"]
        for seed in range(1, rounds + 1):
            for name in runs:
                runs[name].append(run := call(name, {**job, "seed": seed}, "llm.bench.real"))
                print(f"pair {seed}  {name:<6} {run['seconds_an_update']:>7.2f} s an update   "
                      f"{run['tokens_per_second']:>7,.1f} tokens/s   at most {run['peak_gb']:.1f} GB   "
                      f"{run['zero_variance']:.0%} of groups with zero variance", flush=True)
    found = compare(runs, least, flops, 1.0, about["prompt_tokens"] / SAMPLES / NEW)
    seconds = {name: median(r["seconds_an_update"] for r in each) for name, each in runs.items()}
    shares = {name: round(median(r["tokens_per_second"] for r in each) / found["limit"], 3)
              for name, each in runs.items()}
    quick = most is None or seconds["spinup"] <= most
    for name in runs:
        print(f"{name:<6} {seconds[name]:.2f} s an update, {shares[name]:.0%} of the limit")
    print(f"  ratios {', '.join(f'{r:.2f}' for r in found['ratios'])}; median {found['ratio_median']:.2f}"
          + (f", goal {least}: {'met' if found['met'] else 'missed'}" if least else "")
          + (f"; seconds of spinup, goal {most:g}: {'met' if quick else 'missed'}" if most else ""))
    print("\n".join(f"  {note}" for note in NOTES))
    return finish({
        "benchmark": "speed", "algorithm": "grpo", "against": "trl", "model": model, "dtype": dtype, **found,
        "ratio_median_is": "new tokens per second of spinup divided by those of trl, by the median update of each run, "
                           "without spinup's held-out evaluation",
        "seconds_an_update": seconds, "share_of_limit": shares, "goal_seconds": most,
        "limit_is": "new tokens per second if only matrix products took time: prompts read once, 2 FLOP per parameter "
                    "to sample and 6 to train, at the speed of a large matrix product with the same threads and type",
        "limit_seconds_an_update": round(rows * NEW / found["limit"], 2), "flop_per_second": flops,
        "peak_gb": {name: max(r["peak_gb"] for r in each) for name, each in runs.items()},
        "parameters": {name: each[0]["parameters"] for name, each in runs.items()},
        "steps": total_steps, "settings": {
            "task": Sentence.name, "prompts": PROMPTS, "samples": SAMPLES, "prompt_tokens": about["prompt_tokens"],
            "max_tokens": NEW, "lr": LR, "kl_coef": 0, "clip": 0.2, "epochs": 1, "average": "sequence",
            "threads": THREADS, "dtype": dtype, "micro_batch": {"spinup": runs["spinup"][0]["micro_batch"],
                                                                "trl": rows}},
        "versions": {**runs["spinup"][0]["versions"], **runs["trl"][0]["versions"]}, "notes": NOTES,
        "met": found["met"] and quick}, out)


def task_of(job: dict[str, Any]) -> Written:
    """Create the task for both libraries."""
    return Written(before=job["before"], after=job["after"])


def run_spinup(folder: str, job: dict[str, Any]) -> dict[str, Any]:
    """Train with one held-out prompt; settings that are not named here have the defaults of pretrained models."""
    result = llm.grpo(
        task_of(job), model=job["model"], prompts=PROMPTS, samples=SAMPLES, total_steps=job["steps"], lr=LR, warmup=0,
        anneal=False, threads=job["threads"], dtype=job["dtype"], device="cpu", held_out=1, seed=job["seed"],
        log_dir=folder)
    rows = {name: np.array(column)[1:] for name, column in result.progress.items()}        # without the row before
    about, each = read_json(result.directory / "config.json"), np.diff(rows["steps"], prepend=0)     # updates per row
    seconds = sum(rows[f"{phase}_seconds"] for phase in ("rollout", "reward", "update")) / each
    return measured(job, seconds[1:], sum(rows["evaluation_seconds"][1:]), each @ rows["length"] * PROMPTS * SAMPLES,
                    about["parameters"], np.average(rows["zero_variance"], weights=each),
                    np.average(rows["reward"], weights=each),
                    about["versions"]) | {"micro_batch": about["config"]["micro_batch"]}


def run_trl(folder: str, job: dict[str, Any]) -> dict[str, Any]:
    """Train with TRL's GRPOTrainer and the same settings; settings that are not named here keep TRL's defaults."""
    ran = train_trl(folder, job, task_of(job), PROMPTS, peer_tokenizer(job["model"]), save_strategy="no",
                    bf16=job["dtype"] == "bfloat16", model_init_kwargs={"dtype": job["dtype"]})
    groups = np.array(ran["rewards"]).reshape(-1, SAMPLES)                # responses to one prompt are adjacent
    return measured(job, np.diff(ran["moments"]), 0.0, sum(ran["lengths"]), ran["parameters"],
                    (np.ptp(groups, axis=1) == 0).mean(), groups.mean(), ran["versions"])


def measured(job: dict[str, Any], seconds: np.ndarray, evaluation: float, tokens: float, *rest: Any) -> dict[str, Any]:
    """Results of one run. The speed uses the median of `seconds`, `[updates after the first]`.

    tokens: number of new tokens of all updates. rest: the last arguments of `llm.bench.speed.report`.
    Raise RuntimeError if a response ended early.
    """
    each = PROMPTS * SAMPLES * NEW
    if round(tokens) != each * job["steps"]:
        raise RuntimeError(f"{job['steps']} updates have {tokens:,.0f} new tokens instead of {each * job['steps']:,}")
    usual = float(np.median(seconds))
    whole = usual * len(seconds)
    return {**report(len(seconds), each * len(seconds), whole, whole + evaluation, *rest),
            "seconds_an_update": round(usual, 3), "seconds_of_updates": [round(float(s), 3) for s in seconds],
            "peak_gb": round(peak_memory() / 1e9, 2)}


def peak_memory() -> int:
    """Peak memory of this process so far, in bytes."""
    if sys.platform == "win32":
        import psutil
        return psutil.Process().memory_info().peak_wset
    import resource
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def real_generate(model: str, *, rounds: int = 10, out: Path | None = None) -> int:
    """Compare our sampler with `transformers.generate` on the model `model`, `rounds` alternating calls each.

    Both sample in fp32 from all tokens at temperature 1, with a cache. Print a table, then JSON. Return an exit code: 1
    if a median ratio misses its goal. Raise UserError for an unknown model, a missing library, or a file that cannot be
    written.
    """
    check_out(out)
    check_installed("transformers")
    with limited(THREADS), tempfile.TemporaryDirectory(prefix="spinup-bench-") as folder:
        about = prepare(model, Path(folder, "model"))
        rows = sampling(model, Path(folder, "model"), about, rounds)
    which = f"{rows[0]['batch']} responses of {NEW} tokens to {rows[0]['prompts']} prompts"
    return conclude(out, rows, rows[0], which, {"model": model}, {
        "rounds": rounds, "prompt_tokens": about["prompt_tokens"], "threads": THREADS})


def sampling(model: str, folder: Path, about: dict[str, Any], rounds: int) -> list[dict[str, Any]]:
    """Time both samplers on the model in `folder`; print a line and return a row for each of `CASES`."""
    ours, theirs = both(folder)
    sampler, generator, tokenizer = Sampler(ours, end=-1), torch.Generator().manual_seed(1), peer_tokenizer(str(folder))
    rows = []
    print(f"sampling, {model}, prompts of {about['prompt_tokens']:.0f} tokens, {THREADS} threads, {rounds} alternating "
          f"calls each; batch: prompts x responses each\n"
          f"{'batch':>6}{'new':>5}{'spinup':>12}{'transformers':>14}   tokens/s")
    for prompts, samples, goal in CASES:
        texts = [p.prompt for p in task_of(about).problems(prompts, np.random.default_rng(1))]
        padded = tokenizer(texts, padding=True, padding_side="left", return_tensors="pt")
        read = Prompts.of(tokenizer(texts)["input_ids"])

        def spinup_call(read: Prompts = read, samples: int = samples) -> Tensor:
            return sampler(read, samples=samples, max_tokens=NEW, generator=generator).ids

        def peer_call(padded: Any = padded, samples: int = samples) -> Tensor:
            return peer_sample(theirs, padded["input_ids"], padded["attention_mask"], samples, NEW)
        rows.append({"batch": prompts * samples, "new": NEW, "prompts": prompts, "samples": samples,
                     **race(spinup_call, peer_call, prompts * samples, NEW, rounds,
                            goal if model == MEASURED else None)})
    return rows


if __name__ == "__main__":
    run = {"spinup": run_spinup, "trl": run_trl}[sys.argv[2]]
    answer(lambda: run(sys.argv[1], json.loads(sys.argv[3])))
