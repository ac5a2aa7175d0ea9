"""Checks of 1.2: layers of the network one by one, actions as quantiles, the entropy by torch.distributions."""
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
    hints=["A network is a list of layers. An action is a standard normal number, scaled and then shifted. The entropy "
           "of independent numbers is the sum of their entropies.",
           "Use one `nn.Linear` for each pair of neighbours in sizes, and `nn.Tanh` after all of them except the last. "
           "log_std is a logarithm. In the formula of the entropy, all three terms are inside the sum.",
           "mlp: for each pair, append a Linear and a Tanh. Give all elements except the last to nn.Sequential. "
           "sample: the mean plus the standard deviation times the noise. entropy: add 1/2 and half of log 2 pi to "
           "each number of log_std, then sum over the last axis.",
           "mlp: for n_in, n_out in zip(sizes[:-1], sizes[1:]): layers += [nn.Linear(n_in, n_out), nn.Tanh()]; then "
           "remove the last element. sample: mean + ... * noise. entropy: (0.5 + 0.5 * math.log(2 * math.pi) + "
           "...).sum(-1)."])

make = torch.Generator().manual_seed(0)


def normal(*shape, derive=False):
    return torch.randn(shape, generator=make).requires_grad_(derive)


def moderate(*shape, derive=False):
    """Log standard deviations that no clipping of a policy would change; the extreme cases test other values."""
    return normal(*shape).clamp(-1.9, 1.9).requires_grad_(derive)


def layers(net):
    """Description of each layer in order, with the faults of its parameters; TypeError if it is not an nn.Sequential.
    """
    if not isinstance(net, Net) or net.type != "Sequential":
        found = net.type if isinstance(net, Net) else type(net).__name__
        raise TypeError(f"mlp returns an object of type {found}; return an nn.Sequential of nn.Linear and nn.Tanh")
    return tuple(layer.type if layer.type != "Linear" else "Linear({}, {})".format(*layer.sizes) + faults(
        layer, last=layer is net.layers[-1]) for layer in net.layers)


def faults(layer, last):
    """Faults of a linear layer that would limit its learning, in words. The last layer may start with equal weights."""
    weight = layer.parameters["weight"]
    alike = weight.numel() > 1 and bool((weight == weight[0, 0]).all())
    return (", no bias" * ("bias" not in layer.parameters) + ", frozen" * (not layer.trainable) +
            ", all weights equal" * (alike and not last) +
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


@network.mistake("You use one layer several times, wherever the widths are equal. These layers share their weights, so "
                 "they cannot learn different things. Make a new nn.Linear for each pair of neighbours.")
def _(sizes):
    made = {}
    net = written_out(sizes)
    return nn.Sequential(*(made.setdefault((m.in_features, m.out_features), m) if isinstance(m, nn.Linear) else m
                           for m in net))


@network.mistake("The parameters are frozen: no gradient reaches them, so the policy never changes. Leave "
                 "requires_grad as nn.Linear sets it.")
def _(sizes):
    return written_out(sizes).requires_grad_(False)


@network.mistake("All weights of a layer are the same number. Then all its units compute the same output, get the same "
                 "gradient and stay equal forever. Keep the random weights with which nn.Linear starts.")
def _(sizes):
    net = written_out(sizes)
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    return net


@network.mistake("The biases are missing. Without them the mean is 0 wherever the input is 0, whatever the network "
                 "learns.")
def _(sizes):
    return nn.Sequential(*(nn.Linear(m.in_features, m.out_features, bias=False) if isinstance(m, nn.Linear) else m
                           for m in written_out(sizes)))


@network.mistake("There is a tanh after the last layer. It limits the means to -1 to 1, and near these limits the "
                 "gradient vanishes; remove it.")
def _(sizes):
    return written_out(sizes).append(nn.Tanh())


@network.mistake("There is no activation between the layers. A composition of linear functions is linear, however many "
                 "layers there are; add nn.Tanh.")
def _(sizes):
    return nn.Sequential(*(m for m in written_out(sizes) if isinstance(m, nn.Linear)))


@network.mistake("You use ReLU; use tanh here. It is smooth and bounded, and small policies learn more steadily with "
                 "it.")
def _(sizes):
    return nn.Sequential(*(nn.ReLU() if isinstance(m, nn.Tanh) else m for m in written_out(sizes)))


@network.mistake("The last layer is missing: the output has the width of the last hidden layer; it needs the width of "
                 "the action.")
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
    """Return the quantile of the Gaussian at the probability that the standard normal has below the noise, `[..., d]`.
    """
    below = Normal(0.0, 1.0).cdf(noise.double())
    return Normal(mean.double(), log_std.double().exp()).icdf(below).float()


draw.extreme("You clip log_std; use the standard deviation that is given, exp(log_std).",
             mean=torch.tensor([[1.0, 0.0]]), log_std=torch.tensor([-9.0, 5.0]), noise=torch.tensor([[1.0, 0.1]]))
draw.extreme("Means or samples are clipped. Then they are no longer Gaussian, and log_prob is not their density; "
             "return them unclipped.",
             mean=torch.tensor([[100.0, -50.0]]), log_std=torch.zeros(2), noise=torch.tensor([[4.0, -5.0]]))


@draw.mistake("You use log_std as the standard deviation. But log_std may be negative, and 0 would mean no randomness; "
              "use exp(log_std).")
def _(mean, log_std, noise):
    return mean + log_std * noise


@draw.mistake("You multiply the noise by the variance; multiply it by the standard deviation.")
def _(mean, log_std, noise):
    return mean + (2 * log_std).exp() * noise


@draw.mistake("You multiply the noise by the square root of the standard deviation. exp(log_std) is already the "
              "standard deviation, not the variance.")
def _(mean, log_std, noise):
    return mean + (0.5 * log_std).exp() * noise


@draw.mistake("You add the noise without scaling it. Then the policy is as random as a standard normal distribution, "
              "whatever log_std is; multiply the noise by the standard deviation.")
def _(mean, log_std, noise):
    return mean + noise


@draw.mistake("You sample new noise. Use the noise that is given, so that the random seed determines every action.")
def _(mean, log_std, noise):
    return mean + log_std.exp() * torch.randn_like(mean)


@draw.mistake("Actions are clipped to -1 to 1. Then they are no longer Gaussian, and log_prob is not their density. "
              "Leave clipping to the environment.")
def _(mean, log_std, noise):
    return (mean + log_std.exp() * noise).clamp(-1, 1)


spread = exercise.function("entropy", [case(log_std=torch.zeros(2)), case(log_std=moderate(3, derive=True)),
                                       case(log_std=moderate(4, 3, derive=True)), case(log_std=moderate(1))])


@spread.reference
def by_torch(log_std):
    return Normal(torch.zeros_like(log_std), log_std.exp()).entropy().sum(-1)


spread.extreme("You clip log_std; compute the entropy of the log_std that is given.",
               log_std=torch.tensor([-9.0, 40.0, 7.0]))
spread.extreme("The entropy is kept from being negative. The entropy of a density is negative where a standard "
               "deviation is small enough; do not clip it.",
               log_std=torch.tensor([-9.0, -3.0]))


@spread.mistake("You count the constant 1/2 + 1/2 log 2 pi once for the whole action; count it once for each of the d "
                "dimensions. The code given in the original exercise has this mistake.")
def _(log_std):
    return CONSTANT + log_std.sum(-1)


@spread.mistake("You average over the dimensions of an action. Two independent random numbers are more random than "
                "one, so sum their entropies.")
def _(log_std):
    return (CONSTANT + log_std).mean(-1)


@spread.mistake("You return one entropy for each dimension; sum over the last axis.")
def _(log_std):
    return CONSTANT + log_std


@spread.mistake("You sum over all axes, including a batch of states; sum over the last axis only.")
def _(log_std):
    return (CONSTANT + log_std).sum()


@spread.mistake("The constant 1/2 + 1/2 log 2 pi is missing in every dimension; add it inside the sum.")
def _(log_std):
    return log_std.sum(-1)


@spread.mistake("The 1/2 is missing. It is half of the expected value of ((a - mean) / std)**2, which is 1; add it for "
                "each dimension.")
def _(log_std):
    return (CONSTANT - 0.5 + log_std).sum(-1)


@spread.mistake("The sign is wrong: a more random policy must have a higher entropy.")
def _(log_std):
    return -(CONSTANT + log_std).sum(-1)


@spread.mistake("You take the logarithm of log_std; it is already the logarithm of the standard deviation.")
def _(log_std):
    return (CONSTANT + log_std.log()).sum(-1)


@exercise.property
def log_prob_is_as_given(student):
    """Raise Wrong if the given function was changed: the learning level and later work use it."""
    act, mean, log_std = torch.tensor([[0.5, -1.0]]), torch.tensor([[0.0, 1.0]]), torch.tensor([-0.5, 0.3])
    if not torch.allclose(student.log_prob(act, mean, log_std), Normal(mean, log_std.exp()).log_prob(act).sum(-1)):
        raise Wrong("log_prob was given, and it is no longer correct; restore it", "log_prob")


@exercise.learning
def inverted_pendulum(student):
    """PPO with your policy, InvertedPendulum-v5, 50,000 steps: a return of 200; random actions reach 6"""
    import tempfile

    from spinup import ppo
    from spinup.core import networks
    from spinup.core.distributions import DiagGaussian

    own = networks.mlp

    def mine(sizes, *, activation="tanh", output_gain=1.0):
        net = student.mlp(list(sizes))
        first = own(sizes, activation=activation, output_gain=output_gain)
        for p, q in zip(net.parameters(), first.parameters(), strict=True):   # names may differ
            p.data.copy_(q)
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
