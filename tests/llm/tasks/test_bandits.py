"""Bandits and small MDPs as text: the worlds are the classic ones, and every token has one meaning."""
import numpy as np
import pytest
import torch

from llm.policy.tokenizer import CharTokenizer
from llm.rollout import demonstrated
from llm.tasks.bandits import Bandits, MDPs
from llm.tasks.episodes import played
from llm.tasks.make import make_task
from spinup.envs.worlds.trials import Bandits as Arms
from spinup.errors import UserError

each_task = pytest.mark.parametrize("text", ["bandits:arms=3,pulls=4", "mdps:episodes=2"])


# Catches: a world with parameters of another seed; a reply about another arm or reward; exchanged letters.
def test_reply_of_a_bandit_names_arm_and_reward():
    task = Bandits(arms=3, pulls=4)
    world, classic = task.worlds(6, 5), Arms(6, 3, 4, "cpu", torch.Generator().manual_seed(5))
    world.reset()
    classic.reset()
    assert torch.equal(world.probs, classic.probs)
    for act in (torch.tensor([0, 1, 2, 2, 1, 0]), torch.tensor([2, 2, 2, 0, 0, 0])):
        reward, reply = task.step(world, act + 1)
        expected = classic.step(act)[1]
        assert torch.equal(reward, expected) and reply.shape == (6, 1)
        said = [task.alphabet[i - 1] for i in reply[:, 0].tolist()]
        assert said == ["ABC"[a] if r else "123"[a] for a, r in zip(act.tolist(), expected.tolist(), strict=True)]


# Catches: a reward for a token that is not an arm; a world that does not advance after such a token.
def test_token_that_is_not_an_action_has_reward_0():
    task = Bandits(arms=3, pulls=4)
    world = task.worlds(40, 5)
    world.reset()
    reward, reply = task.step(world, torch.tensor([0, 4, 7, 10] * 10))
    assert not reward.any() and world.clock == 1 and set(reply[:, 0].tolist()) == {7}       # arm a, which did not pay


# Catches: a reward that is rounded down; a reward without limits; the state before the step; an end mark in the middle
# of an episode.
def test_reply_of_an_mdp_is_the_reward_and_the_next_state():
    task, seen = MDPs(episodes=2), set()
    world, classic = task.worlds(50, 7), task.worlds(50, 7)
    world.reset()
    classic.reset()
    for t in range(20):
        act = torch.full((50,), t % 5)
        reward, reply = task.step(world, act + 1)
        state, expected, _ = classic.step(act)
        assert torch.equal(reward, expected)
        for r, s, ids in zip(expected.tolist(), state.tolist(), reply.tolist(), strict=True):
            assert task.alphabet[ids[0] - 1] == "FGHIJKLMN"[min(5, max(-3, round(r))) + 3]
            assert task.alphabet[ids[1] - 1] == ("|" if t % 10 == 9 else str(s))
            seen.add(ids[0])
    assert len(seen) > 7


# Catches: a trial that ends a step early or late; an episode in the world of another number; held-out numbers in
# training.
@each_task
def test_episode_plays_the_world_of_its_number(text):
    task = make_task(text)
    problems, held_out = (task.problems(20, np.random.default_rng(0), which) for which in (False, True))
    numbers = {p.data for p in problems}
    assert len(numbers) == 20 and not numbers & {p.data for p in held_out}
    world, episode = task.worlds(1, problems[3].data), task.open(problems[3])
    world.reset()
    for t in range(world.steps):
        reward, over = episode.act("abc"[t % 3])
        expected, reply = task.step(world, torch.tensor([1 + t % 3]))
        assert reward == float(expected) and over == (t == world.steps - 1)
        assert episode.observe() == "".join(task.alphabet[i - 1] for i in reply[0].tolist())


# Catches: a demonstration that the world contradicts; a mask that trains on the world's tokens; a teacher that
# earns no more than chance.
@each_task
def test_trials_of_the_teacher_fit_the_world_and_beat_chance(text):
    task, rng = make_task(text), np.random.default_rng(0)
    problems = task.problems(60, rng)
    texts = [task.demonstration(p, rng) for p in problems]
    found = [played(task, text, problem) for text, problem in zip(texts, problems, strict=True)]
    steps = task.worlds(1, 0).steps
    assert all(sum(own) == steps and over for own, _, over in found)
    chance = {"bandits": 0.5, "mdps": 1.0}[task.name] * steps
    assert np.mean([reward for _, reward, _ in found]) > 1.1 * chance
    tokenizer = CharTokenizer(task.alphabet)

    class Blank:
        device, shape = torch.device("cpu"), type("Shape", (), {"context": 512})

    batch = demonstrated(task, tokenizer, Blank, problems[:2], texts[:2], task.max_tokens)
    assert batch.responses.mask.sum(1).tolist() == [steps, steps]


def test_sizes_out_of_range_are_refused():
    for text in ("bandits:arms=1", "bandits:arms=10", "mdps:episodes=17"):
        with pytest.raises(UserError, match=text.partition(":")[2].partition("=")[0]):
            make_task(text)
