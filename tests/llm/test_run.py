"""A run of a language model: its folder, its rows, its initial policy, its warnings, and its final policy."""
import json
import math
import re
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import llm
import spinup
from llm.columns import METRICS, PHASES
from llm.config import LanguageConfig
from llm.diagnose import diagnose
from llm.learn import kl_to_reference
from llm.policy.load import load_model
from llm.rollout import sample
from llm.run import Result
from llm.tasks import Problem
from llm.tasks.make import make_task
from llm.tasks.strings import Reverse
from llm.tasks.task import is_held_out
from spinup.errors import NonFiniteError, UserError
from spinup.registry import algorithms
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.files import read_json
from spinup.runs.log import read_progress
from tests.llm.conftest import suite_of

METHODS = [name for name, algorithm in algorithms("llm").items()
           if algorithm.load().Config.task == LanguageConfig.task]                             # not those for games

REVERSE = "reverse:length=2,symbols=10"
TINY = {"task": REVERSE, "held_out": 8, "total_steps": 4, "quiet": True, "tensorboard": False, "threads": 1,
        "preset": "none"}
SHAPE = {"layers": 1, "width": 16, "heads": 2}                            # of a new model
WORDS = ["--task", REVERSE, "--held-out", 8, "--total-steps", 4, "--threads", 1, "--preset", "none"]


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def able(make_model) -> str:
    """The folder of a model that solves some problems. Its greedy responses are better than its samples."""
    return make_model(total_steps=60, lr=0.02, warmup=0, batch=48, held_out=100)


def early(prompt: str, response: str) -> float:
    """A reward for the letters a to e, which is above 0 for some responses of any model."""
    return sum(letter in "abcde" for letter in response) / 3


def train(method: str, model: str, **settings) -> Result:
    return getattr(llm, method)(**{**TINY, "model": model, **suite_of(method)["settings"], **settings})


def weights(result: Result) -> torch.Tensor:
    parts = load_checkpoint(result.directory / "checkpoint.pt")["parts"]["model"]
    return torch.cat([parts[name].flatten() for name in sorted(parts)])


# Catches: the KL divergence in the other direction.
def test_kl_in_a_row_is_from_the_policy_to_its_initial_policy(beginner, monkeypatch):
    seen, real = [], kl_to_reference
    monkeypatch.setattr("llm.run.kl_to_reference", lambda model, reference, *rest: seen.append(
        (model, reference)) or real(model, reference, *rest))
    train("sft", beginner, lr=0.02, warmup=0)
    start = load_model(beginner).model
    assert [all(map(torch.equal, net.parameters(), start.parameters())) for net in seen[-1]] == [False, True]


# Catches: an initial policy that is not recorded; missing accuracies in result.json.
def test_run_folder_has_all_files_and_entries(cli, beginner, tmp_path, full_runs):
    assert cli("llm", "dapo", *WORDS, "--model", beginner, "--prompts", 4, "--exp-name", "back", "--seed", 7).code == 0
    run = tmp_path / "runs/back/back_s7"
    files = {p.name for p in run.iterdir()}
    events = {name for name in files if name.startswith("events.out.tfevents.")}
    assert files - events == {".lock", "config.json", "progress.csv", "samples.jsonl", "result.json", "checkpoint.pt",
                              "curve.png"}
    assert len(events) == 1 and [p.name for p in tmp_path.iterdir()] == ["runs"]

    config = read_json(run / "config.json")
    assert config["algorithm"] == "llm dapo"
    assert config["config"].items() >= {"seed": 7, "task": REVERSE, "clip_high": 0.28, "model": beginner}.items()
    assert config["shape"].items() >= {"layers": 1, "width": 16, "heads": 2, "vocab_size": 12}.items()
    assert config["alphabet"] == "abcdefghij>" and config["parameters"] == sum(
        x.numel() for x in llm.load(run).model.parameters())
    assert config["start"] == beginner and config["start_seconds"] == 0
    assert config["versions"].items() >= {"torch": torch.__version__, "numpy": np.__version__}.items()
    assert config["git"] is None or re.fullmatch(r"[0-9a-f]{12}\+?", config["git"])

    result, progress = read_json(run / "result.json"), read_progress(run)
    assert (result["status"], result["steps"]) == ("finished", 4)
    assert result["measure"] == config["measure"] == "held_out_accuracy"
    for name in "held_out_accuracy", "held_out_greedy", "held_out_reward":
        assert result[name] == progress[name][-1]
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG\r\n")


# Catches: a row with everything that was added; ratios to a teacher whose probabilities are unknown; columns of one
# method in the rows of another.
@pytest.mark.parametrize("method", [m for m in METHODS if m != "reward_model"])
def test_methods_share_columns_and_add_their_own(method, beginner):
    result, suite = train(method, beginner, reward=early), suite_of(method)
    columns = list(result.progress)
    assert columns == ["epoch", "steps", "held_out_accuracy", "held_out_greedy", "held_out_reward", *METRICS,
                       "kl_to_initial", "kl_of_response", *suite["own"], *(f"{phase}_seconds" for phase in PHASES),
                       "tokens_per_second", *suite["logged"], "wall_seconds", "steps_per_second"]
    assert {name for name in columns if math.isnan(result.progress[name][-1])} == {*suite["lacking"]}
    assert result.progress["steps"] == [1, 2, 3, 4] and result.status == "finished"
    assert result.measure == "held_out_accuracy" and result.quality == result.progress["held_out_accuracy"][-1]


# A reward model generates no responses, so it has no columns about them. Catches: the accuracy on the training pairs in
# place of the held-out pairs.
def test_reward_model_has_its_own_columns(beginner):
    result = train("reward_model", beginner, reward=early)
    assert list(result.progress) == [
        "epoch", "steps", "loss", "train_accuracy", "grad_norm", "learning_rate", "pair_accuracy", "pair_margin",
        "calibration_error", "length_correlation", "wall_seconds", "steps_per_second"]
    assert not any(math.isnan(values[-1]) for values in result.progress.values())
    assert result.measure == "pair_accuracy" and result.quality == result.progress["pair_accuracy"][-1]
    ended = read_json(result.directory / "result.json")
    assert ended["pair_accuracy"] == result.quality and "held_out_accuracy" not in ended


# Catches: problems sampled without the seed; a generator that changes with each checkpoint.
def test_only_the_seed_determines_the_curve(beginner, curve):
    first = train("grpo", beginner, reward=early, minibatches=2)
    torch.manual_seed(99)
    np.random.seed(99)
    again = train("grpo", beginner, reward=early, minibatches=2, checkpoint_steps=3, exp_name="again", quiet=False)
    other = train("grpo", beginner, reward=early, minibatches=2, seed=2)
    assert curve(first.directory) == curve(again.directory) != curve(other.directory)
    assert len({tuple(row[2:]) for row in curve(first.directory)}) == 5   # the rows differ from each other


# The initial policy.

# Catches: a model of the right shape whose weights are not loaded; `evaluate` with the generator of the rollout.
@pytest.mark.long
def test_training_on_rewards_starts_from_the_initial_policy(able):
    ended = read_json(Path(able, "result.json"))
    assert 0.15 < ended["held_out_accuracy"] < 0.9
    still = train("rloo", able, held_out=100, lr=1e-12, total_steps=2)
    assert still.progress["held_out_accuracy"] == [ended["held_out_accuracy"]] * 2
    assert still.progress["held_out_greedy"] == [ended["held_out_greedy"]] * 2
    assert max(still.progress["kl_to_initial"]) < 1e-6
    moved = train("rloo", able, held_out=100, lr=2e-3, warmup=0, total_steps=8)
    assert abs(moved.progress["held_out_accuracy"][0] - ended["held_out_accuracy"]) < 0.15
    assert moved.progress["kl_to_initial"][-1] > 1e-4


# Catches: an initial policy that is trained for each run; a name that does not depend on `width` or `stop_accuracy`; a
# name that depends on `micro_batch` or `exp_name`.
@pytest.mark.long
def test_initial_policy_is_trained_once_and_reused(monkeypatch):
    chosen = {"sft": {"total_steps": 3, "batch": 8}}                      # a short preset: the real one takes seconds
    monkeypatch.setattr("llm.start.choose_preset", lambda algorithm, *_: (
        "none", chosen.get(algorithm.method, {})))

    def run(method="grpo", **settings) -> str:
        own = {"total_steps": 1, "prompts": 2, "samples": 2, "sft_accuracy": 1.0}
        result = getattr(llm, method)(**{**TINY, **SHAPE, **own, **settings})
        data = read_json(result.directory / "config.json")
        starts.append(data["start"])
        return data["start_seconds"]

    starts: list[str] = []
    assert run() > 0
    kept = {p: p.stat().st_mtime_ns for p in Path(starts[0]).iterdir()}
    assert {p.name for p in kept} == {".lock", "config.json", "progress.csv", "samples.jsonl", "result.json",
                                      "checkpoint.pt"}
    assert read_json(Path(starts[0], "config.json"))["algorithm"] == "llm sft"
    same = ({}, {"method": "rloo"}, {"lr": 1e-3, "prompts": 4, "total_steps": 2}, {"temperature": 0.7},
            {"micro_batch": 1, "gradient_checkpointing": True, "exp_name": "named", "checkpoint_steps": 1})
    for settings in same:
        assert run(**settings) == 0
    assert set(starts) == {starts[0]} and {p: p.stat().st_mtime_ns for p in Path(starts[0]).iterdir()} == kept
    others = ({"seed": 2}, {"width": 24}, {"task": "reverse:length=3"}, {"task": "copy:length=2"},
              {"sft_accuracy": 0.9})
    for settings in others:
        assert run(**settings) > 0
    assert len(set(starts)) == 1 + len(others)


# Catches: seconds of the evaluation that count as rollout; a search for held-out problems at every row, or a
# measurement of the KL divergence, whose seconds are in no column.
@pytest.mark.long
def test_seconds_of_the_phases_add_up_to_the_wall_time(beginner):
    def slow(prompt: str, response: str) -> float:
        time.sleep(0.0005)
        return early(prompt, response)

    began = time.perf_counter()
    result = train("grpo", beginner, reward=slow, total_steps=60, held_out=4)                # two updates per row
    took = time.perf_counter() - began
    wall = result.progress["wall_seconds"]
    spent = {phase: sum(result.progress[f"{phase}_seconds"]) for phase in PHASES}
    assert len(wall) == 30 and wall[-1] <= took
    assert 0.9 * wall[-1] < sum(spent.values()) <= 1.001 * wall[-1] + 0.005
    assert 60 * 16 * 0.0005 < spent["reward"] < 0.9 * wall[-1]
    assert spent["evaluation"] > 30 * 8 * 0.0005 and spent["rollout"] > 0 and spent["update"] > 0
    many = train("grpo", beginner, total_steps=30, held_out=128)
    spent = sum(sum(many.progress[f"{phase}_seconds"]) for phase in PHASES)
    assert spent > 0.85 * many.progress["wall_seconds"][-1]
    imitation = train("sft", beginner)
    assert not any(imitation.progress["rollout_seconds"] + imitation.progress["reward_seconds"])


# Catches: steps per second with one digit, which are 0.0 for a run whose updates take a minute.
def test_slow_run_prints_its_speed_and_remaining_time(beginner, monkeypatch, capsys):
    monkeypatch.setattr("spinup.runs.training.Training.seconds", property(lambda run: 125.0 * max(1, run.steps)))
    result = train("grpo", beginner, quiet=False)
    assert result.progress["steps_per_second"] == [0.008] * 4
    said = capsys.readouterr().out
    assert "1 / 4 steps" in said and "0.008 steps/s   6 min 15 s left" in said
    assert "4 steps in 8 min 20 s, 0.008 a second" in said


# Catches: a problem that is read, and answered greedily, several times if few are held out; responses that are scored
# with the problem of another row.
def test_held_out_problems_are_read_once_even_if_they_are_few(able, monkeypatch):
    drawn = []

    def spy(*args, **settings):
        drawn.append(sample(*args, **settings))
        return drawn[-1]

    monkeypatch.setattr("llm.run.sample", spy)
    monkeypatch.setattr(Reverse, "gold", lambda task, problem, response: float(response == problem.answer))
    result = train("grpo", able, held_out=256, total_steps=1)
    _, sampled, greedy = drawn
    prompts = [p.prompt for p in sampled.problems]
    assert prompts == [p.prompt for p in greedy.problems] and len(set(prompts)) == len(prompts) < 20
    assert len(greedy.texts) == len(prompts) and len(sampled.texts) == 256 // len(prompts) * len(prompts)
    assert result.progress["held_out_gold"] == result.progress["held_out_accuracy"] > [0.0]


# The policy of a run.

# Catches: `load` without the weights, or with another longest response than the run's; `greedy` that is not passed on.
@pytest.mark.parametrize(("method", "settings"), [
    ("grpo", {}), ("dapo", {}), ("rloo", {"max_tokens": 2}), ("rloo", {"reward": early})])
def test_loaded_policies_respond_like_the_policy_of_the_run(method, settings, able):
    result = train(method, able, lr=0.02, exp_name="x", **settings)
    loaded = [llm.load(result.directory), spinup.load(str(result.directory)), llm.load("runs/x")]
    prompts = [f"{a}{b}>" for a in "abcdefghij" for b in "abcdefghij"]
    answers = result.policy.respond_all(prompts, 1, None, result.policy.max_tokens)
    for policy in loaded:
        assert policy.max_tokens == result.policy.max_tokens
        assert policy.respond_all(prompts, 1, None, policy.max_tokens) == answers
        assert [policy.respond(prompt, greedy=True) for prompt in prompts[:9]] == [[answer] for answer in answers[:9]]
    if not settings:
        assert sum(answer == prompt[1::-1] for prompt, answer in zip(prompts, answers, strict=True)) > 50
    drawn = loaded[0].respond("ab>", samples=30)
    assert len(drawn) == 30 and len(set(drawn)) > 1 and max(map(len, drawn)) <= result.policy.max_tokens
    with pytest.raises(UserError, match="'z' is not in the alphabet"):
        loaded[0].respond("az>")
    with pytest.raises(UserError, match="a prompt of 601 tokens .* together exceed the model's context of 512"):
        loaded[0].respond("a" * 600 + ">")
    for given, words in (({"prompt": ""}, "a prompt is empty"), ({"samples": 0}, "samples must be .*at least 1, not 0"),
                         ({"max_tokens": -3}, "max_tokens must be .*at least 0, not -3"),
                         ({"samples": 1.5}, "samples must be a whole number of at least 1, not 1.5"),
                         ({"prompt": 5}, "the prompt is 5; give a text, or a list of turns such as"),
                         ({"prompt": []}, "the prompt is ..; give a text"),
                         ({"prompt": [{"content": "ab>"}]}, "the prompt is .{'content': 'ab>'}.; give a text"),
                         ({"prompt": "a\ud800"}, "the prompt contains an unpaired surrogate")):
        with pytest.raises(UserError, match=words):
            loaded[0].respond(**{"prompt": "ab>"} | given)


# Catches: an evaluation with the generator of the rollout.
@pytest.mark.parametrize(("method", "settings", "looks"), [
    ("reinforce", {"reward": early}, {}), ("grpo", {"reward": early, "minibatches": 2}, {}),
    ("sft", {}, {"stop_accuracy": 1.0, "stop_every": 1})])
def test_evaluation_does_not_change_the_weights(method, settings, looks, beginner):
    seldom = train(method, beginner, lr=1e-2, **settings)
    often = train(method, beginner, lr=1e-2, **settings, **looks, held_out=64)
    assert torch.equal(weights(seldom), weights(often))
    assert seldom.progress["loss"] == often.progress["loss"]


# Catches: a policy that responds without the tool of its training task.
def test_policy_of_a_tool_task_uses_the_tool():
    result = llm.sft(batch=4, **TINY | SHAPE | {"task": "calculator:digits=1"})
    asked = make_task("calculator:digits=1").problems(1, np.random.default_rng(0))[0].prompt
    for policy in result.policy, llm.load(result.directory):
        assert policy.tool("[1*2+3]") == "=5;"
        policy.tool = lambda text: "]" if len(text) == 1 else ""
        written = [text for text in policy.respond(asked, 16) if len(text) > 1]
        assert written and all(text[1] == "]" for text in written)


# Catches: an initial policy whose name depends only on the name of the task's class or of the reward function.
@pytest.mark.long
def test_initial_policy_is_reused_only_for_its_task_and_reward():
    class Echo:
        name, max_tokens, alphabet, tool = "echo", 3, "ab", None

        def __init__(self, says):
            self.says = says

        def problems(self, n, rng, held_out=False):
            return [Problem("ab"[i] + "ab"[j]) for i, j in rng.integers(2, size=(n, 2))]

        def demonstration(self, problem, rng):
            return self.says

        def reward(self, problem, response):
            return float(response == self.says)

    own = {"prompts": 2, "samples": 2, **TINY, **SHAPE, "total_steps": 1}
    starts = [json.loads((llm.grpo(**own | {"task": task}, **more).directory / "config.json").read_text())["start"]
              for task, more in ((Echo("a"), {}), (Echo("b"), {}), (Echo("a"), {}),
                                 (REVERSE, {"reward": lambda p, r: 1.0}), (REVERSE, {"reward": lambda p, r: len(r)}))]
    assert len(set(starts)) == 4 and starts[0] == starts[2]


def test_value_warmup_as_long_as_the_run_is_refused(beginner):
    with pytest.raises(UserError, match="--value-warmup 4 leaves no updates for the policy, because"):
        train("vapo", beginner, value_warmup=4)


# Catches: room for the longest of a few prompts only; no room for the end token of a cut-off response.
def test_all_prompts_must_fit_into_the_context(beginner, tmp_path):
    prompts = [{"prompt": "a" * (500 if i == 77 else 2), "answer": f"{'abc'[i % 3]}"} for i in range(200)]
    prompts = [{**row, "prompt": row["prompt"] + "abcdefghij"[i // 20] + "abcdefghij"[i // 2 % 10] + "ab"[i % 2]}
               for i, row in enumerate(prompts)]
    with pytest.raises(UserError, match="a prompt of 503 tokens and a response of 16 together exceed"):
        llm.grpo(prompts, model=beginner, **{k: v for k, v in TINY.items() if k != "task"}, max_tokens=16)
    with pytest.raises(UserError, match="a response of 510 together exceed the model's context of 512"):
        train("reward_model", beginner, max_tokens=509, reward=early)
    assert not (tmp_path / "runs").exists()


# Catches: a micro-batch whose gradient or loss replaces that of the one before; micro-batches with equal weights in the
# diagnostics.
@pytest.mark.long("dapo-settings2")
@pytest.mark.parametrize(("method", "settings"), [
    ("sft", {}), ("reinforce_pp", {"kl_coef": 0.1}), ("dapo", {"epochs": 2, "minibatches": 2}),
    ("best_of_n", {})])
def test_micro_batches_and_gradient_checkpointing_change_only_memory(method, settings, beginner):
    whole = train(method, beginner, reward=early, **settings)
    less = {"gradient_checkpointing": True}
    for saving in {"micro_batch": 3}, less, {"micro_batch": 5} | less:
        pieces = train(method, beginner, reward=early, **saving, **settings)
        torch.testing.assert_close(weights(pieces), weights(whole), atol=1e-5, rtol=0)
        for name in "loss", "entropy", "grad_norm", "ratio_max":
            np.testing.assert_allclose(pieces.progress[name], whole.progress[name], atol=1e-5, rtol=1e-4)


# Warnings.

WELL = {"reward": 0.4, "zero_variance": 0.3, "cut_off": 0.0, "loss": 0.2, "clip_fraction": 0.0, "grad_norm": 0.5,
        "entropy": 0.8, "held_out_accuracy": 0.4, "kl_to_initial": 0.1}
SAID = {                                # a row with a warning, words of it, and a row just within the limit
    "little contrast": ({"zero_variance": 0.85}, "most groups .* have zero variance: .* (85% now); start from a ",
                        {"zero_variance": 0.8}),
    "no bonus": ({"zero_variance": 0.85, "bonus_std": 0.0}, "start from a", {"zero_variance": 0.85, "bonus_std": 0.1}),
    "nearly solved": ({"zero_variance": 0.85, "reward": 0.9}, "the task is nearly solved, or you need harder prompts",
                      {"zero_variance": math.nan, "reward": 0.9}),
    "cut off": ({"cut_off": 0.3}, "30% of responses are cut off at 7 tokens .* raise --max-tokens", {"cut_off": 0.25}),
    "long demonstrations": ({"cut_off": 0.3, "reward": math.nan}, "30% of demonstrations are longer than 7 tokens",
                            {"cut_off": 0.25, "reward": math.nan}),
    "no winners": ({"winners": 0.0}, "no response reached --keep, .* start from a better policy", {"winners": 0.1}),
    "loss of 0": ({"loss": -1e-9}, "the loss is 0, and this is normal here", {"loss": -1e-9, "grad_norm": 0.0}),
    "loss of 0, clipped": ({"loss": 1e-4}, "advantages have mean 0", {"loss": 1e-4, "clip_fraction": math.nan}),
    "loss": ({"loss": 9e-4}, "watch the reward", {"loss": 1.1e-3}),
    "negative loss": ({"loss": -9e-4}, "watch the reward", {"loss": -1.1e-3}),
    "collapsed": ({"entropy": 0.01}, "entropy is 0.010 nats", {"entropy": 0.01, "held_out_accuracy": 0.95}),
    "entropy": ({"entropy": 0.019}, "a lower --lr", {"entropy": 0.02}),
    "outvoted": ({"reward_majority_right": 0.31}, "right for only 31% of the prompts, so `vote:` rewards a wrong",
                 {"reward_majority_right": 0.5}),
    "collapsed policy": ({"zero_variance": 1.0, "kl_to_initial": 3.8}, "a lower --lr or a larger --warmup",
                         {"kl_to_initial": 3.8}),
    "far": ({"kl_to_initial": 12.3}, "initial policy is 12 nats per token", {"kl_to_initial": 10.0})}


# Catches: each comparison with its limit included or excluded by mistake; a limit on the loss without the absolute
# value, without the gradient, or for all methods; a limit on the entropy without the accuracy.
@pytest.mark.parametrize("case", SAID)
def test_diagnose_warns_only_beyond_its_limits(case):
    wrong, words, right = SAID[case]
    (sentence,) = diagnose({**WELL, **wrong}, 7)
    assert re.search(words.replace("(", r"\(").replace(")", r"\)"), sentence)
    assert diagnose({**WELL, **right}, 7) == []


# If rewards have no maximum, a reward of 1 has no special meaning, and neither has the share of responses that reach
# it. Catches: a measure that is ignored.
def test_warnings_for_graded_tasks_assume_no_largest_reward():
    row = {**WELL, "reward": 3.0, "held_out_accuracy": 1.0, "zero_variance": 0.9, "cut_off": 0.4, "entropy": 0.001}
    contrast, cut_off, entropy = diagnose(row, 7, "held_out_reward")
    assert "solved" not in contrast and "raise --temperature" in contrast
    assert "rarely get" not in cut_off and "raise --max-tokens" in cut_off
    assert "a lower --lr" in entropy and not [s for s in diagnose(row, 7) if "entropy" in s]
    assert "nearly solved" in diagnose(row, 7)[0]


# Catches: a run that does not pass its measure on.
def test_run_on_a_graded_task_prints_the_warnings_for_it(beginner, capsys):
    train("grpo", beginner, task="taste:letters=10,length=2", quiet=False)
    assert "of responses are cut off at 4 tokens and are scored although they are unfinished" in capsys.readouterr().out


# Catches: `not ... <= CUT_OFF`, which is true for NaN.
def test_numbers_that_a_method_lacks_give_no_warning():
    assert diagnose({**dict.fromkeys(WELL, math.nan), "held_out_accuracy": 0.1}, 7) == []


# Catches: a comparison of warnings with their numbers, which differ in every row; a checkpoint without `said`.
def test_warning_is_printed_once(beginner, capsys):
    result = train("grpo", beginner, total_steps=20, lr=1e-9, quiet=False)
    said = capsys.readouterr().out
    assert len(set(result.progress["cut_off"])) > 2 and min(result.progress["cut_off"]) > 0.25
    assert said.count("of responses are cut off at 3 tokens") == 1
    state = load_checkpoint(result.directory / "checkpoint.pt")
    assert [s for s in state["subject"]["said"] if "cut off" in s]


# Tasks and rewards that are Python objects.

class Vowels:
    """A task of the user: write vowels."""

    name, alphabet, max_tokens, tool = "vowels", "abcdefghij>", 3, None

    def problems(self, n, rng, held_out=False):
        return [Problem(f"{'a' if held_out else 'b'}{letter}>") for letter in rng.choice(list("cdefg"), n)]

    def demonstration(self, problem, rng):
        return "ae"

    def reward(self, problem, response):
        return sum(letter in "aei" for letter in response) / 2


# Catches: a resume of a task of which config.json has only the name; `load` without the longest response of the task.
def test_task_can_be_an_object(cli, beginner, curve):
    result = train("grpo", beginner, task=Vowels())
    assert result.directory.as_posix() == "runs/llm-grpo_vowels_1/llm-grpo_vowels_1_s1"
    assert read_json(result.directory / "config.json")["config"]["task"] == {"callable": "Vowels"}
    assert max(result.progress["reward_std"]) > 0
    whole = curve(result.directory)
    (result.directory / "result.json").unlink()                           # as if it had been killed
    assert train("grpo", beginner, task=Vowels(), resume=result.directory).status == "finished"
    assert curve(result.directory) == whole
    (result.directory / "result.json").unlink()
    where = result.directory.as_posix()
    refused = {"resume": f"llm.grpo(Vowels, resume='{where}')", "watch": f"llm.load('{where}')",
               "eval": f"llm.load('{where}')"}
    for command, words in refused.items():
        done = cli(command, where)
        assert done.code == 2 and words in done.err and done.err.count("\n") == 1
    assert llm.load(where).respond("bc>", greedy=True) == result.policy.respond("bc>", greedy=True)
    assert train("sft", beginner, task=Vowels(), total_steps=3).status == "finished"


# Catches: "held-out" numbers of a task that ignores held_out, without a warning.
@pytest.mark.parametrize("ignores", [True, False])
def test_own_task_that_trains_on_held_out_problems_is_named(beginner, capsys, ignores):
    class Task(Vowels):
        def problems(self, n, rng, held_out=False):
            return super().problems(n, rng, held_out and not ignores)

    train("sft", beginner, task=Task(), total_steps=1, quiet=False, held_out=8)
    said = capsys.readouterr().out
    assert ("training problems are held-out problems too" in said and "with held_out=True" in said) == ignores


# The whole list is in config.json, so a resume needs nothing else. Catches: a list that is loaded as something else; a
# plot that needs its name.
@pytest.mark.long
def test_task_can_be_a_list_of_prompts(cli, curve, full_runs):
    prompts = [{"prompt": f"{a}{b}>", "answer": b + a} for a in "abcd" for b in "abcd"]
    result = llm.sft(**{**TINY, **SHAPE, "task": prompts, "batch": 8, "exp_name": "x"})
    where, whole = result.directory, curve(result.directory)
    assert (where / "curve.png").exists() and read_json(where / "config.json")["config"]["task"] == prompts
    assert re.search(r"^x +list of prompts +1 +4 +held-out accuracy ", cli("plot", where).out, re.M)
    assert re.match(r"[a-d]{2}>   answer '[a-d]{2}'\n  reward ", cli("watch", where).out)
    assert json.loads(cli("eval", where, "--episodes", 2, "--json").out)["problems"] == 1    # no other is held out
    for name in "result.json", "checkpoint.pt":                           # as if it had been killed early
        (where / name).unlink()
    assert cli("resume", where).code == 0 and curve(where) == whole


# Catches: a traceback of JSON in the middle of a training run.
@pytest.mark.long
def test_list_that_json_cannot_hold_is_recorded_by_type_and_path_as_text(cli, tmp_path):
    prompts = [{"prompt": f"{a}{b}>", "answer": b + a, "seen": {1}} for a in "abcd" for b in "abcd"]
    settings = {**TINY, **SHAPE, "batch": 8}
    listed = llm.sft(**{**settings, "task": prompts}).directory
    assert read_json(listed / "config.json")["config"]["task"] == {"callable": "list"}
    (listed / "result.json").unlink()
    done = cli("resume", listed)
    assert done.code == 2 and f"llm.sft(list, resume='{listed}')" in done.err
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(f'{{"prompt": "{p["prompt"]}", "answer": "{p["answer"]}"}}\n' for p in prompts))
    told = llm.sft(**{**settings, "task": file}).directory
    assert read_json(told / "config.json")["config"]["task"] == str(file)
    assert json.loads(cli("eval", told, "--json").out)["task"] == "mine"


# Catches: a run that resumes with other prompts or with another reward.
@pytest.mark.parametrize("changed", ["prompts.jsonl", "judge.py"])
def test_resume_refuses_changed_files_of_the_task_or_its_reward(changed, beginner, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("prompts.jsonl").write_text("".join(json.dumps({"prompt": f"{a}{b}>", "answer": "a"}) + "\n"
                                             for a in "abcde" for b in "abcdefg"))
    Path("judge.py").write_text("def f(prompt, response):\n    return float(len(response) > 1)\n")
    given = TINY | {"model": beginner, "task": "prompts.jsonl", "reward": "judge.py:f", "exp_name": "x"}
    run = llm.grpo(**given | {"total_steps": 2}).directory
    before = Path(changed).read_text()
    Path(changed).write_text(before.replace('"a"', '"b"').replace("> 1", "> 2"))
    with pytest.raises(UserError, match=f"^{changed} has changed since this run began; restore it"):
        llm.grpo(**given | {"total_steps": 4}, resume=run)
    Path(changed).write_text(before)
    assert llm.grpo(**given | {"total_steps": 4}, resume=run).status == "finished"


# Catches: a function that is recorded as the task.
def test_reward_can_be_a_function(cli, beginner):
    seen = []

    def vowels(prompt, response):
        seen.append((prompt, response))
        return len(seen) % 3 == 0

    result = train("rloo", beginner, reward=vowels)
    few = len({prompt for prompt, _ in seen if is_held_out(prompt)})
    assert len(seen) == 4 * (16 + 8 // few * few + few)                   # samples, and both held-out kinds
    assert all(re.fullmatch("[a-j]{2}>", prompt) and set(response) <= set("abcdefghij>") for prompt, response in seen)
    config = read_json(result.directory / "config.json")["config"]
    assert config["task"] == REVERSE and config["reward"] == {"callable": "vowels"}
    (result.directory / "result.json").unlink()
    done = cli("resume", result.directory)
    assert done.code == 2 and f"llm.rloo(reward=vowels, resume='{result.directory}')" in done.err
    assert train("rloo", beginner, reward=vowels, resume=result.directory).status == "finished"


# Catches: a missing `check_finite` in `backward`.
def test_non_finite_number_stops_the_run_and_is_named(beginner):
    said = r"(loss|entropy|model.embed.weight) became NaN between steps . and .; .* try a smaller --lr"
    with pytest.raises(NonFiniteError, match=said):
        train("sft", beginner, lr=1e30, warmup=0)
    (directory,) = Path("runs").glob("*/*")
    assert json.loads((directory / "result.json").read_text())["status"] == "failed"


# Catches: a layer or a copy of another data type; moments in bf16, which lose small steps; a saved model that is loaded
# in bf16; a recorded step that reads the weights or the cache at an old address.
@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_in_bf16(method, beginner, recorded):
    settings = {"reward": early, "lr": 0.01, "warmup": 0, "anneal": False, "total_steps": 2}
    half = train(method, beginner, dtype="bfloat16", **settings)
    assert math.isnan(half.progress["loss"][-1]) == ("loss" in suite_of(method)["lacking"])
    assert half.progress["grad_norm"][-1] > 0
    assert {p.dtype for p in half.policy.model.parameters()} == {torch.bfloat16}
    assert {p.dtype for p in llm.load(half.directory).model.parameters()} == {torch.float32}
    parts = load_checkpoint(half.directory / "checkpoint.pt")["parts"]
    optimizers = {name: part for name, part in parts.items() if "first" in part}
    assert optimizers and all(part[name].dtype == torch.float32 for part in optimizers.values()
                              for name in ("first", "second"))
    half_weights = [part for name, part in optimizers.items() if name != "learner"]   # a predictor is always fp32
    assert half_weights and all(part["master"].dtype == torch.float32 for part in half_weights)
    if method == "grpo":
        begun = load_checkpoint(Path(beginner) / "checkpoint.pt")["parts"]["model"]
        begun = torch.cat([begun[name].flatten() for name in sorted(begun)])
        moved = [weights(result).float() - begun for result in (half, train(method, beginner, **settings))]
        assert torch.cosine_similarity(*moved, 0) > 0.5
