"""Warnings about rows that show a known fault."""
import math
import re
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import spinup
from spinup.runs.diagnose import diagnose, largest_entropy

HEALTHY = {"entropy": 0.6, "kl": 0.01, "value_loss": 20.0, "grad_norm": 0.4, "q": 50.0}
PLAIN = SimpleNamespace(normalise_reward=False, target_kl=0.0)
DISCRETE, BOX = spaces.Discrete(4), spaces.Box(-1, 1, (3,))


def said(row: dict, actions=DISCRETE, config=PLAIN, largest=100.0, alike=0, share=0.3) -> list[str]:
    return diagnose(HEALTHY | row, config, actions, largest, alike, share)


# Catches: a warning for every row.
def test_healthy_row_gives_no_warning():
    assert said({}) == [] == said({}, BOX)
    assert said(dict.fromkeys(HEALTHY, math.nan)) == [] == diagnose({}, PLAIN, BOX, math.inf, 0, 0.9)
    assert said({"entropy": 1.38}, share=0.2) == []                       # an initial policy acts at random
    assert said({"entropy": 1e-4}, share=0.9) == []                       # a final policy may be deterministic
    assert said({"entropy": 1.38, "bonus": 0.1}, share=0.9) == []         # an intrinsic reward
    assert said({"return_std": 0.0, "grad_norm": 0.0}) == []              # es has solved the task
    assert said({"clipped": 0.9}, config=SimpleNamespace(v_min=-10.0, v_max=10.0)) == [] == said({"clipped": 9.0})
    assert said({}, alike=19) == [] == said({}, alike=1000, share=0.05)


# Catches: an ignored intrinsic reward or ignored hindsight goals, so that a missing learning signal is reported.
def test_equal_returns_are_no_fault_with_another_learning_signal():
    assert said({"bonus": 0.1}, alike=40) == [] == said({}, alike=40, config=SimpleNamespace(hindsight_goals=4))


# Catches: an inverted comparison; a threshold of another column.
@pytest.mark.parametrize(("row", "how", "words"), [
    ({"pi_grad_norm": 0.0}, {"config": SimpleNamespace(saturation_coef=0.0)},
     "pi_grad_norm is 0: the policy no longer learns; if tanh bounds the actions, it is saturated; raise "
     "--saturation-coef"),
    ({"grad_norm": 1e-12}, {}, "grad_norm is 0: .* lower --lr, and start again"),
    ({"entropy": 1.3}, {"share": 0.6}, r"entropy is 1.30 of at most 1.39 nats: the policy still acts nearly at random"),
    ({"entropy": 0.001}, {}, "entropy is 0.001 nats, early in the run: the policy no longer explores"),
    ({"entropy": -15.0}, {"actions": BOX}, "entropy is -15.000 nats, early in the run"),
    ({}, {"alike": 40}, "all 40 episodes so far had the same return: there is no learning signal"),
    ({"q": -1e5}, {}, "q is -1e\\+05, but no absolute return of an episode was above 100: the Q-values diverge"),
    ({"clipped": 1.1}, {"config": SimpleNamespace(v_min=-10.0, v_max=10.0, target_kl=0.0)},
     "clipped is 1.1: returns exceed the limits -10 and 10, so .* a lower --v-min or a higher --v-max"),
    ({"value_loss": 3e5}, {}, "value_loss is 3e\\+05: the rewards are large for the networks; add --normalise-reward"),
    ({"value_loss": 3e5}, {"config": SimpleNamespace(normalise_reward=True)},
     "value_loss is 3e\\+05: the value function diverges; lower --lr"),
    ({"value_loss": 3e5}, {"config": SimpleNamespace(max_kl=0.01, normalise_reward=True)},
     "value_loss is 3e\\+05: the value function diverges; lower --value-lr"),
    ({"entropy": 0.001}, {"config": SimpleNamespace(max_kl=0.01)}, "entropy is .* or lower --max-kl"),
    ({"q_loss": 3e5}, {"config": SimpleNamespace()},
     "q_loss is 3e\\+05: the rewards are large for the networks; divide them by a constant"),
    ({"q_loss": 3e5}, {"config": SimpleNamespace(), "largest": 0.9},
     "q_loss is 3e\\+05: returns are at most 0.9, so the critic diverges; lower --lr"),
    ({}, {"alike": 40, "actions": BOX}, "all 40 .* let the reward depend on the actions$"),
    ({"action_std": 1e-5}, {}, "action_std is 1e-05: the policy takes the same action in every state"),
    ({"kl": 0.4}, {}, "kl is 0.4, far above the usual range: .* lower --lr or --epochs"),
    ({"kl": 0.1}, {"config": SimpleNamespace(target_kl=0.02)}, "kl is 0.1, far above the target of 0.02"),
    ({"return_std": 0.0}, {"alike": 4}, "return_std is 0: all perturbations had the same return")])
def test_each_fault_gives_one_warning(row, how, words):
    sentence, = said(row, **how)
    assert re.match(words, sentence), sentence


def test_largest_entropy_of_a_space_is_that_of_the_uniform_policy():
    assert largest_entropy(spaces.Discrete(4)) == pytest.approx(math.log(4))
    assert largest_entropy(spaces.MultiDiscrete([2, 3])) == pytest.approx(math.log(6))
    assert largest_entropy(spaces.MultiBinary(3)) == pytest.approx(math.log(8))
    assert math.isnan(largest_entropy(BOX)) and math.isnan(largest_entropy(spaces.Discrete(1)))


# Catches: a training that does not diagnose its rows; a warning that is repeated at each row.
@pytest.mark.long
def test_dead_actor_is_reported_once(capsys):
    settings = {"total_steps": 300, "learning_starts": 100, "hidden": (8, 8), "tensorboard": False, "preset": "none"}
    spinup.td3("Pendulum-v1", lr=1.0, saturation_coef=0.0, **settings)
    assert capsys.readouterr().out.count("pi_grad_norm is 0: the policy no longer learns") == 1
    spinup.td3("Pendulum-v1", **settings)
    assert "pi_grad_norm is 0" not in capsys.readouterr().out


class Settles(gymnasium.Env):
    """Episodes of one step. The first 100 return 0, and all later ones return 1."""

    observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Discrete(2)
    episodes = 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        Settles.episodes += 1
        return np.zeros(1, np.float32), float(Settles.episodes > 100), True, False, {}


# Catches: earlier returns that a resumed run loses, so that an agent that always reaches the best return is reported as
# one that learns nothing.
def test_resumed_run_includes_the_earlier_returns_in_its_diagnosis(tmp_path, capsys):
    settings = {"rollout_steps": 32, "num_envs": 4, "tensorboard": False, "log_dir": str(tmp_path), "exp_name": "x"}
    run = spinup.ppo(Settles, total_steps=512, **settings)
    spinup.ppo(Settles, total_steps=1024, resume=run.directory, **settings)
    assert "had the same return" not in capsys.readouterr().out
