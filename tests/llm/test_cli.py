"""`spinup llm ...`: a wrong command gives one sentence before any file is created; a correct command works."""
import io
import json
import math
import re
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import numpy as np
import pytest
import torch

import llm
from llm.bench.pictures.names import picture_names
from llm.config import LanguageConfig
from llm.evaluate import of_accuracy, of_pairs
from llm.tasks.names import task_names
from llm.tasks.task import Problem, is_held_out
from llm.tasks.taste import Taste
from spinup.registry import algorithms
from spinup.runs.config import Range, comments, settings_of, types_of
from spinup.runs.convert import flag
from spinup.runs.files import read_json, write_json
from spinup.view.statistics import mean_interval

RUN = Path("runs/x/x_s1")
REVERSE = ["--task", "reverse:length=2,symbols=10"]
WORDS = [*REVERSE, "--prompts", 4, "--samples", 4, "--held-out", 8, "--threads", 1, "--no-tensorboard", "--preset",
         "none", "--quiet", "--total-steps", 2]
NEEDS = {"lora": {"model": "a"}, "lora_alpha": {"lora": 8, "model": "a"}, "max_weight": {"lag": 1},
         "engine_timeout": {"engine": "http://a:1"}, "kl_target": {"kl_coef": 0.1}, "ptx_task": {"ptx_coef": 1.0},
         "workers": {"pairs": 256}, "perturbations": {"samples": 30},
         "rivals": {"games": 512}, "samples": {"data": 65_536}, "penalty": {"loss": "dpop"}, "alpha": {"loss": "tdpo"},
         "margin": {"loss": "simpo"}, "step": {"loss": "step_dpo"}, "tau_pos": {"loss": "gate"},
         "tau_neg": {"loss": "gate"}, "memory": {"baseline": "mean"}}      # other settings that a setting requires
ALL = algorithms("llm")
METHODS = {name: algorithm.module for name, algorithm in ALL.items()}
FAMILIES = {path: next(m for m in METHODS if METHODS[m] == path) for path in METHODS.values()}

QWEN = {"architectures": ["Qwen2ForCausalLM"], "vocab_size": 50, "hidden_size": 32, "intermediate_size": 40,
        "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64, "rms_norm_eps": 1e-6}
SCORES = '''
def one(prompt, response):
    return 1

def half(prompt, response):
    return 1 if response[:1] in "abcde" else 0.5

def fails(prompt, response):
    return {}[response]

def text(prompt, response):
    return "good"

def huge(prompt, response):
    return 1e300

def leaves(prompt, response):
    raise SystemExit(3)

def alone(response):
    return 1

nothing = 3
'''
FILES = {
    "score.py": SCORES, "broken.py": "import nosuchmodule\n", "file": "", "key.toml": "promts = 3\n",
    "two.jsonl": '{"prompt": "a>", "answer": "b"}\n{"prompt": "b>", "answer": "a"}\n',
    "cut.jsonl": '{"prompt": "a>", "answer": "b"}\n{"prompt": "b>", "ans\n', "list.jsonl": '["a>", "b"]\n',
    "open.jsonl": '{"prompt": "a>"}\n{"prompt": "b>"}\n', "one.jsonl": '{"prompt": "a>", "answer": "b"}\n',
    "many.jsonl": '{"prompt": "a>", "answer": ["b", "c"]}\n',
    "long.jsonl": "".join(json.dumps({"prompt": letter * 600, "answer": "a"}) + "\n" for letter in "ab"),
    "gpt/config.json": '{"architectures": ["GPT2LMHeadModel"]}', "bare/config.json": json.dumps(QWEN),
    "cut/config.json": '{"architectures": ', "empty/readme.txt": "",
    "classic/config.json": '{"algorithm": "ppo", "config": {"env": "CartPole-v1"}}', "classic/checkpoint.pt": "x"}
WRONG = {                                                                 # the command, and words of its message
    "method": ("llm grp", "there is no method 'grp'. Did you mean 'grpo'? `spinup llm` lists them"),
    "method of the other family": ("llm decision_transformer",
                                   "is not a method for language models; type: spinup decision_transformer"),
    "method with swapped letters": ("llm gpro", "Did you mean 'grpo'?"),
    "method of no likeness": ("llm xyzzy", "there is no method 'xyzzy'. `spinup llm`"),
    "method without llm": ("dr_grpo --lr 1", "dr_grpo is a method for language models; type: spinup llm dr_grpo"),
    "task": ("llm grpo --task revers", "no task 'revers'. Did you mean 'reverse'? A task is addition, "),
    "task of imitation": ("llm sft --task adition", "no task 'adition'. Did you mean 'addition'?"),
    "option": ("llm grpo --task reverse:lenght=8", "the task reverse has no option 'lenght'. Did you mean 'length'?"),
    "option's value": ("llm grpo --task reverse:length=x",
                       "in the task reverse, length must be a whole number, not 'x'"),
    "option's range": ("llm grpo --task sort:symbols=27", "in the task sort, symbols must be from 2 to 26, not 27"),
    "option alone": ("llm grpo --task reverse:length", "write options as name=value"),
    "preset": ("llm dapo --preset reverse-dapo", "no preset 'reverse-dapo'; choose from auto, none, "),
    "flag": ("llm rloo --promts 3", "spinup llm rloo has no flag --promts. Did you mean '--prompts'?"),
    "flag of another": ("llm sft --samples 3", "spinup llm sft has no flag --samples."),
    "config key": ("llm grpo --config key.toml", "there is no setting 'promts'. Did you mean 'prompts'?"),
    "choice": ("llm grpo --advantage grup", "--advantage must be one of group, mean, batch, not 'grup'. Did you mean "
                                            "'group'?"),
    "truth": ("llm grpo --anneal perhaps", "--anneal must be true or false, not 'perhaps'"),
    "stray word": ("llm grpo reverse", "spinup llm grpo does not know what to do with 'reverse'"),
    "margin": ("llm dpo --margin 1", "--margin has no effect with --loss dpo; leave it out, or choose --loss simpo"),
    "expectile": ("llm dqn --target greedy --expectile 0.9", "--expectile has no effect with --target greedy"),
    "memory": ("llm rloo --memory 0.5", "--memory has no effect with --baseline others; leave it out, or choose"),
    "heads": ("llm grpo --heads 3", "--heads 3 must divide --width 64 into heads of even size; choose --heads 4"),
    "heads of imitation": ("llm sft --heads 4 --width 68", "--heads 4 must divide --width 68 into heads of even size"),
    "group of one": ("llm grpo --samples 1", "--samples 1 gives only one; choose 2 or more"),
    "group of one of another": ("llm dapo --samples 1", "--samples 1 gives only one; choose 2 or more"),
    "no others": ("llm rloo --samples 1", "the other responses to the prompt, and --samples 1 gives none; choose 2 or"),
    "one response": ("llm online_dpo --samples 1", "--samples 1 gives only one; choose 2 or more, or 0 for"),
    "minibatches": ("llm grpo --prompts 2 --samples 4 --minibatches 9",
                    "--minibatches 9 is more than the responses per update, --prompts 2 x --samples 4 = 8; choose at "
                    "most 8"),
    "step": ("llm step_dpo --step zz", "no token of this tokenizer contains --step 'zz'; choose a shorter one"),
    "step of a model": ("llm step_dpo --step zz --model {model}", "no token of this tokenizer contains --step 'zz'"),
    "buffer": ("llm grpo --overlong 600", "together exceed the model's context of 512; choose a smaller --overlong or"),
    "buffer of a model": ("llm grpo --overlong 600 --model {model}", "choose a smaller --overlong or"),
    "text": ("llm grpo --task open.jsonl --reward score.py:one",
             "there is no demonstration to imitate for 'a>'; give each prompt a text as its \"demonstration\", or"),
    "task without its file": ("llm grpo --task gsm8k", "the task gsm8k needs a file"),
    "model": ("llm grpo --model nowhere", "nowhere is not a folder; give one that holds a config.json"),
    "model with a typing error": ("llm grpo --model smollm", "there is no model smollm. Did you mean 'smollm2'?"),
    "model of the hub": ("llm grpo --model Qwen/Qwen2.5-0.5B", "fetch it with `hf download Qwen/Qwen2.5-0.5B"),
    "model a file": ("llm grpo --model file", "file is not a folder"),
    "model of nothing": ("llm grpo --model empty", "empty holds no config.json; fetch the whole folder of the model"),
    "model without weights": ("llm grpo --model bare", "bare holds no model.safetensors"),
    "model of another family": ("llm grpo --model gpt", "(GPT2LMHeadModel); choose a model with LlamaForCausalLM, "),
    "model damaged": ("llm grpo --model cut", "cut/config.json is damaged; fetch it again"),
    "model of the classic side": ("llm grpo --model classic", "classic is a run of ppo, which has no language model"),
    "model of another alphabet": ("llm rloo --model {model} --task addition", "is not in the alphabet 'abcdefghij>'"),
    "long prompt": ("llm grpo --task long.jsonl", "a prompt of 600 tokens and a response of 256 together exceed the "
                                                  "model's context of 512; choose a smaller --max-tokens"),
    "long prompt of imitation": ("llm sft --task long.jsonl", "a prompt of 600 tokens"),
    "long response": ("llm grpo --model {model} --max-tokens 600", "a response of 600 together exceed"),
    "reward's form": ("llm grpo --reward one", "--reward must be file.py:function, or one of exact, math,"),
    "reward's file": ("llm grpo --reward nowhere.py:one", "--reward nowhere.py:one: there is no file nowhere.py"),
    "reward's name": ("llm grpo --reward score.py:fail", "no 'fail' in score.py. Did you mean 'fails'?"),
    "reward a number": ("llm grpo --reward score.py:nothing", "nothing is not a function"),
    "reward broken": ("llm grpo --reward broken.py:one", "broken.py cannot be imported: ModuleNotFoundError"),
    "reward of one": ("llm grpo --reward score.py:alone",
                      "--reward score.py:alone takes (response); write it as a function of (prompt, response)"),
    "answers": ("llm grpo --task many.jsonl", 'many.jsonl, line 1 has an "answer" that is not a text or a finite num'),
    "prompts missing": ("llm grpo --task nowhere.jsonl", "nowhere.jsonl cannot be read (no such file or directory)"),
    "prompts cut": ("llm grpo --task cut.jsonl", "cut.jsonl, line 2 is not JSON"),
    "prompts a list": ("llm grpo --task list.jsonl", "list.jsonl, line 1 is not a JSON object"),
    "prompts too few": ("llm grpo --task one.jsonl", "must contain at least two different prompts"),
    "no answers": ("llm grpo --task open.jsonl", 'line 1 has no "answer" to compare with'),
    "device": ("llm sft --device cuda:99", "there is no device 'cuda:99' here"),
    "log dir": ("llm sft --log-dir file", "--log-dir file cannot be written to"),
    "name a path": ("llm sft --exp-name a/b", "--exp-name must be the name of a folder, not 'a/b'"),
    "wandb": ("llm sft --wandb", "pip install wandb"),
    "grid method": ("grid llm dr_gpo --seed 1 2", "Did you mean 'dr_grpo'?"),
    "grid task": ("grid llm grpo --task revers --seed 1 2", "no task 'revers'. Did you mean 'reverse'?"),
    "grid heads": ("grid llm grpo --heads 3 4", "--heads 3 must divide --width 64"),
    "chat": ("llm chat", "the following arguments are required: DIR; see `spinup llm chat --help`"),
    "chat nowhere": ("llm chat nowhere", "nowhere is not a folder"),
    "chat with an agent": ("llm chat classic", "classic is a run of ppo, which has no language model"),
    "eval of an agent": ("llm eval classic --task reverse", "classic is a run of ppo, which has no language model"),
    "eval without a task": ("llm eval {model}", "the following arguments are required: --task"),
    "eval on another alphabet": ("llm eval {model} --task addition", "is not in the alphabet 'abcdefghij>'"),
    "no reward model": ("llm ppo --task reverse --reward runs/judge", "--reward runs/judge does not exist; train a"),
    "reward in a text": ("llm ppo --task reverse --reward empty/readme.txt", "--reward must be file.py:function"),
    "training on questions": ("llm grpo --model {model} --task general", "type `spinup llm eval DIR --task general`"),
    "export of an agent": ("llm export classic out", "classic is a run of ppo, which has no language model"),
    "picture": ("llm picture beyond", "invalid choice: 'beyond'"),
    "picture's file": ("llm picture beyond-imitation --out nowhere/x.png", "--out nowhere/x.png cannot be written"),
    "GIF": ("watch {model} --gif x.gif", "a language model has no frames to show; leave out --gif"),
    "grid alone": ("grid llm", "spinup grid llm needs a method, as in: spinup grid llm grpo --seed 1 2; `spinup llm`"),
    "grid without a method": ("grid llm --seed 1 2", "spinup grid llm needs a method"),
    "eval drawing": ("eval {model} --stochastic", "always sampled; leave out --stochastic (`spinup llm chat DIR"),
    "watch drawing": ("watch {model} --stochastic", "always sampled; leave out --stochastic"),
    "problems": ("eval {model} --episodes 0", "--episodes must be from 1 to 100000, not 0"),
    "too many problems": ("llm eval {model} --task reverse --episodes 1000000000",
                          "must be from 1 to 100000, not 1000000000")}


@pytest.fixture
def files(tmp_path) -> None:
    """Write FILES into the folder of the test."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)


def check_refused(done, words: str) -> None:
    assert done.code == 2
    assert done.err.startswith("spinup: ") and done.err.count("\n") == 1 and done.err.endswith("\n")
    assert words in done.err


# Catches: a check after the folder of the run is created; an error from torch in place of one sentence.
@pytest.mark.parametrize("case", WRONG)
def test_mistake_gives_one_sentence_and_creates_no_file(case, cli, files, tree, beginner, monkeypatch, recwarn):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    typed, words = WRONG[case]
    before = tree()
    check_refused(cli(*typed.format(model=beginner).split()), words)
    assert tree() == before and not [w for w in recwarn if issubclass(w.category, UserWarning)]


# A reward function can fail only after a response is sampled. Catches: the response shown as the prompt.
@pytest.mark.parametrize(("name", "words"), [
    ("fails", r"the reward function failed for the prompt '[a-j]{2}>' and the response '[a-j>]*': KeyError: '[a-j>]*' "
              r"\(.*score.py, line 9\)"),
    ("huge", r"the reward function returned 1e\+300, but float32 holds at most 3e\+38; divide its results"),
    ("text", r"the reward function must return a finite number, but returned 'good' for the prompt '[a-j]{2}>' and the "
             r"response '[a-j>]*'"),
    ("leaves", r"the reward function failed for the prompt '[a-j]{2}>' and the response '[a-j>]*': SystemExit: 3 "
               r"\(.*score.py, line 18\)")])
def test_error_of_a_reward_function_shows_its_arguments(name, words, cli, files, beginner, tmp_path):
    done = cli("llm", "grpo", *WORDS, "--model", beginner, "--reward", f"score.py:{name}", "--exp-name", "x")
    assert done.code == 2 and re.fullmatch(f"spinup: {words}\n", done.err)
    assert read_json(tmp_path / RUN / "result.json")["status"] == "failed"


def limits_of(hint: Any) -> list[Range] | None:
    """The ranges of a numeric type; None for any other type."""
    if get_origin(hint) is Annotated:
        return list(get_args(hint)[1:])
    return [] if hint in (int, float) else None


# Catches: a field without a comment, or with its name as the comment; a number without a range, or with a range that is
# not enforced; a range that includes its open end.
@pytest.mark.parametrize("path", FAMILIES)
def test_every_setting_has_a_comment_and_an_enforced_range(path, cli, tree):
    config, method = import_module(path).Config, FAMILIES[path]
    hints, reasons = types_of(config), comments(config)
    assert issubclass(config, LanguageConfig) and set(hints) == set(reasons) == {*settings_of(config)}
    for field, hint in hints.items():
        assert len(reasons[field].split()) >= 4 and reasons[field].lower() != field.replace("_", " ")
        if get_origin(hint) is Literal:
            check_refused(cli("llm", method, flag(field), "zzz"), f"{flag(field)} must be one of")
        if (ranges := limits_of(hint)) is not None:
            (limit,) = ranges
            below = [limit.low - 1, *([limit.low] if limit.open_low else [])]
            for value in [*below, *([limit.high + 1] if limit.high < 2**53 else []), math.nan, math.inf, "much"]:
                check_refused(cli("llm", method, f"{flag(field)}={value}"), f"{flag(field)} must be ")
            needed = {name: x for name, x in NEEDS.get(field, {}).items() if name in hints}
            config(**{**needed, field: limit.high if limit.high < 2**53 else limit.low + 2})
    assert tree() == []


# Catches: a help text without the tasks.
def test_help_names_every_method_task_and_picture(cli):
    helps = [cli("llm", *words) for words in ([], ["-h"], ["--help"], ["help"])]
    assert len({done.out for done in helps}) == 1 and all(done.code == 0 and done.err == "" for done in helps)
    said = re.split(r"[\s,;`.]+", helps[0].out)
    assert {*METHODS, *task_names(), *picture_names(), "chat", "eval", "export", "grid"} <= set(said)
    assert "spinup llm METHOD" in cli("--help").out


# Catches: the defaults of the method's file in place of those of the variant.
@pytest.mark.parametrize("method", METHODS)
def test_help_of_a_method_explains_every_setting(method, cli, tree):
    done = cli("llm", method, "--help")
    module = ALL[method].load()
    assert done.code == 0 and done.out.startswith(f"usage: spinup llm {method} ") and done.err == ""
    said = " ".join(done.out.split())
    for field, comment in comments(module.Config).items():
        assert f"{flag(field)} " in said and " ".join(comment.split()) in said, field
        default = ALL[method].settings.get(field, getattr(module.Config, field))
        pretrained = "".join(f"; {table[field]} for pretrained models" for table in ALL[method].defaults.values()
                             if field in table)
        default = ",".join(map(str, default)) if isinstance(default, tuple) else default
        words = f"{'none' if default is None else default}{pretrained}"
        shown = re.escape(" ".join(comment.split())) + rf"[^\[\]]*\. \[{re.escape(words)}\]"
        assert default == "" or re.search(shown, said), field
    assert tree() == []


# Catches: a usage line without `llm`.
@pytest.mark.parametrize("command", ["chat", "eval", "export", "picture", "diagnose"])
def test_other_commands_have_a_help_text(command, cli):
    done = cli("llm", command, "--help")
    assert done.code == 0 and done.out.startswith(f"usage: spinup llm {command}") and done.err == ""


# Catches: the title of a file that is printed once for each of its methods.
def test_algos_lists_every_method_once(cli):
    titles = [line for line in cli("algos").out.splitlines() if line.startswith("llm ")]
    listed = [name for title in titles for name in title[4:].split("  ")[0].split(" | ")]
    assert sorted(listed) == sorted(METHODS)


# Settings.

# Catches: settings of the file that override the flags; missing settings of the variant.
def test_flags_override_the_config_file_and_settings_of_the_variant_apply(cli, files, beginner, tmp_path):
    (tmp_path / "mine.toml").write_text("lr = 2e-3\nminibatches = 3\n")
    assert cli("llm", "dapo", *WORDS, "--preset", "auto", "--model", beginner, "--config", "mine.toml", "--lr", 1e-3,
               "--exp-name", "x").code == 0
    config = read_json(tmp_path / RUN / "config.json")["config"]
    assert (config["lr"], config["minibatches"], config["clip_high"], config["average"]) == (1e-3, 3, 0.28, "token")
    assert config["reward"] == "" and config["task"] == "reverse:length=2,symbols=10"


# Catches: the preset of the task in place of the preset of the task and the method.
def test_first_line_of_the_output_names_the_preset(cli, beginner):
    words = [w for w in WORDS[:-3] if w not in ("--preset", "none", "--quiet")]
    words += ["--total-steps", 1, "--warmup", 0, "--model", beginner]
    for method in "dapo", "grpo":
        presets = ALL[method].presets
        fitting = [name for name in (f"reverse {method}", "reverse") if name in presets]     # most specific first
        assert cli("llm", method, *words).out.startswith(f"preset: {fitting[0]}\n")
    assert cli("llm", "rloo", *words, "--preset", "none").out.startswith("preset: none; the defaults apply\n")


# Catches: a size of the small model beside --model, or a warmup longer than the run, without a warning.
def test_first_line_of_the_output_names_settings_that_do_less_than_expected(cli, beginner):
    words = [w for w in WORDS if w != "--quiet"]
    assert cli("llm", "rloo", *words, "--model", beginner, "--width", 8).out.startswith(
        "preset: none; the defaults apply; --width has no effect with --model; --warmup 50 is more than "
        "--total-steps 2, so the learning rate does not reach --lr\n")
    assert "; --warmup 3 is more than --total-steps 4 minus --value-warmup 2, so" in cli(
        "llm", "ppo", *words, "--model", beginner, "--total-steps", 4, "--value-warmup", 2, "--warmup", 3).out


# A run without a name gets a new number. A run with the name of an existing run is refused. Catches: a missing refusal.
def test_unnamed_runs_are_numbered_and_an_existing_name_is_refused(cli, beginner, tree):
    for number in (1, 2):
        assert cli("llm", "rloo", *WORDS, "--model", beginner).code == 0
        assert f"runs/llm-rloo_reverse_{number}/llm-rloo_reverse_{number}_s1/result.json" in tree()
    assert cli("llm", "rloo", *WORDS, "--model", beginner, "--exp-name", "x").code == 0
    before = tree()
    check_refused(cli("llm", "rloo", *WORDS, "--model", beginner, "--exp-name", "x"),
                  f"{RUN} exists; type `spinup resume {RUN}` to resume it")
    assert tree() == before


# Commands on existing runs.

@pytest.fixture
def run(cli, files, beginner) -> str:
    """A finished run. Its reward function, in a file, returns 1 for every response."""
    assert cli("llm", "rloo", *WORDS, "--model", beginner, "--reward", "score.py:one", "--exp-name", "x").code == 0
    return str(RUN)


# Catches: prompts that are not held out; the reward in place of the advantage.
def test_watch_shows_sampled_responses_to_held_out_prompts(run, cli):
    shown = cli("watch", run, "--episodes", 3).out.splitlines()
    assert len(shown) == 3 * 9
    for i in range(0, 27, 9):
        prompt, answer = re.fullmatch(r"([a-j]{2}>)   answer '([a-j]{2})'", shown[i]).groups()
        assert is_held_out(prompt) and answer == prompt[1::-1]
        form = re.compile(r"  reward  1\.00  advantage \+0\.00  ([a-j>]{0,3})")
        assert len({form.fullmatch(line)[1] for line in shown[i + 1:i + 9]}) > 3
    assert cli("watch", run, "--episodes", 3).out.splitlines() == shown
    assert cli("watch", run, "--episodes", 3, "--seed", 1).out.splitlines() != shown


# The task has nine held-out prompts. Catches: a prompt that counts twice; `>` in place of `>=`; the task's own verifier
# in place of the run's reward; the mean of 8 rewards in place of the best of 8.
def test_eval_reports_the_share_of_held_out_problems_solved(run, cli, beginner):
    found = json.loads(cli("eval", run, "--json", "--episodes", 20).out)
    assert found == {"directory": run, "task": "reverse", "problems": 9, "held_out_accuracy": 1.0,
                     "interval": [1.0, 1.0], "held_out_greedy": 1.0, "pass@8": 1.0, "reward": 1.0}
    assert cli("eval", run, "--episodes", 20).out == (
        f"{run}: 1.000 of held-out problems solved (95 % interval 1.000 to 1.000), with 8 responses to each of 9; "
        "greedy 1.000; solved at least once in 8: 1.000\n")
    assert cli("llm", "rloo", *WORDS, "--model", beginner, "--reward", "score.py:half", "--exp-name", "y").code == 0
    half = json.loads(cli("eval", "runs/y", "--json", "--episodes", 40).out)
    (low, high), accuracy = half["interval"], half["held_out_accuracy"]
    assert 0.1 < low < accuracy < high < half["pass@8"] and high < 0.9
    assert half["reward"] == pytest.approx((1 + accuracy) / 2)
    assert json.loads(cli("eval", beginner, "--json", "--episodes", 1).out)["reward"] < 0.5  # by the task's verifier


# Catches: the run's own task or its longest response in place of those of the given task; an ignored --reward; prompts
# that occur twice because a file has few.
def test_eval_accepts_another_task(cli, beginner, files):
    half = json.loads(cli("llm", "eval", beginner, *REVERSE, "--reward", "score.py:half", "--json").out)
    assert half["reward"] == pytest.approx((1 + half["held_out_accuracy"]) / 2) and 0 < half["held_out_accuracy"] < 1
    assert half["problems"] < 100                                         # all held-out prompts, each once
    Path("four.jsonl").write_text("".join(json.dumps({"prompt": f"{x}>", "answer": x}) + "\n" for x in "abcd"))
    judged = json.loads(cli("llm", "eval", beginner, "--task", "four.jsonl", "--reward", "score.py:one", "--json").out)
    assert judged["task"] == "four" and judged["held_out_accuracy"] == 1 and judged["problems"] < 4
    said = cli("llm", "eval", beginner, "--task", "four.jsonl")
    assert said.code == 0 and "on four: " in said.out and "of held-out problems solved" in said.out


# Catches: an interval that ends outside 0 to 1, such as at 1.07.
def test_interval_of_an_accuracy_is_within_0_and_1():
    found, words = of_pairs(np.array([True, True, False]))
    assert found["interval"] == (0, 1) and "95 % interval 0.000 to 1.000" in words
    found, words = of_accuracy(torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 1.0]]), torch.ones(3))
    assert 0 < found["interval"][0] < found["interval"][1] == 1 and "to 1.000)" in words


# Catches: wrong responses that count; equal responses to two problems that count once; a sum over problems in place of
# the mean.
def test_distinct_correct_responses_are_counted_per_problem():
    found, words = of_accuracy(torch.tensor([[1.0, 0, 1], [1, 1, 1]]), torch.ones(2), ["a", "b", "a", "a", "c", "d"])
    assert found["distinct_right"] == 2.0 and words.endswith("; 2.00 different right responses to a problem")


# Catches: the prompt text of `input` in a pipe; a response to an empty line; an ignored `--max-tokens`.
def test_chat_answers_prompts_from_a_pipe(run, cli, monkeypatch):
    policy, prompts = llm.load(run), ["ab>", "cd>", "j>"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join([*prompts, "", "ef>"])))
    done = cli("llm", "chat", run, "--greedy")
    assert (done.code, done.err) == (0, "")
    assert done.out == "".join(policy.respond(prompt, greedy=True)[0] + "\n" for prompt in prompts)
    monkeypatch.setattr("sys.stdin", io.StringIO("ab>\n" * 20))
    drawn = cli("llm", "chat", run, "--max-tokens", 2)
    answers = drawn.out.split("\n")
    assert drawn.code == 0 and len(answers) == 21 and len(set(answers)) > 2 and max(map(len, answers)) == 2
    for wrong, words in {"a?>": "'?' is not in the alphabet 'abcdefghij>'", "a" * 600: "a prompt of 600 "}.items():
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{wrong}\n"))
        check_refused(cli("llm", "chat", run), words)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\xffb\n"), encoding="utf-8"))
    check_refused(cli("llm", "chat", run), "standard input is not UTF-8 text; save it as UTF-8")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\n"), "utf-8"))
    check_refused(cli("llm", "chat", run), "standard input is not UTF-8 text; save it as UTF-8")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    check_refused(cli("llm", "chat", run), "standard input has no prompt; run `spinup llm chat` in a terminal")


# Catches: environment steps in place of updates on the axis.
@pytest.mark.long
def test_plot_draws_runs_and_prints_their_held_out_accuracy(run, cli, beginner, tmp_path):
    done = cli("plot", run, "--out", "x.png")
    assert done.code == 0
    assert re.search(r"x +reverse:length=2,symbols=10 +1 +2 +held-out accuracy +1 ", done.out)
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    drawn = (tmp_path / "x.svg").read_text()
    for words in ("held-out accuracy", "updates", "reverse:length=2,symbols=10"):
        assert f"<!-- {words} -->" in drawn
    assert cli("plot", run, "--value", "kl_to_initial", "--x", "time", "--out", "y.png").code == 0
    check_refused(cli("plot", run, "--value", "kl_to_inital"), "Did you mean 'kl_to_initial'?")


# Runs with a learned reward, or with preference pairs.

@pytest.fixture(scope="module")
def learned(make_model, tmp_path_factory) -> dict[str, str]:
    """The folders of a policy, of a reward model of its responses, and of a policy trained with that reward model."""
    settings = {"task": "taste", "held_out": 8, "quiet": True, "tensorboard": False, "threads": 1, "preset": "none"}
    settings |= {"model": make_model(task="taste", total_steps=60, batch=32, warmup=0, lr=1e-2),
                 "log_dir": str(tmp_path_factory.mktemp("learned"))}
    judge = llm.reward_model(**settings, pairs=64, batch=32, total_steps=20, calibration=64).directory
    ppo = llm.ppo(**settings, reward=str(judge), prompts=16, total_steps=2).directory
    return {"sft": settings["model"], "judge": str(judge), "ppo": str(ppo)}


def watched(out: str) -> list[tuple[str, float, float, str]]:
    """(prompt, learned reward, true reward, response) of each line that `watch` printed."""
    found, prompt = [], ""
    for line in out.splitlines():
        form = r"  reward +(\S+)  true reward +(\S+)  advantage +\S+  ([a-h>]*)"
        if (match := re.fullmatch(form, line)) is None:
            prompt = line
        else:
            found.append((prompt, float(match[1]), float(match[2]), match[3]))
    return found


# Catches: the learned reward in the column of the true reward; the true reward in the column of the learned reward.
@pytest.mark.long
def test_watch_shows_the_learned_and_the_true_reward(learned, cli):
    judge, taste = llm.load(learned["judge"]), Taste()
    shown = watched(cli("watch", learned["ppo"], "--episodes", 3).out)
    assert len(shown) == 24 and len({text for *_, text in shown}) > 8
    for prompt, reward, true, text in shown:
        assert is_held_out(prompt) and reward == pytest.approx(judge(prompt, text), abs=0.006)
        assert true == pytest.approx(taste.reward(Problem(prompt), text), abs=0.006)


# With the same number of problems, `watch` and `eval` use the same responses. Catches: an interval over responses in
# place of problems; the standard deviation of the means of problems; rewards of greedy responses among those of sampled
# responses.
def test_eval_reports_the_learned_and_the_true_reward(learned, cli):
    shown = watched(cli("watch", learned["ppo"], "--episodes", 5).out)
    found = json.loads(cli("eval", learned["ppo"], "--episodes", 5, "--json").out)
    for name, numbers in {"reward": [x for _, x, _, _ in shown], "gold": [x for _, _, x, _ in shown]}.items():
        rewards = np.array(numbers).reshape(-1, 8)
        assert found.pop(name) == pytest.approx(rewards.mean(), abs=0.006)
        assert found.pop(f"{name}_interval") == pytest.approx(mean_interval(rewards.mean(1)), abs=0.012)
        assert found.pop(f"{name}_std") == pytest.approx(rewards.std(), abs=0.006)
    greedy = found.pop("reward_greedy")
    assert found == {"directory": learned["ppo"], "task": "taste", "problems": len(shown) // 8}
    of = r"(-?\d\.\d{3}) \(95 % interval -?\d\.\d{3} to -?\d\.\d{3}; standard deviation of a response \d\.\d{3}\)"
    said = cli("eval", learned["ppo"], "--episodes", 5).out.removeprefix(f"{learned['ppo']}: ")
    said = re.fullmatch(rf"learned reward {of}, with 8 responses to each of \d held-out problems; greedy (\S+); true "
                        rf"reward of the sampled responses {of}\n", said)
    assert said and float(said[2]) == pytest.approx(greedy, abs=6e-4)


# Catches: the words "learned reward" for the task's own reward; an accuracy, which a task with graded rewards does not
# have.
def test_eval_of_a_task_with_graded_rewards_reports_the_reward(learned, cli, files, beginner):
    found = json.loads(cli("eval", learned["sft"], "--json").out)
    assert set(found) == {"directory", "task", "problems", "reward", "reward_interval", "reward_std", "reward_greedy"}
    assert cli("eval", learned["sft"]).out.startswith(f"{learned['sft']}: reward {found['reward']:.3f} (95 % interval")
    done = cli("llm", "grpo", "--task", "taste", "--model", learned["sft"], "--reward", "score.py:half",
               *(word for word in WORDS[2:] if word != "--quiet"), "--exp-name", "x")
    assert re.search(r"1 / 2 steps   held-out reward +0\.\d+ ", done.out)
    assert re.search(r"; held-out reward (0\.\d{3})\n  curve: ", done.out)
    half = json.loads(cli("eval", RUN, "--json").out)         # each response has a reward of 1/2 or 1
    assert half["reward_std"] ** 2 == pytest.approx((half["reward"] - 0.5) * (1 - half["reward"]))
    assert half["reward_interval"][0] < half["reward"] < half["reward_interval"][1]


# Catches: pairs whose rejected response is the better one; pairs that are not held out; a verdict that ignores the
# model's rewards.
@pytest.mark.long
def test_watch_and_eval_of_a_reward_model_rank_held_out_pairs(learned, cli):
    judge, taste = llm.load(learned["judge"]), Taste()
    shown = cli("watch", learned["judge"], "--episodes", 40).out.splitlines()
    assert len(shown) == 120
    right = 0
    for i in range(0, 120, 3):
        prompt, verdict = re.fullmatch(r"([a-h]{3}>)   ranked (correctly|incorrectly)", shown[i]).groups()
        a, b = (re.fullmatch(rf"  {kind} +reward +(\S+)  ([a-h>]*)", line).groups()
                for kind, line in zip(("chosen", "rejected"), shown[i + 1:i + 3], strict=True))
        assert is_held_out(prompt)
        assert taste.reward(Problem(prompt), a[1]) > taste.reward(Problem(prompt), b[1])
        for worth, text in (a, b):
            assert float(worth) == pytest.approx(judge(prompt, text), abs=0.006)
        assert (verdict == "correctly") == (judge(prompt, a[1]) > judge(prompt, b[1]))
        right += verdict == "correctly"
    found = json.loads(cli("eval", learned["judge"], "--episodes", 40, "--json").out)
    low, high = found.pop("interval")
    assert found == {"directory": learned["judge"], "task": "taste", "pairs": 40, "pair_accuracy": right / 40}
    assert low < right / 40 < high
    assert cli("eval", learned["judge"], "--episodes", 40).out == (
        f"{learned['judge']}: {right / 40:.3f} of 40 held-out pairs ranked correctly (95 % interval {low:.3f} to "
        f"{high:.3f})\n")
    assert cli("watch", learned["judge"], "--episodes", 40, "--seed", 1).out.splitlines() != shown


# Catches: a check after SFT; a check that is missing with --model, without --model, or for SFT.
@pytest.mark.parametrize("typed", ["ppo", "ppo --model {sft}", "sft"])
def test_reward_model_must_know_all_characters_of_the_task(typed, learned, cli, tree):
    method, *words = typed.format(**learned).split()
    letters = 8 if words else 10
    folder = learned["judge"]
    if words:
        folder = shutil.copytree(folder, "judge")
        write_json(Path("judge/config.json"), read_json(Path("judge/config.json")) | {"alphabet": "abcdefxy>"})
    before, strange = tree(), "gh" if words else "ij"
    check_refused(cli("llm", method, *words, "--task", f"taste:letters={letters}", "--reward", folder),
                  f"the reward model does not fit the task taste, because it does not know {strange!r}; train one for "
                  "this task with: spinup llm reward_model")
    assert tree() == before


# Catches: a traceback if the initial policy has moved, or for a chat with a model that does not generate text.
def test_reward_model_refuses_chat_and_a_missing_initial_policy(learned, cli, tmp_path):
    check_refused(cli("llm", "chat", learned["judge"]), "holds a reward model, which does not generate text; "
                                                        f"type `spinup watch {learned['judge']}` to see its rewards")
    shutil.copytree(learned["judge"], tmp_path / "alone")
    data = read_json(tmp_path / "alone/config.json")
    write_json(tmp_path / "alone/config.json", data | {"start": "runs/gone"})
    for command in ("watch", "eval"):
        check_refused(cli(command, "alone"), "alone starts from runs/gone, which does not exist; restore it, or type")


# The task's reward is 1 for a chosen response only. Catches: the accuracy by this reward in place of the pair accuracy;
# log-probabilities without those of the initial policy; pairs that are not held out.
def test_eval_of_a_policy_trained_on_pairs_ranks_held_out_pairs(cli, beginner):
    pairs = [{"prompt": f"{a}{b}>", "chosen": b + a, "rejected": a} for a in "abcdefghij" for b in "abcdefghij"]
    result = llm.dpo(pairs, model=beginner, lr=1e-2, warmup=0, total_steps=6, log_dir="runs", exp_name="x", held_out=8,
                     quiet=True, tensorboard=False, threads=1, preset="none")
    n = len({p["prompt"] for p in pairs if is_held_out(p["prompt"])})
    assert 5 < n < 20 and result.measure == "pair_accuracy" and result.quality > 0.5
    found = json.loads(cli("eval", RUN, "--json").out)
    assert (found["pairs"], found["pair_accuracy"]) == (n, pytest.approx(result.quality))
    few = json.loads(cli("eval", RUN, "--json", "--episodes", 5).out)
    assert few["pairs"] == 5


# Catches: `measure` that is missing in config.json; a learned reward with the label of a true reward.
@pytest.mark.long
def test_plot_names_the_measure_of_each_run(learned, cli):
    out = cli("plot", *learned.values(), "--group", "run", "--out", "x.png").out
    rows = {re.split(r" {2,}", line)[0]: re.split(r" {2,}", line)[1:5] for line in out.splitlines()}
    names = {kind: Path(folder).name for kind, folder in learned.items()}
    assert rows[names["sft"]] == ["taste", "1", "60", "held-out reward"]
    assert rows[names["judge"]] == ["taste", "1", "20", "pair accuracy"]
    assert rows[names["ppo"]] == ["taste", "1", "2", "learned held-out reward"]


# Catches: "llm dr_grpo" passed to the command line as one word.
@pytest.mark.long
def test_grid_runs_every_seed_once(cli, files, beginner, tmp_path):
    words = ["grid", "llm", "dr_grpo", "--seed", 1, 2, "--workers", 2, "--exp-name", "g", "--model", beginner, *REVERSE,
             "--prompts", 2, "--samples", 2, "--held-out", 8, "--threads", 1, "--no-tensorboard", "--total-steps", 1]
    done = cli(*words)
    assert done.code == 0 and done.out.startswith("2 runs in 1 variant; 2 at a time\n")
    assert re.search(r"^variant +seeds +held-out accuracy +95 % interval ", done.out, re.M)
    assert done.out.endswith("\nheld-out accuracy: at the end of a run, averaged over its finished seeds\n")
    results = [tmp_path / f"runs/g/g_s{seed}/result.json" for seed in (1, 2)]
    assert [read_json(path)["status"] for path in results] == ["finished"] * 2
    assert read_json(results[0].with_name("config.json"))["algorithm"] == "llm dr_grpo"
    written = [path.stat().st_mtime_ns for path in results]
    again = cli(*words)
    assert again.code == 0 and "2 of them finished earlier" in again.out
    assert [path.stat().st_mtime_ns for path in results] == written
    assert re.search(r"^g +reverse\S* +2 +1 +held-out accuracy ", cli("plot", "runs", "--out", "g.png").out, re.M)


# Catches: "llm dr_grpo" passed to the command line as one word; a study that reads returns of environments.
@pytest.mark.long
def test_a_study_tunes_a_method(cli, files, beginner, tmp_path):
    done = cli("tune", "llm", "dr_grpo", "--trials", 2, "--lr", "1e-4:1e-3", "--exp-name", "t", "--model", beginner,
               *REVERSE, "--prompts", 2, "--samples", 2, "--held-out", 8, "--threads", 1, "--no-tensorboard",
               "--total-steps", 2)
    assert (done.code, done.err) == (0, "")
    assert re.search(r"^2/2 trials   trial_1   held-out accuracy [\d.]+   lr 0.000\d+$", done.out, re.M)
    assert done.out.endswith("  spinup llm dr_grpo --config runs/t/best.toml --seed 1\n")
    results = [read_json(tmp_path / f"runs/t/trial_{i}/trial_{i}_s100/result.json") for i in (0, 1)]
    best = max(result["held_out_accuracy"] for result in results)
    assert f"held-out accuracy {best:.4g} with seeds 100" in (tmp_path / "runs/t/best.toml").read_text()


# Catches: a checkpoint of another method that is loaded.
def test_resume_gives_the_same_curve_and_refuses_wrong_checkpoints(run, cli, curve, tmp_path):
    whole = curve(tmp_path / RUN)
    assert "is finished: 2 steps; `spinup watch runs/x/x_s1` shows it\n" in cli("resume", run).out
    (tmp_path / RUN / "result.json").unlink()
    (tmp_path / RUN / "checkpoint.pt").rename(tmp_path / "kept.pt")       # as if killed before the first checkpoint
    done = cli("resume", run)
    assert done.code == 0 and curve(tmp_path / RUN) == whole
    (tmp_path / RUN / "result.json").unlink()
    state = torch.load(tmp_path / "kept.pt", weights_only=True)
    torch.save({**state, "algorithm": "llm grpo"}, tmp_path / RUN / "checkpoint.pt")
    check_refused(cli("resume", run), "holds a checkpoint of llm grpo, not of llm rloo")
    (tmp_path / RUN / "checkpoint.pt").write_bytes(b"hello")
    for command in (["resume"], ["eval"], ["watch"], ["llm", "chat"]):
        check_refused(cli(*command, run), "checkpoint.pt is damaged or not a checkpoint")


# Catches: an export without the tokenizer.
def test_exported_policy_gives_the_same_responses(run, cli, tree):
    assert cli("llm", "export", run, "out").out == "out\n"
    prompts = [f"{a}{b}>" for a in "abcdefghij" for b in "abcdefghij"]
    before, after = llm.load(run), llm.load("out")
    assert after.respond_all(prompts, 1, None, 3) == before.respond_all(prompts, 1, None, 3)
    assert cli("llm", "rloo", *WORDS, "--model", "out", "--exp-name", "y").code == 0
    saved = tree()
    check_refused(cli("llm", "export", run, "runs"), "runs is not an empty folder, and it would be lost; give the "
                                                     "model a new folder")
    assert tree() == saved
