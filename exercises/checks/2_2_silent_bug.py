"""Checks of 2.2: the loss step by step, one case in which the bug has no effect, and half solutions."""
import torch
from torch import nn

from spinup.exercises.checks import Exercise, case

exercise = Exercise(
    kind="bug hunt", minutes=(10, 20), difficulty=2,
    hints=["Each line looks correct. For each tensor, ask which shape it has, not what it means.",
           "Print the shapes of the tensors in q_loss, with the small example at the end of the file. Over how many "
           "numbers does the mean run, and how many steps are there?",
           "A layer with one output gives `[B, 1]`, and a reward is `[B]`. Broadcasting combines the two to all pairs, "
           "`[B, B]`, without a warning. The docstring of q_values says which of the two shapes is wrong.",
           "q_values returns one axis more than its docstring says. Remove that axis and no other: `net(...)`, then "
           "`.squeeze(...)` with the number of the axis."])

make = torch.Generator().manual_seed(0)


def normal(*shape, derive=False):
    return torch.randn(shape, generator=make).requires_grad_(derive)


def critic(k, d, wide):
    """Return a critic with its own weights; wide: with a hidden layer. It maps `[..., k + d]` to `[..., 1]`."""
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
    """Return the values of both critics, `[B, 1]`."""
    with torch.no_grad():
        after = target_net(torch.cat([next_obs, next_act], -1))
    return net(torch.cat([obs, act], -1)), after


loss.extreme("Rewards, values or errors are clipped, so the loss is wrong where they are large; do not clip them.",
             **{**loss.cases[0], "obs": torch.tensor([[300.0], [-50.0]]), "rew": torch.tensor([-900.0, 40.0])})


@loss.mistake("The loss compares the wrong numbers. For two steps whose values equal their rewards it is 2, not 0.")
def _(net, target_net, obs, act, rew, next_obs, next_act, terminated, gamma):
    q, after = tables(net, target_net, obs, act, next_obs, next_act)
    return ((q - (rew + gamma * (1 - terminated) * after))**2).mean()


@loss.mistake("The predicted values have the correct shape now, but the target does not: it still holds a number for "
              "every pair of steps.")
def _(net, target_net, obs, act, rew, next_obs, next_act, terminated, gamma):
    q, after = tables(net, target_net, obs, act, next_obs, next_act)
    return ((q.squeeze(-1) - (rew + gamma * (1 - terminated) * after))**2).mean()


@loss.mistake("The target is correct now, but the values that you compare with it have the wrong shape: each value is "
              "compared with the targets of all steps. Both networks get their values from `q_values`; fix the shape "
              "there.")
def _(net, target_net, obs, act, rew, next_obs, next_act, terminated, gamma):
    q, after = tables(net, target_net, obs, act, next_obs, next_act)
    return ((q - (rew + gamma * (1 - terminated) * after.squeeze(-1)))**2).mean()


@loss.mistake("Rewards and values have matching shapes now, but terminations do not: each step is masked by the "
              "terminations of all steps. This stays hidden where nothing terminates, as on Pendulum-v1.")
def _(net, target_net, obs, act, rew, next_obs, next_act, terminated, gamma):
    q, after = tables(net, target_net, obs, act, next_obs, next_act)
    return ((q - (rew.unsqueeze(-1) + gamma * (1 - terminated) * after))**2).mean()


@loss.mistake("You average the target over the batch, so every step learns the same number. The shapes match now, but "
              "the effect of the bug remains.")
def _(net, target_net, obs, act, rew, next_obs, next_act, terminated, gamma):
    q, after = tables(net, target_net, obs, act, next_obs, next_act)
    return ((q.squeeze(-1) - (rew + gamma * (1 - terminated) * after).mean())**2).mean()


@loss.mistake("A gradient flows into the target now, so the critic would move the target; compute the target without "
              "gradients.")
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


values.extreme("Values or observations are clipped; do not clip them.", net=plain, obs=torch.tensor([[300.0], [-50.0]]),
               act=no)


@values.mistake("The loss is correct, but q_values still does not return one value for each step, `[...]`, as its "
                "docstring promises. The next caller gets the same bug; fix the shape in q_values.")
def _(net, obs, act):
    return net(torch.cat([obs, act], -1))


@values.mistake("You remove every axis of length 1, including the batch axis of a batch with one step; name the axis "
                "to remove.")
def _(net, obs, act):
    return net(torch.cat([obs, act], -1)).squeeze()


@values.mistake("You flatten all axes, so steps of several environments, `[N, T]`, lose their order. Remove only the "
                "last axis.")
def _(net, obs, act):
    return net(torch.cat([obs, act], -1)).flatten()
