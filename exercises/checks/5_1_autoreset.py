"""Checks of 5.1: which transitions of a stream in Gymnasium's format are real, decided one after the other."""
import torch

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    kind="bug hunt", minutes=(10, 20), difficulty=2,
    hints=["For one environment, write down what Gymnasium returns around the end of an episode, call by call: obs, "
           "reward, terminated. In which call did the policy choose no action?",
           "The step that ends an episode is real. From it the value function learns how an episode ends. Look at the "
           "step after it: the obs of that step belongs to one episode, and its next_obs belongs to another.",
           "Keep a step unless the step before it in the same environment ended an episode, by termination or "
           "truncation. For the first step of a batch, `ended` gives this flag.",
           "Flags of the step before each step: torch.cat([ended[:, None], (... | ...)[:, :-1]], 1), `[N, T]`. Keep "
           "the steps where this is False."])


def stream(make: torch.Generator, envs: int, steps: int, chance: float, over: tuple[int, ...] = ()):
    """Return transitions of N environments in next-step mode; the environments in `over` start just after an episode
    end.

    An observation is (number of the environment, place). An episode starts at any place. A step leads to a neighbouring
    place, and so may a restart.
    """
    ended = torch.zeros(envs, dtype=torch.bool)
    ended[list(over)] = True
    before = ended.clone()
    obs, next_obs = (torch.zeros(envs, steps, 2) for _ in range(2))
    rew, terminated = torch.randn(envs, steps, generator=make), torch.zeros(envs, steps, dtype=torch.bool)
    rew = rew * (torch.rand(envs, steps, generator=make) < 0.5)           # many rewards of real steps are 0 too
    truncated, act = terminated.clone(), torch.randint(4, (envs, steps), generator=make)
    first = torch.randint(-2, 3, (envs, steps + 1), generator=make).tolist()
    for n in range(envs):
        place = first[n][-1]
        for t in range(steps):
            obs[n, t] = torch.tensor([n, place])
            if ended[n]:
                place, rew[n, t], ended[n] = first[n][t], 0.0, False
            else:
                place += int(act[n, t]) % 2 * 2 - 1
                end, cut = (torch.rand(2, generator=make) < chance).tolist()
                terminated[n, t], truncated[n, t], ended[n] = end, cut, end or cut
            next_obs[n, t] = torch.tensor([n, place])
    return case(obs=obs, act=act, rew=rew, next_obs=next_obs, terminated=terminated, truncated=truncated, ended=before)


def cases():
    no = torch.zeros(1, 4, dtype=torch.bool)
    end = torch.tensor([[False, True, False, False]])
    by_hand = {"obs": torch.tensor([[[0.0], [1.0], [2.0], [0.0]]]), "act": torch.tensor([[1, 0, 1, 0]]),
               "rew": torch.tensor([[1.0, 1.0, 0.0, 1.0]]), "next_obs": torch.tensor([[[1.0], [2.0], [0.0], [1.0]]]),
               "ended": torch.tensor([False])}
    make = torch.Generator().manual_seed(1)
    return [*(case(**by_hand, terminated=over, truncated=cut) for over, cut in ((end, no), (no, end), (end, end))),
            stream(make, 3, 12, 0.2), stream(make, 3, 6, 0.3, over=(0, 2)), stream(make, 4, 5, 0.0),
            stream(make, 2, 1, 0.9, over=(0, 1))]


transitions = exercise.function("transitions", cases())


LARGE = {n: 1000 * transitions.cases[-3][n] for n in ("obs", "act", "rew", "next_obs")}
transitions.extreme("Observations, actions or rewards are changed on the way; return them unchanged.",
                    **{**transitions.cases[-3], **LARGE})


def chosen(kept, obs, act, rew, next_obs, terminated, truncated, ended):
    return obs[kept], act[kept], rew[kept], next_obs[kept], terminated[kept]


def before(ends, first):
    """Return whether such an end comes before each step, `[N, T]`."""
    return torch.cat([first[:, None], ends[:, :-1]], 1)


@transitions.reference
def one_by_one(obs, act, rew, next_obs, terminated, truncated, ended):
    found = []
    for n in range(len(obs)):
        over = bool(ended[n])
        for t in range(obs.shape[1]):
            if not over:
                found.append((n, t))
            over = not over and bool(terminated[n, t] or truncated[n, t])
    n, t = torch.tensor(found, dtype=torch.long).view(-1, 2).T
    return obs[n, t], act[n, t], rew[n, t], next_obs[n, t], terminated[n, t]


@transitions.mistake("Some of the returned steps never happened. Run this file and find the step that no action can "
                     "cause.")
def _(obs, act, rew, next_obs, terminated, truncated, ended):
    return chosen(torch.ones_like(terminated), obs, act, rew, next_obs, terminated, truncated, ended)


@transitions.mistake("You recognise reset steps by their reward of 0. Real steps can have reward 0 too, and in many "
                     "tasks nearly all do; check whether the step before ended an episode.")
def _(obs, act, rew, next_obs, terminated, truncated, ended):
    return chosen(rew != 0, obs, act, rew, next_obs, terminated, truncated, ended)


@transitions.mistake("You recognise reset steps by an observation of 0 together with a reward of 0. Episodes can start "
                     "elsewhere, and real steps can lead there; check whether the step before ended an episode.")
def _(obs, act, rew, next_obs, terminated, truncated, ended):
    return chosen((next_obs.flatten(2)[..., -1] != 0) | (rew != 0), obs, act, rew, next_obs, terminated, truncated,
                  ended)


@transitions.mistake("You recognise reset steps by an observation that does not increase. Real steps can lead back, "
                     "and a restart can lead forward; check whether the step before ended an episode.")
def _(obs, act, rew, next_obs, terminated, truncated, ended):
    return chosen(next_obs[..., -1] > obs[..., -1], obs, act, rew, next_obs, terminated, truncated, ended)


@transitions.mistake("You recognise reset steps by the distance that they cover. A restart can lead to a neighbouring "
                     "place; check whether the step before ended an episode.")
def _(obs, act, rew, next_obs, terminated, truncated, ended):
    near = (next_obs - obs).flatten(2)[..., -1].abs() == 1
    return chosen(near, obs, act, rew, next_obs, terminated, truncated, ended)


@transitions.mistake("You remove the step that ends an episode. It is real, and only this step teaches that nothing "
                     "follows a termination; remove the step after it.")
def _(obs, act, rew, next_obs, terminated, truncated, ended):
    return chosen(~(terminated | truncated), obs, act, rew, next_obs, terminated, truncated, ended)


@transitions.mistake("You remove both the step that ends an episode and the reset step after it. Keep the first: only "
                     "this step teaches that nothing follows a termination.")
def _(obs, act, rew, next_obs, terminated, truncated, ended):
    ends = terminated | truncated
    return chosen(~ends & ~before(ends, ended), obs, act, rew, next_obs, terminated, truncated, ended)


@transitions.mistake("The reset step after a truncation is still there. An environment restarts after a time limit as "
                     "it does after a termination; remove it in both cases.")
def _(obs, act, rew, next_obs, terminated, truncated, ended):
    return chosen(~before(terminated, ended), obs, act, rew, next_obs, terminated, truncated, ended)


@transitions.mistake("The reset step after a termination is still there. An environment restarts after both kinds of "
                     "end; remove it in both cases.")
def _(obs, act, rew, next_obs, terminated, truncated, ended):
    return chosen(~before(truncated, ended), obs, act, rew, next_obs, terminated, truncated, ended)


@transitions.mistake("The reset step is still there where both flags are set. The episode ended there too; remove it.")
def _(obs, act, rew, next_obs, terminated, truncated, ended):
    return chosen(~before(terminated ^ truncated, ended), obs, act, rew, next_obs, terminated, truncated, ended)


@transitions.mistake("You always keep the first step of the batch. It is a restart if the previous batch stopped at an "
                     "episode end; use `ended`.")
def _(obs, act, rew, next_obs, terminated, truncated, ended):
    kept = ~before(terminated | truncated, torch.zeros_like(ended))
    return chosen(kept, obs, act, rew, next_obs, terminated, truncated, ended)


@transitions.mistake("You always remove the first step of the batch. It is a restart only where `ended` is True.")
def _(obs, act, rew, next_obs, terminated, truncated, ended):
    kept = ~before(terminated | truncated, torch.ones_like(ended))
    return chosen(kept, obs, act, rew, next_obs, terminated, truncated, ended)


@transitions.mistake("The reset step is still there, marked as a termination. Then the end of every episode is learned "
                     "to have value 0, which is wrong after a truncation; remove the step.")
def _(obs, act, rew, next_obs, terminated, truncated, ended):
    restart = before(terminated | truncated, ended)
    return chosen(torch.ones_like(restart), obs, act, rew, next_obs, terminated | restart, truncated, ended)


@transitions.mistake("Truncated steps come out as terminated ones. After a time limit the next observation still has a "
                     "value, and the learner must bootstrap from it; return terminated alone.")
def _(obs, act, rew, next_obs, terminated, truncated, ended):
    kept = ~before(terminated | truncated, ended)
    return chosen(kept, obs, act, rew, next_obs, terminated | truncated, truncated, ended)


@transitions.mistake("The steps are correct, but in another order: you group the steps of all environments by time. "
                     "Use the order of `x[kept]`: the steps of the first environment in order of time, then those of "
                     "the second.")
def _(obs, act, rew, next_obs, terminated, truncated, ended):
    kept = ~before(terminated | truncated, ended)
    turned = [x.transpose(0, 1) for x in (obs, act, rew, next_obs, terminated)]
    return tuple(x[kept.T] for x in turned)


@transitions.mistake("You look for the end in the row above, which is another environment; time is the last axis of "
                     "`[N, T]`.")
def _(obs, act, rew, next_obs, terminated, truncated, ended):
    kept = ~torch.cat([ended[:1].expand(1, obs.shape[1]), (terminated | truncated)[:-1]], 0)
    return chosen(kept, obs, act, rew, next_obs, terminated, truncated, ended)


@exercise.probe
def gymnasium_itself(student):
    """Gymnasium's CartPole, 4 environment copies, 500 random steps: every transition kept must be possible"""
    import gymnasium

    env = gymnasium.make_vec("CartPole-v1", 4, vectorization_mode="sync",
                             vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP})
    env.action_space.seed(0)
    obs, _ = env.reset(seed=0)
    seen, ended = [], torch.zeros(4, dtype=torch.bool)
    for _ in range(500):
        act = env.action_space.sample()
        next_obs, rew, terminated, truncated, _ = env.step(act)
        seen.append([torch.as_tensor(x) for x in (obs.copy(), act, rew, next_obs.copy(), terminated, truncated)])
        obs = next_obs
    batch = [torch.stack(x, 1) for x in zip(*seen, strict=True)]
    real = int((batch[2] != 0).sum())                                     # a restart has reward 0, a real step 1
    now, _, _, later, _ = student.transitions(*batch, ended)
    moved = (later[:, 0] - now[:, 0] - 0.02 * now[:, 1]).abs()            # the cart moves at its speed for 0.02 s
    if len(moved) and float(moved.max()) > 1e-5:
        raise Wrong(f"among {len(moved):,} steps of CartPole, {int((moved > 1e-5).sum())} contain a jump of the cart, "
                    "which only a restart can cause", "transitions")
    if len(moved) != real:
        raise Wrong(f"{real:,} steps were taken in CartPole, but {len(moved):,} are kept", "transitions")
