"""A machine without most packages, as some GPU machines are: which methods run, and which messages name packages."""
import subprocess
import sys

import pytest

from spinup.algos import ppo
from spinup.errors import UserError
from spinup.runs import log

ABSENT = ("mujoco", "pettingzoo", "tensorboard", "matplotlib", "scipy", "psutil", "ale_py", "cv2", "safetensors",
          "transformers", "tokenizers")
PURE = ("gymnasium", "rich", "filelock", "threadpoolctl")                 # small wheels for any Python
TINY = "--total-steps 2 --layers 1 --width 16 --heads 2 --held-out 4"
PROGRAM = f"""
import sys
sys.modules.update(dict.fromkeys({ABSENT!r}))
from spinup import cli
assert cli.run("llm grpo --task reverse:length=2,symbols=10 --prompts 2 --samples 2 --sft-accuracy 0.01 {TINY} "
               "--no-tensorboard --quiet".split()) == 0
assert cli.run("rl2 --env Bandits-5x10-v0 --preset none --episodes 10 --num-envs 4 --rollout-steps 10 --total-steps 80 "
               "--no-tensorboard --quiet".split()) == 0
"""


# Catches: an import of a package of the list although a small language model or a bandit does not need it.
@pytest.mark.long
def test_language_models_and_bandits_train_with_four_small_packages(tmp_path):
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("runs/*/*/result.json"))) == 3          # one of them is of SFT
    assert done.stderr.count("curve.png; type: pip install matplotlib") == 3


# Catches: gymnasium or another of these packages, imported by `import llm`, its sampler, or the help.
@pytest.mark.long
def test_model_and_sampler_need_only_torch():
    program = (f"import sys; sys.modules.update(dict.fromkeys({ABSENT + PURE!r})); import llm, spinup, "
               "llm.policy.generate, llm.policy.score, llm.cli; llm.cli.run([])")
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)


# Catches: a run that creates its folder before it checks for the package.
def test_log_without_its_package_is_refused_before_a_folder_exists(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="type: pip install tensorboard, or add --no-tensorboard"):
        ppo.train(ppo.Config(total_steps=2048, log_dir=str(tmp_path)))
    assert not list(tmp_path.iterdir())
