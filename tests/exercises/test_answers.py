"""Answers of students in place of lines of the solution: wrong answers that look correct, and correct answers that look
different."""
import pytest

from spinup.exercises.source import Entry
from spinup.exercises.verdict import check

pytestmark = pytest.mark.usefixtures("in_this_process")


def checked(name, changes, folder):
    """The verdict on a solution in which some texts are replaced."""
    text = Entry(name).solution
    for old, new in changes.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    file = folder / f"{name}.py"
    file.write_text(text)
    return check(Entry(name), file)


SEQUENTIAL = "return nn.Sequential(*layers[:-1])"
# Catches: cases near 0 alone, which reveal no bound, threshold or lost digit; networks compared by shapes alone.
WRONG = [
    ("1_1_gaussian", {"2 * log_std": "log_std"}, "log_std counts once where it should count twice"),
    ("1_1_gaussian", {"    distance": "    log_std = log_std.clamp(-5, 2)\n    distance"}, "You clip log_std"),
    ("1_1_gaussian", {"    distance": "    log_std = log_std.clamp(-8, 4)\n    distance"}, "You clip log_std"),
    ("1_2_gaussian_policy", {"    layers = []": "    same = nn.Linear(sizes[1], sizes[1])\n    layers = []",
                             "[nn.Linear(n_in, n_out)": "[same if n_in == n_out else nn.Linear(n_in, n_out)"},
     "one layer several times"),
    ("1_2_gaussian_policy", {SEQUENTIAL: "return nn.Sequential(*layers[:-1]).requires_grad_(False)"}, "are frozen"),
    ("1_2_gaussian_policy", {SEQUENTIAL: "net = nn.Sequential(*layers[:-1])\n    [nn.init.zeros_(p) for p in "
                                         "net.parameters()]\n    return net"}, "the same number"),
    ("1_2_gaussian_policy", {SEQUENTIAL: "net = nn.Sequential(*layers[:-1])\n    net[0].weight.data.fill_(.1)\n"
                                         "    return net"}, "all weights equal"),
    ("1_2_gaussian_policy", {"+ log_std).sum(-1)": "+ log_std).sum(-1).clamp(min=-5)"}, "kept from being negative"),
    ("1_2_gaussian_policy", {"mean + log_std.exp()": "mean + log_std.clamp(-5, 2).exp()"}, "You clip log_std"),
    ("1_2_gaussian_policy", {"+ log_std).sum": "+ log_std.clamp(-5, 2)).sum"}, "You clip log_std"),
    ("1_3_td3_losses", {"rew + gamma": "rew[:, None] + gamma"}, "broadcasting combined `[B, 1]` with `[B]`"),
    ("1_3_td3_losses", {"(q1 - target)": "(q1[:, None] - target)", "(q2 - target)": "(q2[:, None] - target)"},
     "compared with the targets of all steps"),
    ("1_3_td3_losses", {"rew + gamma": "rew.clamp(-10, 10) + gamma"}, "are clipped"),
    ("1_3_td3_losses", {"rew + gamma": "rew + gamma * gamma"}, "You apply gamma twice"),
    ("2_2_silent_bug", {"    return ((q_values": "    target = target.clamp(-50, 50)\n    return ((q_values"},
     "are clipped"),
    ("3_1_gae", {"    return adv": "    return adv.clamp(-10, 10)"}, "clipped where they are large"),
    ("3_1_gae", {"rew + gamma *": "rew + gamma**2 *"}, "gamma is in delta twice"),
    ("3_1_gae", {"goes_on = gamma *": "goes_on = gamma * gamma *"}, "gamma is in the weights of later steps twice"),
    ("3_2_clipped_objective", {"ratio * adv,": "ratio[:, None] * adv,", "clipped * adv)": "clipped[:, None] * adv)"},
     "multiplied by the advantages of all steps"),
    ("3_2_clipped_objective", {"(logp -": "(logp[:, None] -"}, "compared with the old ones of all steps"),
    ("3_2_clipped_objective", {"(logp - logp_old.detach()).exp()": "(logp - logp_old.detach()).clamp(-9, 9).exp()"},
     "a bound that eq. 7 does not have"),
    ("3_2_clipped_objective", {"(logp - logp_old.detach()).exp()": "logp.exp() / logp_old.detach().exp()"},
     "exp(logp) rounds to 0 for unlikely actions"),
    ("3_2_clipped_objective", {"(logp - logp_old.detach()).exp()": "logp / logp_old"}, "The quotient of the log"),
    ("3_2_clipped_objective", {"clip_ratio)\n": "clip_ratio)\n    clipped = ratio + (clipped - ratio).detach()\n"},
     "The clip lets the gradient through"),
    ("3_3_truncation", {"rew + gamma *": "rew + gamma * gamma *"}, "You apply gamma twice"),
    ("3_3_truncation", {"return rew +": "return rew.clamp(-100, 100) +"}, "are clipped"),
    ("3_4_double_dqn", {"return rew +": "return rew.clamp(-9, 9) +"}, "are clipped"),
    ("3_5_squashed_gaussian", {"return u, u.tanh()": "return u, u.tanh().clamp(-.999, .999)"}, "kept away from -1"),
    ("3_5_squashed_gaussian", {"u = mean + log_std.exp()": "u = mean + log_std.clamp(-5, 2).exp()"},
     "You clip log_std; use the standard"),
    ("3_5_squashed_gaussian", {"    distance": "    log_std = log_std.clamp(-5, 2)\n    distance"},
     "You clip log_std, or you add a constant"),
    ("3_5_squashed_gaussian", {"2 * log_std": "log_std"}, "log_std counts once"),
    ("3_6_es_estimator", {"/ (2 * len(noise) * sigma)": "* sigma / (2 * len(noise))"}, "sigma multiplies"),
    ("3_6_es_estimator", {"    below": "    flat = (flat * 1e3).round() / 1e3\n    below"},
     "treated as equal"),
    ("3_7_rl2", {"rew[:, None]": "rew[:, None].clamp(-10, 10)"}, "Rewards or observations are clipped"),
    ("4_1_kl_estimators", {"torch.expm1(log_r)": "log_r.exp() - 1"}, "while k3 itself is at most 5e-07"),
    ("4_1_kl_estimators", {"return torch.expm1(log_r) - log_r": "return (log_r.exp() - 1 - log_r).clamp(min=0)"},
     "while k3 itself is at most 5e-07"),
    ("4_1_kl_estimators", {"return logp - logp_ref": "return (logp.exp() / logp_ref.exp()).log()"},
     "exp(logp) rounds to 0 for unlikely tokens"),
    ("4_1_kl_estimators", {"    return torch.expm1": "    log_r = log_r.clamp(-20, 20)\n    return torch.expm1"},
     "You clip the log ratio"),
    ("4_1_kl_estimators", {"torch.where(mask, k, 0.0)": "torch.where(mask, k.clamp(-20, 20), 0.0)"}, "are clipped"),
    ("4_2_reward_model", {"(chosen - rejected)": "(chosen - rejected.clamp(-20, 20))"}, "are clipped"),
    ("4_2_reward_model", {"torch.where(mask[:, 1:], each, 0.0)": "(each * mask[:, 1:])"}, "You multiply by the mask"),
    ("4_3_dpo", {"logsigmoid(margin)": "logsigmoid(beta * margin)"}, "You multiply by beta twice"),
    ("4_3_dpo", {"(logp - logp_ref.detach())": "(logp - logp_ref.detach()).clamp(-9, 9)"},
     "You clip the log ratio"),
    ("4_3_dpo", {"beta * (logp - logp_ref.detach())": "beta * (logp.exp() / logp_ref.detach().exp()).log()"},
     "exp of a whole response's log-probability rounds to 0"),
    ("4_4_group_advantages", {"equal = reward.amax(1, keepdim=True) == reward.amin(1, keepdim=True)":
                              "equal = deviation < 1e-3"}, "nearly equal rewards as equal"),
    ("4_4_group_advantages", {"equal = reward.amax(1, keepdim=True) == reward.amin(1, keepdim=True)":
                              "equal = torch.isclose(reward.amax(1, keepdim=True), reward.amin(1, keepdim=True))"},
     "A relative threshold depends on the mean reward"),
    ("4_4_group_advantages", {"torch.where(equal, 0.0, adv)": "torch.where(equal, 0.0, adv.clamp(-10, 10))"},
     "are clipped"),
    ("5_1_autoreset", {"    return obs[kept]": "    obs, act, rew, next_obs, terminated, kept = (x.transpose(0, 1) for "
                       "x in (obs, act, rew, next_obs, terminated, kept))\n    return obs[kept]"}, "in another order"),
    ("5_1_autoreset", {"act[kept], rew[kept]": "act[kept], rew[kept].clamp(-1, 1)"}, "the result of transitions is"),
    ("5_1_autoreset", {"act[kept], rew[kept]": "act[kept], rew[kept].clamp(-9, 9)"}, "are changed on the way"),
    ("5_2_entropy", {"torch.exp(-log_std)": "torch.exp(-log_std.clamp(-5, 2))"}, "You clip log_std"),
    ("5_5_cancellation", {"    new_var = (1 - share) * var + share * batch_var + share * (1 - share) * delta**2\n":
                          "    x, old = batch.double(), mean.double()\n"
                          "    squares = count * (var + old**2) + (x**2).sum(0)\n"
                          "    new_var = (squares / total - ((count * old + x.sum(0)) / total)**2).float()\n"},
     "More digits only move the problem"),
    ("5_6_length_bias", {"return each.sum()": "return each.clamp(-100, 100).sum()"}, "are clipped"),
    ("6_2_weight_noise", {"log_pi = logits.log_softmax(-1)": "log_pi = logits.double().softmax(-1).log()",
                          "noisy.log_softmax(-1))).sum(-1).mean()":
                          "noisy.double().softmax(-1).log())).sum(-1).mean().float()"}, "for very unlikely actions"),
]


@pytest.mark.parametrize("name, changes, words", WRONG, ids=lambda x: x if isinstance(x, str) else "")
def test_mistake_of_a_wrong_answer_is_named_with_its_line(name, changes, words, tmp_path):
    found = checked(name, changes, tmp_path)
    assert not found.passed and words in found.message, found.message
    assert found.line > 0 and "def " not in (tmp_path / f"{name}.py").read_text().splitlines()[found.line - 1]


DENSITY = "return -0.5 * (distance**2 + 2 * log_std + math.log(2 * math.pi)).sum(-1)"
NORMAL = "torch.distributions.Normal(mean, log_std.exp()).log_prob"
RIGHT = [
    ("1_1_gaussian", {DENSITY:
                      f"return {NORMAL}(act).sum(-1)"}),
    ("1_1_gaussian", {DENSITY:
                      "all = log_std.expand_as(act)\n    return -0.5 * torch.einsum('...d,...d->...', distance, "
                      "distance) - all.sum(-1) - act.shape[-1] / 2 * math.log(2 * math.pi)"}),
    ("1_2_gaussian_policy", {SEQUENTIAL: "net = nn.Sequential()\n    for i, layer in enumerate(layers[:-1]):\n        "
                                         "net.add_module(f'part{i}', layer)\n    return net"}),
    ("1_2_gaussian_policy", {SEQUENTIAL: "[nn.init.orthogonal_(x.weight) for x in layers[::2]]\n    [nn.init.zeros_("
                                         "x.bias) for x in layers[::2]]\n    return nn.Sequential(*layers[:-1])"}),
    ("1_2_gaussian_policy", {SEQUENTIAL: "nn.init.zeros_(layers[-2].weight)\n    " + SEQUENTIAL}),
    ("1_3_td3_losses", {"((q1 - target)**2).mean()": "torch.nn.functional.mse_loss(q1, target)"}),
    ("2_2_silent_bug", {".squeeze(-1)": "[..., 0]"}),
    ("3_1_gae", {"        later = delta[:, t] + goes_on[:, t] * later\n        adv[:, t] = later\n":
                 "        for n in range(len(rew)):\n            later[n] = delta[n, t] + goes_on[n, t] * later[n]\n"
                 "            adv[n, t] = later[n]\n"}),
    ("3_1_gae", {"        later = delta[:, t] + goes_on[:, t] * later\n        adv[:, t] = later\n":
                 "        after = next_value[:, t] * ~terminated[:, t]\n"
                 "        on = goes_on[:, t] & (t < rew.shape[1] - 1)\n"
                 "        mixed = torch.where(on, (1 - lam) * after + lam * later, after)            # lambda-returns\n"
                 "        later = rew[:, t] + gamma * mixed\n        adv[:, t] = later - value[:, t]\n",
                 "gamma * lam * ~": "~"}),
    ("3_1_gae", {"rew + gamma * next_value": "rew + gamma * torch.cat([torch.where((terminated | truncated)[:, :-1], "
                 "next_value[:, :-1], value[:, 1:]), next_value[:, -1:]], 1)"}),
    ("3_2_clipped_objective", {"-torch.minimum(ratio * adv, clipped * adv).mean()":
                               "torch.stack([-ratio * adv, -clipped * adv]).amax(0).mean()"}),
    ("3_2_clipped_objective", {"-torch.minimum(ratio * adv, clipped * adv).mean()":
                               "-sum(min(r * a, c * a) for r, c, a in zip(ratio, clipped, adv)) / len(adv)"}),
    ("3_3_truncation", {"rew + gamma * next_value * ~terminated":
                        "rew + torch.where(terminated, torch.zeros(()), gamma * next_value)"}),
    ("3_4_double_dqn", {"next_q_target.gather(-1, best).squeeze(-1)":
                        "next_q_target[torch.arange(len(rew)), best[:, 0]]"}),
    ("3_5_squashed_gaussian", {"    distance =": f"    return ({NORMAL}(u) - "
                               "torch.distributions.transforms.TanhTransform().log_abs_det_jacobian(u, u.tanh()))"
                               ".sum(-1)\n    distance ="}),
    ("3_5_squashed_gaussian", {"return u, u.tanh()": "return u, 2 * (2 * u).sigmoid() - 1"}),
    ("3_6_es_estimator", {"(returns_plus - returns_minus) @ noise": "torch.einsum('n,np->p', "
                          "returns_plus - returns_minus, noise)"}),
    ("4_1_kl_estimators", {"torch.where(mask, k, 0.0).sum(1)": "k.masked_fill(~mask, 0.0).sum(-1)"}),
    ("4_1_kl_estimators", {"return torch.expm1(log_r) - log_r":
                           "return (log_r.double().exp() - 1 - log_r.double()).to(log_r.dtype)"}),
    ("4_2_reward_model", {"-torch.nn.functional.logsigmoid(chosen - rejected).mean()":
                          "torch.nn.functional.softplus(rejected - chosen).mean()"}),
    ("4_2_reward_model", {"    log_pi": "    of = torch.where(mask[:, 1:, None], logits[:, :-1], 0.0)\n    each = "
                          "torch.distributions.Categorical(logits=of).log_prob(tokens[:, 1:])\n    return torch.where("
                          "mask[:, 1:], each, 0.0).sum(1)\n    log_pi"}),
    ("4_3_dpo", {"-torch.nn.functional.logsigmoid(margin).mean()":
                 "torch.nn.functional.binary_cross_entropy_with_logits(margin, torch.ones_like(margin))"}),
    ("4_4_group_advantages", {"    return reward - others": "    n = reward.shape[1]\n    return n / (n - 1) * ("
                              "reward - reward.mean(1, keepdim=True))"}),
    ("5_5_cancellation", {"    new_var = (1 - share) * var + share * batch_var + share * (1 - share) * delta**2\n":
                          "    new_var = (count * (var + (mean - new_mean)**2) + ((batch - new_mean)**2).sum(0)) / "
                          "total\n"}),
    ("5_2_entropy", {"return (0.5 + HALF_LOG_2PI + log_std).sum(-1)":
                     "return torch.distributions.Normal(0.0, log_std.exp()).entropy().sum(-1)"}),
    ("5_6_length_bias", {"return each.sum() / mask.sum()": "return each[mask].mean()"}),
]


# Catches: a check that requires the lines, the digits or the layout of the solution.
@pytest.mark.parametrize("name, changes", RIGHT, ids=lambda x: x if isinstance(x, str) else "")
def test_different_correct_answer_passes(name, changes, tmp_path):
    found = checked(name, changes, tmp_path)
    assert found.passed, found.message
