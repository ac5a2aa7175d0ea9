"""Checks of 1.2: the network layer by layer, actions as quantiles, the entropy by torch.distributions."""
import math
from unittest.mock import patch

import torch
from torch import nn
from torch.distributions import Normal

from spinup.exercises.checks import Exercise, Wrong, case
from spinup.exercises.layers import Net

CONSTANT = 0.5 + 0.5 * math.log(2 * math.pi)            # entropy of a standard normal distribution

exercise = Exercise(
    minutes=(15, 25), difficulty=2,
    hints=["A network is a list of layers. An action is a standard normal number, stretched and then shifted. The "
           "entropy of independent numbers is the sum of their entropies.",
           "One `nn.Linear` for each pair of neighbours in sizes, `nn.Tanh` after all of them but the last. log_std is "
           "a logarithm. In the formula of the entropy, all three terms stand inside the sum.",
           "mlp: for each pair append a Linear and a Tanh; give all but the last element to nn.Sequential. sample: the "
           "mean plus the deviation times the noise. entropy: add 1/2 and half of log 2 pi to each of log_std, then "
           "sum over the last axis.",
           "for n_in, n_out in zip(sizes[:-1], sizes[1:]): layers += [nn.Linear(n_in, n_out), nn.Tanh()], and what is "
           "one too many goes. mean + ... * noise. (0.5 + 0.5 * math.log(2 * math.pi) + ...).sum(-1)."])

make = torch.Generator().manual_seed(0)


def normal(*shape, derive=False):
    return torch.randn(shape, generator=make).requires_grad_(derive)


def moderate(*shape, derive=False):
    """Logarithms of deviations that no bound of a policy would change; others are for the extremes."""
    return normal(*shape).clamp(-1.9, 1.9).requires_grad_(derive)


def layers(net):
    """Each layer in words, in order, and what is wrong with its parameters."""
    if not isinstance(net, Net) or net.type != "Sequential":
        found = net.type if isinstance(net, Net) else type(net).__name__
        raise TypeError(f"mlp returns {found}, where an nn.Sequential of nn.Linear and nn.Tanh is wanted")
    return tuple(layer.type if layer.type != "Linear" else "Linear({}, {})".format(*layer.sizes) + faults(layer)
                 for layer in net.layers)


def faults(layer):
    """What keeps a linear layer from learning anything of its own."""
    weight = layer.parameters["weight"]
    return (", no bias" * ("bias" not in layer.parameters) + ", frozen" * (not layer.trainable) +
            ", all weights equal" * (weight.numel() > 1 and bool((weight == weight[0, 0]).all())) +
            ", not finite" * (not bool(weight.isfinite().all())) + ", used before" * (layer.same_as >= 0))


network = exercise.function("mlp", [case(sizes=[3, 4, 2]), case(sizes=[2, 1]), case(sizes=[3, 8, 16, 8, 4]),
                                    case(sizes=[3, 8, 8, 8, 2])], view=layers)


@network.reference
def written_out(sizes):
    net = nn.Sequential(nn.Linear(sizes[0], sizes[1]))
    for i in range(2, len(sizes)):
        net.append(nn.Tanh())
        net.append(nn.Linear(sizes[i - 1], sizes[i]))
    return net


@network.mistake("Layers of the same widths are one and the same layer, used several times: whatever one of them "
                 "learns, the others learn too. Make a new nn.Linear for each pair of neighbours.")
def _(sizes):
    made = {}
    net = written_out(sizes)
    return nn.Sequential(*(made.setdefault((m.in_features, m.out_features), m) if isinstance(m, nn.Linear) else m
                           for m in net))


@network.mistake("The parameters are frozen: no gradient reaches them, and the policy stays as it began.")
def _(sizes):
    return written_out(sizes).requires_grad_(False)


@network.mistake("All weights of a layer are the same number. Then all of its units compute the same, get the same "
                 "gradient and stay the same for ever; leave the random weights that nn.Linear begins with.")
def _(sizes):
    net = written_out(sizes)
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    return net


@network.mistake("The biases are missing: where the input is 0 the mean is 0 too, whatever was learned.")
def _(sizes):
    return nn.Sequential(*(nn.Linear(m.in_features, m.out_features, bias=False) if isinstance(m, nn.Linear) else m
                           for m in written_out(sizes)))


@network.mistake("There is a tanh after the last layer: means outside of -1 to 1 are out of reach, and near the ends "
                 "the gradient vanishes.")
def _(sizes):
    return written_out(sizes).append(nn.Tanh())


@network.mistake("No activation stands between the layers: linear functions of linear functions are linear, however "
                 "many there are.")
def _(sizes):
    return nn.Sequential(*(m for m in written_out(sizes) if isinstance(m, nn.Linear)))


@network.mistake("The activation is ReLU; tanh is wanted here. It is smooth and bounded, and small policies learn more "
                 "steadily with it.")
def _(sizes):
    return nn.Sequential(*(nn.ReLU() if isinstance(m, nn.Tanh) else m for m in written_out(sizes)))


@network.mistake("The last layer is missing: the output has the width of the last hidden layer, not that of the "
                 "action.")
def _(sizes):
    return nn.Sequential(*list(written_out(sizes))[:-1])


draw = exercise.function("sample", [
    case(mean=torch.tensor([[1.0, 0.0]]), log_std=torch.tensor([0.0, math.log(2.0)]),
         noise=torch.tensor([[2.0, -1.0]])),
    case(mean=normal(5, 3), log_std=moderate(3), noise=normal(5, 3)),
    case(mean=normal(4, 2), log_std=moderate(4, 2), noise=normal(4, 2)),
    case(mean=3 * normal(2, 6, 2), log_std=-moderate(2).abs(), noise=normal(2, 6, 2))])


@draw.reference
def by_quantiles(mean, log_std, noise):
    """The number below which the Gaussian has as much as the standard one has below the noise."""
    below = Normal(0.0, 1.0).cdf(noise.double())
    return Normal(mean.double(), log_std.double().exp()).icdf(below).float()


draw.extreme("log_std is kept between bounds; draws have the deviation that is given, exp(log_std).",
             mean=torch.tensor([[1.0, 0.0]]), log_std=torch.tensor([-9.0, 5.0]), noise=torch.tensor([[1.0, 0.1]]))
draw.extreme("Means or draws are clipped; then they are no longer Gaussian, and log_prob is not theirs.",
             mean=torch.tensor([[100.0, -50.0]]), log_std=torch.zeros(2), noise=torch.tensor([[4.0, -5.0]]))


@draw.mistake("You use log_std as if it were the deviation itself: it may be negative, and 0 would mean no randomness.")
def _(mean, log_std, noise):
    return mean + log_std * noise


@draw.mistake("The noise is multiplied by the variance; a Gaussian is stretched by its deviation.")
def _(mean, log_std, noise):
    return mean + (2 * log_std).exp() * noise


@draw.mistake("The noise is multiplied by the root of the deviation: exp(log_std) is the deviation already, not the "
              "variance.")
def _(mean, log_std, noise):
    return mean + (0.5 * log_std).exp() * noise


@draw.mistake("The noise is added as it is: the policy is as random as a standard normal distribution, whatever "
              "log_std says.")
def _(mean, log_std, noise):
    return mean + noise


@draw.mistake("You draw new noise. All randomness is to come from the noise that is given, so that a seed decides it.")
def _(mean, log_std, noise):
    return mean + log_std.exp() * torch.randn_like(mean)


@draw.mistake("Actions are clipped to -1 to 1: then they are no longer Gaussian, and log_prob is not theirs. Clip on "
              "the way to the environment alone.")
def _(mean, log_std, noise):
    return (mean + log_std.exp() * noise).clamp(-1, 1)


spread = exercise.function("entropy", [case(log_std=torch.zeros(2)), case(log_std=moderate(3, derive=True)),
                                       case(log_std=moderate(4, 3, derive=True)), case(log_std=moderate(1))])


@spread.reference
def by_torch(log_std):
    return Normal(torch.zeros_like(log_std), log_std.exp()).entropy().sum(-1)


spread.extreme("log_std is kept between bounds; the entropy is that of the log_std given.",
               log_std=torch.tensor([-9.0, 40.0, 7.0]))
spread.extreme("The entropy is kept from being negative. That of a density may be: where a deviation is small, it is.",
               log_std=torch.tensor([-9.0, -3.0]))


@spread.mistake("The constant 1/2 + 1/2 log 2 pi is counted once for the whole action; each of the d dimensions has "
                "its own. The given code of the original exercise has this mistake.")
def _(log_std):
    return CONSTANT + log_std.sum(-1)


@spread.mistake("You average over the dimensions of an action: two random numbers are more random than one, so their "
                "entropies are summed.")
def _(log_std):
    return (CONSTANT + log_std).mean(-1)


@spread.mistake("One entropy comes out for each dimension; sum over the last axis.")
def _(log_std):
    return CONSTANT + log_std


@spread.mistake("Everything is summed, over a batch of states too; sum over the last axis alone.")
def _(log_std):
    return (CONSTANT + log_std).sum()


@spread.mistake("The constant 1/2 + 1/2 log 2 pi is missing in every dimension.")
def _(log_std):
    return log_std.sum(-1)


@spread.mistake("The 1/2 is missing: it is what the squared distance is on average, halved.")
def _(log_std):
    return (CONSTANT - 0.5 + log_std).sum(-1)


@spread.mistake("The sign is the other way round: the more random a policy is, the higher is its entropy.")
def _(log_std):
    return -(CONSTANT + log_std).sum(-1)


@spread.mistake("You use log_std as if it were the deviation itself; it is the logarithm already.")
def _(log_std):
    return (CONSTANT + log_std.log()).sum(-1)


@exercise.property
def log_prob_is_as_given(student):
    """The given function is used by the learning level, and by who goes on from here."""
    act, mean, log_std = torch.tensor([[0.5, -1.0]]), torch.tensor([[0.0, 1.0]]), torch.tensor([-0.5, 0.3])
    if not torch.allclose(student.log_prob(act, mean, log_std), Normal(mean, log_std.exp()).log_prob(act).sum(-1)):
        raise Wrong("log_prob was given, and is no longer right; put it back", "log_prob")


@exercise.learning
def inverted_pendulum(student):
    """PPO with your policy, InvertedPendulum-v5, 50,000 steps: a return of 200, where random actions reach 6"""
    import tempfile

    from spinup import ppo
    from spinup.core import networks
    from spinup.core.distributions import DiagGaussian

    own = networks.mlp

    def mine(sizes, *, activation="tanh", output_gain=1.0):
        net = student.mlp(list(sizes))
        net.load_state_dict(own(sizes, activation=activation, output_gain=output_gain).state_dict())
        return net

    def act(self, params, noise):
        with torch.no_grad():
            return student.sample(*(torch.as_tensor(x) for x in (*params, noise))).numpy()

    def score(self, params, act):
        return student.log_prob(act, *params), student.entropy(params[1]).expand(act.shape[:-1])

    with tempfile.TemporaryDirectory() as folder, patch("spinup.core.networks.mlp", mine), \
            patch.object(DiagGaussian, "sample", act), patch.object(DiagGaussian, "log_prob_entropy", score):
        result = ppo("InvertedPendulum-v5", total_steps=50_000, entropy_coef=0.001, log_dir=folder, quiet=True,
                     tensorboard=False)
    found = result.progress["return_mean_100"][-1]
    if found < 200:
        raise Wrong(f"PPO with your policy has a return of {found:.0f} after 50,000 steps; 200 was expected")
