"""Evolution strategies: the gradient estimate, episodes of many policies at a time, and several processes."""
import os
import signal
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from scipy.stats import rankdata
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import spinup
from spinup.algos import es
from spinup.envs.gym import GymVectorEnv
from spinup.errors import UserError
from spinup.runs.workers import Workers

# Settings for tests/algos/test_suite.py, with which each task is learned in a second or two.
SUITE = {
    "settings": {"pairs": 32, "sigma": 0.1, "lr": 0.05, "hidden": (16,), "total_steps": 16000},
    "tasks": {"discrete": {}, "multidiscrete": {}, "box far": {"hidden": (8,), "normalise_obs": True}},
    "draws": False}

TINY = {"total_steps": 4000, "pairs": 5, "num_envs": 3, "sigma": 0.1, "hidden": (8, 4), "quiet": True,
        "tensorboard": False}


def run(folder: Path, **settings):
    return es.train(es.Config(log_dir=folder.as_posix(), **{**TINY, **settings}))


def learned(result) -> torch.Tensor:
    return torch.cat([x.double().flatten() for x in result.policy.module.state_dict().values()])


# Catches: ranks from 0 to 1; different ranks of equal returns.
def test_ranks_are_centred_and_equal_returns_share_a_rank():
    found = es.centred_ranks(np.array([[10.0, -3.0], [10.0, 1e9]]))
    np.testing.assert_allclose(found, [[0, -0.5], [0, 0.5]])
    assert not es.centred_ranks(np.full((4, 2), 7.0)).any()
    returns = np.random.default_rng(0).integers(0, 9, (20, 2)) / 3.0
    assert np.array_equal(es.centred_ranks(returns), (rankdata(returns, axis=None).reshape(20, 2) - 1) / 39 - 0.5)


# Catches: a wrong sign; a missing 2, n or sigma in the denominator; noise from a seed other than that of the episode.
@pytest.mark.long
def test_estimate_converges_to_the_gradient_of_the_score():
    theta, slope = torch.randn(2, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    seeds = np.arange(20_000)

    def score(weights: torch.Tensor) -> float:
        return float(slope @ weights + 3)

    scores = np.array([[score(es.perturb(theta, int(s), sign * 0.2)) for sign in (1, -1)] for s in seeds])
    torch.testing.assert_close(es.gradient(theta, seeds, scores, 0.2), slope, atol=0.05, rtol=0)
    few = np.array([[3.0, 1.0], [0.0, 0.5]])
    by_hand = (2.0 * es.perturbation(7, theta) - 0.5 * es.perturbation(8, theta)) / (2 * 2 * 0.1)
    torch.testing.assert_close(es.gradient(theta, np.array([7, 8]), few, 0.1), by_hand)


class Walk(gymnasium.Env):
    """A noisy walk in the plane. It terminates far from the origin, and is truncated after 20 steps."""

    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
        self.action_space = gymnasium.spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.t = self.np_random.normal(size=2).astype(np.float32), 0
        return self.at.copy(), {}

    def step(self, action):
        self.t += 1
        self.at += action + 1.5 * self.np_random.normal(size=2).astype(np.float32)
        return self.at.copy(), float(action.sum()) + 0.1, bool(np.abs(self.at).max() > 6), self.t == 20, {}


def one_episode(policy, seed: int) -> np.ndarray:
    """Return, steps, and sums of the observations and of their squares, of an episode in one plain environment."""
    env, told = Walk(), np.zeros(6)
    obs, done = env.reset(seed=seed)[0], False
    while not done:
        seen = policy.normaliser(torch.from_numpy(obs)[None])
        act = policy.pi(seen)[0].detach().numpy().clip(-1, 1)
        told[1:] += np.concatenate([[1], obs, np.square(obs.astype(float))])
        obs, reward, ended, cut, _ = env.step(act)
        told[0] += reward
        done = ended or cut
    return told


def test_episode_without_an_end_is_an_error(monkeypatch):
    monkeypatch.setattr("spinup.runs.episodes.LONGEST", 500)
    with pytest.raises(UserError, match="an episode of this environment did not end within 500 steps; give"):
        spinup.es(lambda: gymnasium.make("Pendulum-v1").unwrapped, pairs=2, num_envs=2, total_steps=1000, quiet=True)


# Catches: a check of the returns alone, which stay finite although an action is chosen from NaN.
def test_non_finite_observations_are_an_error():
    class Blind(gymnasium.ObservationWrapper):
        def observation(self, obs):
            return np.where([False, True, False, False], np.nan, obs).astype(np.float32)

    with pytest.raises(UserError, match="CartPole-v1 returned an observation with nan at index 1 of 4, in reset"):
        spinup.es(lambda: Blind(gymnasium.make("CartPole-v1")), pairs=2, num_envs=2, total_steps=1000, quiet=True)


# Catches: exchanged weights of a pair; an initial state that the seed does not determine; counted steps of a copy
# without a policy; an order of the results that depends on which episode ends first; a wrong order of the weights.
@pytest.mark.parametrize("copies", [1, 4, 16])
def test_episode_of_a_policy_does_not_depend_on_other_copies(copies):
    torch.manual_seed(0)
    env, seeds = GymVectorEnv(Walk, copies, 5), np.array([11, 12, 13], np.uint32)
    policy = es.make_policy(es.Config(hidden=(8, 4), normalise_obs=True), env.observation_space, env.action_space)
    policy.normaliser.update(torch.randn(50, 2) * 3 + 1)
    theta = parameters_to_vector(policy.pi.parameters()).detach()
    env.reset()
    told = es.play(env, policy, theta, 0.7, seeds)
    for i, seed in enumerate(seeds.tolist()):
        for k, sign in enumerate((1, -1)):
            vector_to_parameters(es.perturb(theta, seed, sign * 0.7), policy.pi.parameters())
            np.testing.assert_allclose(told[i, k], one_episode(policy, seed), rtol=1e-4, atol=1e-4)
    assert len({*told[..., 1].ravel()}) > 3                               # of different lengths
    vector_to_parameters(theta, policy.pi.parameters())
    np.testing.assert_array_equal(told, es.play(env, policy, theta, 0.7, seeds))


# The size of the messages does not depend on the network. Catches: statistics, ranks or steps from the share of one
# process; shares in a wrong order; an empty share; an initial policy that depends on the process.
@pytest.mark.long
def test_number_of_processes_does_not_change_the_result(fork_workers, tmp_path, curve, monkeypatch):
    met, together = [], Workers.together
    monkeypatch.setattr(Workers, "together", lambda self, *rest: met.append(self) or together(self, *rest))
    runs = [run(tmp_path / str(n), workers=n, normalise_obs=True, hidden=(64, 64), exp_name="x") for n in (1, 2, 3)]
    for other in runs[1:]:
        assert torch.equal(learned(runs[0]), learned(other)) and runs[0].returns == other.returns
        assert curve(runs[0].directory) == curve(other.directory)
    bytes_each = [w.sent / len(r.progress["steps"]) for w, r in zip(met[1:], runs[1:], strict=True)]
    # There are 5 pairs. A policy has 4,600 weights, and its message has 10 numbers.
    assert bytes_each == [3 * 2 * 10 * 8, 2 * 2 * 10 * 8] and met[0].sent == 0


# Catches: a new state of Adam; a normaliser that is missing in the checkpoint; rows or steps of the interrupted update.
@pytest.mark.long
def test_killed_run_resumes_with_the_same_curve(few_rows, killed, cli, curve, tmp_path):
    words = ["es", "--preset", "none", "--exp-name", "x", "--total-steps", 12_000, "--pairs", 4, "--normalise-obs",
             "--checkpoint-steps", 1200]
    assert cli(*words, "--log-dir", "whole", "--quiet").code == 0
    expected = curve(tmp_path / "whole/x/x_s1")
    done = killed(words, Path("runs/x/x_s1"), len(expected), 3, "es")
    assert done.code == 0 and curve(tmp_path / "runs/x/x_s1") == expected
    assert len({row[expected[0].index("steps")] for row in expected}) == len(expected)


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


# Catches: a process that waits for a worker that has ended; a traceback; a worker that outlives the first process.
@pytest.mark.long
def test_dead_worker_ends_the_run_with_a_message_and_it_resumes(start, forking, rows, wait_for, cli, curve, tmp_path):
    words = ["es", "--preset", "none", "--exp-name", "x", "--total-steps", 40_000, "--pairs", 4, "--workers", 2,
             "--quiet"]
    directory = tmp_path / "runs/x/x_s1"
    process = start(*words, prelude=forking)
    wait_for(lambda: rows(directory) > 12, process)
    (worker,) = children(process.pid)
    os.kill(worker, signal.SIGKILL)
    done = process.end(30)
    assert done.code == 1 and "Traceback" not in done.err
    assert done.err.splitlines()[-1] == ("spinup: a worker process ended, or did not answer, in the middle of an "
                                         "update (worker process 1 ended with exit code -9); to resume, type: spinup "
                                         "resume runs/x/x_s1")
    again = start("resume", "runs/x/x_s1", prelude=forking)
    wait_for(lambda: len(children(again.pid)) == 1, again)
    (worker,) = children(again.pid)
    assert again.end().code == 0 and not Path(f"/proc/{worker}").exists()
    assert cli(*words[:-3], "--log-dir", "whole", "--quiet").code == 0    # one process
    assert curve(tmp_path / "whole/x/x_s1") == curve(directory)


# Catches: a run folder or output of every process of torchrun; a number of processes that is not that of torchrun.
@pytest.mark.long
def test_torchrun_gives_one_run_with_the_same_curve(start, cli, curve, tmp_path):
    words = ["es", "--preset", "none", "--exp-name", "x", "--total-steps", 2000]
    done = start("--nproc-per-node", 2, "-m", "spinup", *words, script="torch.distributed.run").end()
    assert done.code == 0 and done.out.count("es on CartPole-v1") == 1, done.err
    assert cli(*words, "--log-dir", "whole", "--quiet").code == 0
    assert curve(tmp_path / "whole/x/x_s1") == curve(tmp_path / "runs/x/x_s1")


@pytest.mark.long
def test_unsupported_environments_and_workers_are_refused(tmp_path):
    with pytest.raises(UserError, match="--workers 2 starts processes, .* give env as an id"):
        run(tmp_path, env=lambda: Walk(), workers=2)
    with pytest.raises(UserError, match="--workers 6 is more than --pairs 5; choose at most 5"):
        es.Config(pairs=5, workers=6)
    with pytest.raises(UserError, match="es supports vector observations, not images"):
        spinup.es("ALE/Pong-v5", log_dir=tmp_path.as_posix())
    with pytest.raises(UserError, match="cannot reset one copy to a given seed"):
        spinup.es("TicTacToe-v0", log_dir=tmp_path.as_posix())
    assert not list(tmp_path.iterdir())


# Catches: the return of a part of an episode; numbers of a row from one process, or from copies without a policy.
def test_log_rows_include_all_episodes(tmp_path):
    result = run(tmp_path, env=Walk, total_steps=2000)
    progress = result.progress
    assert progress["episodes"] == [10] * len(progress["steps"])
    lengths = np.diff([0, *progress["steps"]]) / 10
    np.testing.assert_allclose(progress["length_mean"], lengths)
    assert progress["steps"][-2] < 2000 <= progress["steps"][-1]


# Catches: a GPU in the output of a run that uses the CPU.
def test_device_cuda_is_refused():
    with pytest.raises(UserError, match="es runs in NumPy on the CPU; leave out --device cuda"):
        es.Config(device="cuda")


# Catches: a missing weight decay, or one that is not multiplied by the learning rate.
def test_weight_decay_shrinks_the_weights_where_the_gradient_is_0(tmp_path, monkeypatch):
    norms = []

    def nothing(theta, *rest):
        norms.append(float(theta.norm()))
        return torch.zeros_like(theta)

    monkeypatch.setattr(es, "gradient", nothing)
    es.train(es.Config(env="CartPole-v1", pairs=2, total_steps=500, lr=0.1, weight_decay=0.5, hidden=(4,), threads=1,
                       quiet=True, tensorboard=False, log_dir=tmp_path.as_posix()))
    assert len(norms) >= 3
    for before, after in zip(norms[:-1], norms[1:], strict=True):
        assert after == pytest.approx(before * (1 - 0.1 * 0.5), rel=1e-4)
