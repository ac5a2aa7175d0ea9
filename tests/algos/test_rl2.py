"""RL²: the memory compared with a GRU cell, its resets and its use in values, and training."""
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import spinup
from spinup.algos import rl2
from spinup.core.distributions import Categorical
from spinup.core.fast.adam import FlatAdam
from spinup.envs.vector import VectorEnv
from spinup.errors import UserError
from spinup.view.evaluate import evaluate

# Settings for tests/algos/test_suite.py, with which each task is learned in a second or two.
SUITE = {
    "settings": {"total_steps": 12288, "rollout_steps": 32, "lr": 0.01, "entropy_coef": 0.0, "hidden_size": 32,
        "minibatches": 2},
    "tasks": {"discrete": {"total_steps": 4096}, "multidiscrete": {"total_steps": 4096}, "box": {}},
    "scores": "clipped_surrogate",
    "remembers": True}

SETTINGS = {"total_steps": 640, "num_envs": 4, "rollout_steps": 16, "hidden_size": 8, "quiet": True, "threads": 1,
            "tensorboard": False}


def by_cells(policy, obs, hidden):
    """Memories of a GRU cell with the same weights, step by step. They are reset where the last input is above 0."""
    cell = torch.nn.GRUCell(obs.shape[-1], policy.hidden_size)
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        getattr(cell, name).data.copy_(getattr(policy.gru, f"{name}_l0"))
    found = []
    for t in range(obs.shape[1]):
        hidden = torch.where(obs[:, t, -1:] > 0, 0, hidden)
        hidden = cell(obs[:, t], hidden)
        found.append(hidden)
    return torch.stack(found, 1)


# Catches: a memory that is reset one step late, in all copies at once, or never; an ignored initial hidden state.
def test_memory_is_a_gru_that_is_reset_for_each_trial():
    torch.manual_seed(0)
    policy = rl2.RecurrentActorCritic(5, Categorical((3,)), 6)
    obs, hidden = torch.randn(4, 12, 5), torch.randn(4, 6)
    obs[:, :, -1] = 0
    for i, t in [(0, 0), (1, 4), (2, 4), (2, 5), (3, 11)]:
        obs[i, t, -1] = 1
    torch.testing.assert_close(policy.remember(obs, hidden), by_cells(policy, obs, hidden))
    parts = [policy.remember(obs[:, :7], hidden)]
    torch.testing.assert_close(policy.remember(obs[:, 7:], parts[0][:, -1]), policy.remember(obs, hidden)[:, 7:])


# Catches: an actor that loses its memory between steps, or that keeps the memory of a trial in the next one.
def test_actor_keeps_its_memory_between_calls():
    torch.manual_seed(0)
    policy = rl2.RecurrentActorCritic(5, Categorical((3,)), 6)
    obs = torch.randn(4, 9, 5)
    obs[:, :, -1] = 0
    obs[:, 0, -1] = obs[2, 6, -1] = 1
    act = policy.actor()
    found = np.stack([act(obs[:, t].numpy()) for t in range(9)], 1)
    expected = policy.params(by_cells(policy, obs, torch.zeros(4, 6))).detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


class Told(VectorEnv):
    """Two copies. Trials of the first are truncated after three steps; trials of the second terminate after five. The
    observation counts the steps."""

    def __init__(self):
        super().__init__(2)
        self.observation_space, self.action_space = Box(-np.inf, np.inf, (2,)), Discrete(2)

    def _reset(self):
        self.t, self.total = np.zeros(2, int), 0.0
        return np.array([[0, 1], [0, 1]], np.float32)

    def _step(self, action):
        self.t += 1
        self.total += 0.1
        over = self.t == [3, 5]
        final = np.stack([self.t + self.total, np.zeros(2)], 1).astype(np.float32)
        obs = np.where(over[:, None], np.array([self.total, 1], np.float32), final)
        self.t[over] = 0
        return (type(self).answer)(obs, over, final)

    @staticmethod
    def answer(obs, over, final):
        from spinup.envs.vector import Step
        return Step(obs, np.ones(2, np.float32), over & [False, True], over & [True, False],
                    final if over.any() else None)

    def _save(self):
        return {}

    def _load(self, state):
        pass


# Catches: a value after a truncation that comes from the next trial, or from an empty memory; a termination in place of
# a truncation.
def test_value_of_a_truncated_trial_uses_its_memory(tmp_path, monkeypatch):
    calls, gae = [], rl2.gae
    monkeypatch.setattr(rl2, "make_env", lambda cfg: Told())
    monkeypatch.setattr(rl2, "gae", lambda *args, **kwargs: calls.append(args) or gae(*args, **kwargs))
    kept = []
    make_policy = rl2.make_policy
    monkeypatch.setattr(rl2, "make_policy", lambda *args: kept.append(make_policy(*args)) or kept[-1])
    rl2.train(rl2.Config(**{**SETTINGS, "num_envs": 2, "rollout_steps": 8, "total_steps": 16, "lr": 1e-9,
                            "minibatches": 1}, log_dir=tmp_path.as_posix()))
    (policy,), (_, values, next_values, term, trunc) = kept, calls[0]
    assert trunc.nonzero().tolist() == [[0, 2], [0, 5]] and term.nonzero().tolist() == [[1, 4]]
    env, obs, ends = Told(), [], {}
    obs.append(env.reset())
    for t in range(8):
        step = env.step(np.zeros(2))
        obs.append(step.obs)
        if step.final_obs is not None:
            ends[t] = step.final_obs
    whole = torch.from_numpy(np.stack(obs, 1))                            # [2, 9, 2]
    states = by_cells(policy, whole, torch.zeros(2, 8))
    judged = policy.value(states).detach()
    torch.testing.assert_close(values, judged[:, :8], atol=1e-5, rtol=0)
    expected = judged[:, 1:].clone()
    for t in (2, 5):
        end = torch.from_numpy(ends[t][:1])[:, None]
        expected[0, t] = policy.value(by_cells(policy, end, states[:1, t]))[0, 0].detach()
    torch.testing.assert_close(next_values, expected, atol=1e-5, rtol=0)
    assert float((next_values[0, 2] - judged[0, 3]).abs()) > 1e-3


# Catches: an initial memory of a rollout that is empty, or that is not the final memory of the rollout before it.
def test_memory_continues_in_the_next_rollout(tmp_path, monkeypatch):
    began, ended, net = [], [], rl2.RecurrentActorCritic
    actor, remember = net.actor, net.remember

    def acting(self, hidden=None):
        began.extend([] if hidden is None else [hidden.clone()])
        return actor(self, hidden)

    def noted(self, obs, hidden):
        states = remember(self, obs, hidden)
        if not torch.is_grad_enabled() and obs.shape[1] == 16:
            ended.append(states[:, -1].clone())
        return states

    monkeypatch.setattr(net, "actor", acting)
    monkeypatch.setattr(net, "remember", noted)
    rl2.train(rl2.Config(env="CartPole-v1", episodes=3, minibatches=2, log_dir=tmp_path.as_posix(), **SETTINGS))
    assert len(began) == len(ended) == 10 and ended[0].any()
    assert all(torch.equal(b, e) for b, e in zip(began[1:], ended[:9], strict=True))


# Catches: a wrong sign of the entropy bonus; a value loss without its coefficient, or with advantages as targets;
# missing advantage normalisation.
def test_loss_of_an_update_matches_hand_calculation(tmp_path, monkeypatch):
    minimizer, make_policy, trial, kept, targets, found = (
        FlatAdam.minimizer, rl2.make_policy, rl2.gae, [], [], [])
    monkeypatch.setattr(rl2, "make_policy", lambda *args: kept.append(make_policy(*args)) or kept[0])
    monkeypatch.setattr(rl2, "gae", lambda *args, **settings: targets.append(
        trial(*args, **settings)) or targets[-1])

    def told(optimizer, loss):
        def compared(obs, act, logp_old, adv, target, hidden, coef):
            states = kept[0].remember(obs, hidden)
            logp, entropy = kept[0].dist.log_prob_entropy(kept[0].params(states), act)
            white = (adv - adv.mean()) / adv.std(correction=0)
            each = -(logp - logp_old).exp() * white + 0.4 * (kept[0].value(states) - target) ** 2 - 0.3 * entropy
            value, stats = loss(obs, act, logp_old, adv, target, hidden, coef)
            found.append((value.item(), each.mean().item(), target.sum().item()))
            return value, stats
        return minimizer(optimizer, compared)

    monkeypatch.setattr(FlatAdam, "minimizer", told)
    settings = {"total_steps": 64, "minibatches": 1, "epochs": 1, "entropy_coef": 0.3, "value_coef": 0.8}
    rl2.train(rl2.Config(env="CartPole-v1", log_dir=tmp_path.as_posix(), **SETTINGS | settings))
    (ours, expected, total), = found
    assert ours == pytest.approx(expected, rel=1e-4) and total == pytest.approx(targets[0][1].sum().item(), rel=1e-4)


# Catches: minibatches of steps in place of sequences; log-probabilities with an empty memory, or with the memory at the
# end of the batch.
def test_log_probabilities_use_the_memory_at_the_start_of_the_rollout(tmp_path, monkeypatch):
    ratios, surrogate = [], rl2.clipped_surrogate

    def noted(logp, logp_old, *rest):
        ratios.append(float((logp - logp_old).detach().abs().max()))
        return surrogate(logp, logp_old, *rest)

    monkeypatch.setattr(rl2, "clipped_surrogate", noted)
    rl2.train(rl2.Config(env="CartPole-v1", episodes=3, epochs=1, minibatches=2, lr=1e-12, log_dir=tmp_path.as_posix(),
                         **SETTINGS))
    assert len(ratios) == 20 and max(ratios) < 1e-5


# Catches: a memory that is missing in the checkpoint.
@pytest.mark.long
def test_killed_run_resumes_with_the_same_curve(few_rows, killed, cli, curve, tmp_path):
    words = ["rl2", "--preset", "none", "--exp-name", "x", "--total-steps", 2560, "--num-envs", 4, "--rollout-steps",
             8, "--episodes", 2, "--checkpoint-steps", 352, "--hidden-size", 8, "--epochs", 1, "--minibatches", 1]
    assert cli(*words, "--log-dir", "whole", "--quiet").code == 0
    expected = curve(tmp_path / "whole/x/x_s1")
    done = killed(words, Path("runs/x/x_s1"), len(expected), 2, "rl2")
    assert done.code == 0 and curve(tmp_path / "runs/x/x_s1") == expected


# Catches: rewards that are missing in the inputs of the memory. Without them, no policy gets more than 5 of 10.
@pytest.mark.long
def test_policy_learns_to_find_a_good_arm_within_a_trial(tmp_path):
    cfg = rl2.Config(env="Bandits-5x10-v0", episodes=10, num_envs=128, rollout_steps=10, epochs=1, minibatches=1,
                     lam=0.9, lr=1e-2, hidden_size=32, total_steps=300_000, quiet=True, tensorboard=False, threads=1,
                     log_dir=tmp_path.as_posix())
    result = rl2.train(cfg)
    assert evaluate(result.policy, "Bandits-5x10-v0", episodes=2000).mean > 5.7


def test_invalid_batch_settings_are_refused(tmp_path):
    with pytest.raises(UserError, match="--minibatches 3 does not divide --num-envs 4 sequences"):
        rl2.Config(**{**SETTINGS, "minibatches": 3})
    with pytest.raises(UserError, match="advantages cannot be normalised over minibatches of one step"):
        rl2.Config(**{**SETTINGS, "minibatches": 4, "rollout_steps": 1})
    with pytest.raises(UserError, match="--total-steps 63 is less than one batch of 64 steps"):
        rl2.Config(**{**SETTINGS, "total_steps": 63})


# Catches: a variant with the last action or reward among its inputs; different inputs in the evaluation.
def test_recurrent_ppo_gets_only_the_observation_as_input(tmp_path):
    result = spinup.recurrent_ppo("StatelessCartPole-v0", log_dir=tmp_path.as_posix(), test_episodes=2,
                                  **SETTINGS | {"minibatches": 2})
    policy = spinup.load(result.directory)
    assert policy.observation_space.shape == (3,)                         # position, angle, and the trial start
    assert policy.env_settings == {"episodes": 1, "inputs": "observation"}
    assert evaluate(policy, "StatelessCartPole-v0", episodes=3).mean >= 8
