"""HER compared with brute force: the goals of a batch, and its rewards, which are those of the environment."""
from copy import deepcopy

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

import spinup
from spinup.algos import her
from spinup.algos.her import future, relabel
from spinup.core.episode_ends import Episodes
from spinup.core.fast.adam import FlatAdam
from spinup.core.replay import Replay
from spinup.envs import make
from spinup.envs.worlds.reacher import GoalReacher
from spinup.errors import UserError

# Settings for tests/algos/test_suite.py, with which each task is learned in a second or two.
SUITE = {
    "settings": {"total_steps": 3072, "hidden": (32, 32), "batch_size": 64, "learning_starts": 512, "lr": 0.003,
        "update_every": 8, "update_ratio": 0.25, "threads": 1, "tau": 0.02},
    "tasks": {"goal": {}}}


def recorded(env, steps: int) -> tuple[Replay, Episodes, list]:
    """Take random actions. Return a replay buffer, its episodes and a list of (obs, next obs, reward, episode number).
    """
    shape, size = env.reset().shape[1:], 2 * steps * env.num_envs         # larger, for the frames of episode ends
    replay = Replay(size, env.num_envs, shape, np.dtype(np.float32), (2,), np.float32)
    episodes, rng, past, number = Episodes(replay), np.random.default_rng(1), [], np.arange(env.num_envs)
    for _ in range(steps):
        obs, act = env.obs, rng.uniform(-1, 1, (env.num_envs, 2)).astype(np.float32)
        step = env.step(act)
        replay.add(obs, act, step)
        episodes.follow()
        led_to = step.obs if step.final_obs is None else step.final_obs
        past += zip(obs, led_to, step.reward, number.tolist(), strict=True)
        number = number + env.num_envs * step.truncated
    return replay, episodes, past


# Catches: a goal of another episode or environment, or of an earlier step; a last step that is never sampled; a
# replaced goal in a transition that keeps its own; a reward for the old goal; a goal that is replaced in only one of
# the two observations; a reward for the state before the step.
def test_hindsight_goals_come_from_later_steps_of_the_same_episode():
    env, rng = make("GoalReacher-v0", 3, seed=5), np.random.default_rng(2)
    replay, episodes, past = recorded(env, 120)
    rows = np.tile(np.arange(len(replay)), 40)
    later = future(rows, episodes.last(rows), 3, rng)
    assert all(past[k][3] == past[row][3] for row, k in zip(rows, later, strict=True)) and (later >= rows).all()
    first = later[rows < 3] // 3                                          # uniform over 50 steps
    assert len(np.unique(first)) > 40 and abs(first.mean() - 24.5) < 4 and first.max() >= 48

    goal = replay.sample(later).next_obs[:, env.achieved]
    chosen = torch.from_numpy(rng.random(len(rows)) < 0.8)
    batch, judge, tally = relabel(replay.sample(rows), goal, chosen, env), GoalReacher(), {0.0: 0, -1.0: 0}
    for i in range(0, len(rows), 29):
        obs, next_obs, reward, _ = past[rows[i]]
        if chosen[i]:
            _, aim, _, _ = (None, past[later[i]][1][env.achieved], None, None)
            obs, next_obs = obs.copy(), next_obs.copy()
            obs[env.desired] = next_obs[env.desired] = aim
            reward = judge.compute_reward(next_obs[env.achieved], aim, {})
            tally[float(reward)] += 1
        np.testing.assert_array_equal(batch.obs[i], obs)
        np.testing.assert_array_equal(batch.next_obs[i], next_obs)
        assert batch.rew[i] == reward and batch.terminated[i] == 0
    assert min(tally.values()) > 20


class Ends(GoalReacher):
    """An environment that terminates at the goal."""

    def compute_terminated(self, achieved_goal, desired_goal, info):
        return bool(self.compute_reward(achieved_goal, desired_goal, info) == 0)


# Catches: a termination that is not computed again for the new goal.
def test_termination_is_computed_again_for_the_new_goal():
    env = make(Ends, 2, seed=3)
    replay, _, _ = recorded(env, 60)
    rows = np.arange(len(replay))
    own = replay.sample(rows).next_obs[:, env.achieved]
    batch = relabel(replay.sample(rows), own, torch.from_numpy(rows % 2 == 0), env)
    assert batch.terminated.tolist() == [1.0, 0.0] * 60 and (batch.rew[::2] == 0).all()
    assert (batch.rew[1::2] == replay.sample(rows).rew[1::2]).all()


class InPlace(GoalReacher):
    """An environment whose `compute_reward` changes its arguments in place."""

    def compute_reward(self, achieved_goal, desired_goal, info):
        achieved_goal -= desired_goal
        return -np.linalg.norm(achieved_goal, axis=-1)


# Catches: views of the batch as arguments of `compute_reward`, so that the critic learns from wrong next states.
def test_in_place_changes_by_compute_reward_do_not_reach_the_batch():
    env = make(InPlace, 2, seed=3)
    replay, _, _ = recorded(env, 10)
    own = replay.sample(np.arange(20))
    goal = torch.ones(20, 2)
    batch = relabel(own, goal, torch.ones(20, dtype=torch.bool), env)
    assert torch.equal(batch.next_obs[:, env.achieved], own.next_obs[:, env.achieved]) and (goal == 1).all()
    assert (batch.rew < 0).all()


class Narrow(GoalReacher):
    """An environment whose `compute_reward` supports one goal at a time."""

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -float(np.linalg.norm(achieved_goal - desired_goal) > 0.05)


# Catches: rewards of a wrapper and rewards of compute_reward in the same batch.
def test_wrapper_that_changes_the_rewards_is_refused(tmp_path):
    with pytest.raises(UserError, match="earned -10, but compute_reward gives -1 for its goals; use no wrapper"):
        spinup.her(lambda: gymnasium.wrappers.TransformReward(gymnasium.make("GoalReacher-v0"), lambda r: 10 * r),
                   log_dir=tmp_path.as_posix(), total_steps=200, learning_starts=100, quiet=True, tensorboard=False)


# Catches: the reward of one goal for a whole batch; an error about shapes in the middle of a run.
def test_environments_without_batches_of_goals_are_refused(tmp_path):
    with pytest.raises(UserError, match="make it take goals"):
        spinup.her(Narrow, log_dir=tmp_path.as_posix(), total_steps=200, learning_starts=100, quiet=True)
    with pytest.raises(UserError, match="needs an environment with goals.*GoalReacher-v0"):
        spinup.her("Pendulum-v1", log_dir=(tmp_path / "no").as_posix())
    assert not (tmp_path / "no").exists()


class Wrong(GoalReacher):
    """An environment whose achieved and desired goals have different shapes."""

    def __init__(self):
        super().__init__()
        self.observation_space["achieved_goal"] = Box(-1, 1, (3,))


class Bytes(GoalReacher):
    """An environment with goals of bytes. Networks get bytes divided by 255, but `compute_reward` needs them unchanged.
    """

    def __init__(self):
        super().__init__()
        for key in ("achieved_goal", "desired_goal"):
            self.observation_space[key] = Box(0, 255, self.observation_space[key].shape, np.uint8)


class Staged(GoalReacher):
    """An environment with a Discrete part, which is a one-hot vector of five in the flat observation."""

    def __init__(self):
        super().__init__()
        self.observation_space = Dict({"a_stage": Discrete(5), **self.observation_space.spaces})

    def reset(self, **how):
        obs, info = super().reset(**how)
        return {"a_stage": 3, **obs}, info


# Catches: a Discrete part that is counted as one number, so that wrong parts are used as the goals.
def test_goals_are_found_after_a_one_hot_part():
    env, plain = (make(kind, 2, seed=1) for kind in (Staged, GoalReacher))
    obs, same = env.reset(), plain.reset()
    assert obs.shape[1] == same.shape[1] + 5
    for goal, expected in ((env.achieved, plain.achieved), (env.desired, plain.desired)):
        np.testing.assert_array_equal(obs[:, goal], same[:, expected])


@pytest.mark.parametrize("env, words", [(Wrong, "make both a Box of the same shape"), (Bytes, "must not be bytes")])
def test_goals_of_different_shapes_or_of_bytes_are_refused(env, words):
    with pytest.raises(UserError, match=words):
        make(env)


# The test records a whole training run. Catches: goals of the observation before the step; a wrong share of replaced
# goals; gradient steps on the batch before its goals are replaced; observations of the critic that are not normalised.
def test_training_uses_goals_that_were_achieved_later(tmp_path, monkeypatch):
    seen, steps, original, minimizer = [], [], her.relabel, FlatAdam.minimizer

    def told(batch, goal, chosen, env):
        found, replay = original(batch, goal, chosen, env), replays[0]
        rows = replay.sample(np.arange(replay.oldest, replay.count))
        reached = {*map(tuple, rows.next_obs[:, env.achieved].numpy().tolist())}
        seen.append((reached, batch, goal.clone(), chosen.clone(), found))
        return found

    def kept(optimizer, loss):
        minimize = minimizer(optimizer, loss)

        def step(*batch, **settings):
            steps.append([x.clone() for x in batch])
            return minimize(*batch, **settings)
        return step

    monkeypatch.setattr(her, "relabel", told)
    monkeypatch.setattr(FlatAdam, "minimizer", kept)
    asked, future_of = [], her.future
    monkeypatch.setattr(her, "future", lambda rows, last, n, rng: asked.append((last - rows, n)) or future_of(
        rows, last, n, rng))
    replays, make_replay = [], her.make_replay
    monkeypatch.setattr(her, "make_replay", lambda *args: replays.append(make_replay(*args)) or replays[-1])
    her.train(her.Config(env="GoalReacher-v0", hindsight_goals=3, total_steps=260, learning_starts=200, batch_size=64,
                         hidden=(8,), num_envs=2, threads=1, quiet=True, tensorboard=False, normalise_obs=True,
                         log_dir=tmp_path.as_posix()))
    assert len(seen) > 20 and len(steps) == 2 * len(seen)
    assert all(n == 2 and (gap >= 0).all() and (gap % 2 == 0).all() for gap, n in asked)
    assert max(gap.max() for gap, _ in asked) >= 80                       # episodes of 50 steps, in two copies
    assert float(torch.cat([chosen for _, _, _, chosen, _ in seen]).float().mean()) == pytest.approx(0.75, abs=0.03)
    for (reached, batch, goal, chosen, found), (obs, _, rew, next_obs, _) in zip(seen, steps[::2], strict=True):
        assert {*map(tuple, goal.numpy().tolist())} <= reached
        assert torch.equal(rew, found.rew) and obs.shape == batch.obs.shape
        if chosen.all() or not chosen.any():
            continue
        moved = (found.obs != batch.obs).any(1)
        assert not moved[~chosen].any() and moved[chosen].any()
        # Both use one normaliser: observations that are equal before normalisation are equal after it.
        same = (found.obs == found.next_obs).all(1)
        assert torch.equal(obs[same], next_obs[same]) and not torch.equal(obs, found.obs)


# Catches: a target from the online networks; a wrong gamma; target networks that do not move, or that are trained; an
# actor loss without the saturation penalty, or with a wrong sign of it; the standard deviation over action dimensions
# in place of that over states.
def test_critic_and_actor_losses_match_hand_calculation(tmp_path, monkeypatch):
    nets, found, actor, moved = {}, [], [], []
    make_policy, minimizer, polyak = her.make_policy, FlatAdam.minimizer, her.polyak
    monkeypatch.setattr(her, "make_policy", lambda *args: nets.setdefault("policy", make_policy(*args)))
    monkeypatch.setattr(her, "deepcopy", lambda net: nets.setdefault("target", deepcopy(net)))
    monkeypatch.setattr(her, "polyak", lambda target, online, tau: moved.append(tau) or polyak(target, online, tau))

    def kept(optimizer, loss):
        minimize = minimizer(optimizer, loss)

        def step(*batch):
            if len(batch) == 1:                                           # the actor
                policy = nets["policy"]
                with torch.no_grad():
                    output = policy.pi(batch[0])
                    act = output.tanh()
                    loss = -policy.values(batch[0], act).mean() + 0.5 * output.square().mean()
                stats = minimize(*batch)
                actor.append((stats["loss"], loss, stats["action_std"], act.std(0).mean()))
                return stats
            obs, act, rew, next_obs, terminated = batch
            policy, target = nets["policy"], nets["target"]
            next_value = target.q[0](torch.cat([next_obs, target.pi(next_obs).tanh()], -1))[:, 0]
            y = rew + 0.9 * (1 - terminated) * next_value
            expected = (policy.q[0](torch.cat([obs, act], -1))[:, 0] - y).square().mean().item()
            stats = minimize(*batch)
            found.append((stats["loss"].item(), expected))
            return stats
        return step

    monkeypatch.setattr(FlatAdam, "minimizer", kept)
    her.train(her.Config(env="GoalReacher-v0", total_steps=260, learning_starts=200, batch_size=32, hidden=(8,),
                         lr=0.03, gamma=0.9, tau=0.1, saturation_coef=0.5, num_envs=2, threads=1, quiet=True,
                         tensorboard=False, log_dir=tmp_path.as_posix()))
    assert len(found) > 20 and moved == [0.1] * len(found)
    assert [loss for loss, _ in found] == pytest.approx([expected for _, expected in found], rel=1e-3)
    losses, expected, spread, by_hand = torch.tensor(actor).T
    torch.testing.assert_close(losses, expected, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(spread, by_hand, rtol=1e-3, atol=1e-5)


class Fixed(GoalReacher):
    """An environment that always has the same desired goal."""

    def reset(self, **how):
        obs, info = super().reset(**how)
        self.goal = obs["desired_goal"] = np.array([0.1, 0.1], obs["desired_goal"].dtype)
        return obs, info


# Catches: statistics of the desired goals alone, with which all hindsight goals are clipped to the same number.
def test_normalisation_statistics_include_hindsight_goals(tmp_path, monkeypatch):
    made, make_policy = [], her.make_policy
    monkeypatch.setattr(her, "make_policy", lambda *args: made.append(make_policy(*args)) or made[-1])
    spinup.her(Fixed, total_steps=400, learning_starts=300, hidden=(8,), normalise_obs=True, threads=1, quiet=True,
               tensorboard=False, log_dir=tmp_path.as_posix())
    assert (made[-1].normaliser.var[make(Fixed, 1).desired] > 1e-4).all()
