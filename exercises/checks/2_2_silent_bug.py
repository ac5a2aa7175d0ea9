"""Checks of 2.2: the loss step by step; what hides the bug, and what repairs half of it."""
import torch
from torch import nn

from spinup.exercises.checks import Exercise, case

exercise = Exercise(
    kind="bug hunt", minutes=(10, 20), difficulty=2,
    hints=["Every line does what it says. Ask of each tensor what shape it has, not what it means.",
           "Print the shapes of what q_loss computes, with the small example at the end of the file. How many numbers "
           "is the mean taken of, and how many steps are there?",
           "A layer with one output gives `[B, 1]`, and a reward is `[B]`. Between the two, broadcasting makes all "
           "pairs, `[B, B]`, without a word. The docstring of q_values says which of the two shapes is wrong.",
           "q_values returns one axis more than its docstring says. Take that axis away, that one alone: "
           "`net(...)` and then `.squeeze(...)`, with the axis named."])

make = torch.Generator().manual_seed(0)


def normal(*shape, derive=False):
    return torch.randn(shape, generator=make).requires_grad_(derive)


def critic(k, d, wide):
    """A critic with weights of its own; wide: with a hidden layer."""
    net = nn.Sequential(nn.Linear(k + d, 5), nn.Tanh(), nn.Linear(5, 1)) if wide else nn.Linear(k + d, 1)
    for p in net.parameters():
        p.data = torch.randn(p.shape, generator=make) if wide else torch.full(p.shape, float(p.ndim == 2))
        p.requires_grad_(False)
    return net


def batch(size, k, d):
    return case(net=critic(k, d, True), target_net=critic(k, d, True), obs=normal(size, k, derive=True),
                act=normal(size, d, derive=True), rew=normal(size), next_obs=normal(size, k, derive=True),
                next_act=normal(size, d), terminated=(torch.rand(size, generator=make) < 0.4).float(), gamma=0.9)


plain = critic(1, 1, False)
no = torch.zeros(2, 1)
loss = exercise.function("q_loss", [
    case(net=plain, target_net=plain, obs=torch.tensor([[0.0], [2.0]]), act=no, rew=torch.tensor([0.0, 2.0]),
         next_obs=no, next_act=no, terminated=torch.zeros(2), gamma=0.9),
    batch(6, 3, 1), batch(1, 3, 2), batch(9, 2, 2)])


@loss.reference
def step_by_step(net, target_net, obs, act, rew, next_obs, next_act, terminated, gamma):
    errors = []
    for i in range(len(rew)):
        aim = float(rew[i])
        if not terminated[i]:
            aim += gamma * target_net(torch.cat([next_obs[i], next_act[i]])).item()
        errors.append((net(torch.cat([obs[i], act[i]]))[0] - aim)**2)
    return torch.stack(errors).mean()


def tables(net, target_net, obs, act, next_obs, next_act):
    """Both critics' values, `[B, 1]`."""
    with torch.no_grad():
        after = target_net(torch.cat([next_obs, next_act], -1))
    return net(torch.cat([obs, act], -1)), after


loss.extreme("Rewards, values or errors are clipped: where they are large, the loss is another one.",
             **{**loss.cases[0], "obs": torch.tensor([[300.0], [-50.0]]), "rew": torch.tensor([-900.0, 40.0])})


@loss.mistake("The loss is that of other numbers: with two steps whose values are exactly their rewards it is 2, and "
              "not 0. Each step is compared with the rewards of all steps, so that no value can be right.")
def _(net, target_net, obs, act, rew, next_obs, next_act, terminated, gamma):
    q, after = tables(net, target_net, obs, act, next_obs, next_act)
    return ((q - (rew + gamma * (1 - terminated) * after))**2).mean()


@loss.mistake("The values that learn are in line with the batch now, the target is not: it still holds a number for "
              "every pair of steps.")
def _(net, target_net, obs, act, rew, next_obs, next_act, terminated, gamma):
    q, after = tables(net, target_net, obs, act, next_obs, next_act)
    return ((q.squeeze(-1) - (rew + gamma * (1 - terminated) * after))**2).mean()


@loss.mistake("The target is right now, and is compared with values that do not stand in line with it: each value with "
              "the targets of all steps. Values of both networks go wrong in the same place.")
def _(net, target_net, obs, act, rew, next_obs, next_act, terminated, gamma):
    q, after = tables(net, target_net, obs, act, next_obs, next_act)
    return ((q - (rew + gamma * (1 - terminated) * after.squeeze(-1)))**2).mean()


@loss.mistake("Rewards and values are in line now; terminations are not: each step is masked by those of all steps. "
              "Where nothing terminates, as on Pendulum-v1, that cannot be seen.")
def _(net, target_net, obs, act, rew, next_obs, next_act, terminated, gamma):
    q, after = tables(net, target_net, obs, act, next_obs, next_act)
    return ((q - (rew.unsqueeze(-1) + gamma * (1 - terminated) * after))**2).mean()


@loss.mistake("The target is averaged over the batch: every step learns the same number. The shapes agree, and the "
              "meaning is the bug's.")
def _(net, target_net, obs, act, rew, next_obs, next_act, terminated, gamma):
    q, after = tables(net, target_net, obs, act, next_obs, next_act)
    return ((q.squeeze(-1) - (rew + gamma * (1 - terminated) * after).mean())**2).mean()


@loss.mistake("A gradient flows into the target now; the critic would move what it should reach.")
def _(net, target_net, obs, act, rew, next_obs, next_act, terminated, gamma):
    after = target_net(torch.cat([next_obs, next_act], -1)).squeeze(-1)
    return ((net(torch.cat([obs, act], -1)).squeeze(-1) - rew - gamma * (1 - terminated) * after)**2).mean()


values = exercise.function("q_values", [
    case(net=plain, obs=torch.tensor([[0.0], [2.0]]), act=no),
    case(net=critic(3, 2, True), obs=normal(4, 3), act=normal(4, 2, derive=True)),
    case(net=critic(3, 1, True), obs=normal(1, 3), act=normal(1, 1)),
    case(net=critic(2, 1, True), obs=normal(2, 3, 2), act=normal(2, 3, 1)),
    case(net=critic(2, 1, True), obs=normal(2), act=normal(1))])


@values.reference
def filled_in(net, obs, act):
    found = torch.zeros(obs.shape[:-1])
    rows = [net(torch.cat([o, a]))[0] for o, a in zip(obs.reshape(-1, obs.shape[-1]), act.reshape(-1, act.shape[-1]),
                                                     strict=True)]
    return torch.stack(rows).view(found.shape)


values.extreme("Values or observations are clipped.", net=plain, obs=torch.tensor([[300.0], [-50.0]]), act=no)


@values.mistake("The loss is right, and q_values still returns something else than one value for each step, `[...]`, "
                "as its docstring promises: whoever calls it next meets the same bug.")
def _(net, obs, act):
    return net(torch.cat([obs, act], -1))


@values.mistake("Every axis of length 1 is taken away, also that of the batch where it holds one step; name the axis "
                "that is one too many.")
def _(net, obs, act):
    return net(torch.cat([obs, act], -1)).squeeze()


@values.mistake("All axes are made one: steps of several environments, `[N, T]`, would lose their order. Only the last "
                "axis is one too many.")
def _(net, obs, act):
    return net(torch.cat([obs, act], -1)).flatten()
