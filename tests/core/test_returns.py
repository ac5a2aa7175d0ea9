"""Returns and advantages, compared with sums written from their definitions, step by step."""
import warnings

import numpy as np
import pytest
import torch

from spinup.core.returns import discounted, explained_variance, gae, linear_recursion

NAN = float("nan")


def random_rollout(seed: int) -> dict[str, torch.Tensor]:
    """A random rollout `[B, T]` with terminations, truncations and masked steps, and NaN where a value must not
    matter."""
    rng = np.random.default_rng(seed)
    B, T = int(rng.integers(1, 5)), int(rng.integers(1, 41))
    terminated, truncated = (rng.random((B, T)) < p for p in rng.choice([0, 0.1, 0.3], 2))   # may be both at once
    mask = rng.random((B, T)) < rng.choice([0.5, 0.9, 1.0])
    rewards, values, next_values = rng.standard_normal((3, B, T))
    next_values[terminated] = NAN
    for x in rewards, values, next_values:
        x[~mask] = NAN
    arrays = {"rewards": rewards, "values": values, "next_values": next_values, "terminated": terminated,
              "truncated": truncated, "mask": mask}
    return {k: torch.from_numpy(v) for k, v in arrays.items()}


def steps_from(t: int, row: dict[str, np.ndarray]) -> list[int]:
    """The steps that count from t to the end of its episode, or of the row."""
    steps = []
    for s in range(t, len(row["rewards"])):
        if row["mask"][s]:
            steps.append(s)
            if row["terminated"][s] or row["truncated"][s]:
                break
    return steps


def by_definition(rollout: dict[str, torch.Tensor], per_step) -> np.ndarray:
    """per_step(row, steps) for each step that counts, 0 elsewhere."""
    out = np.zeros(rollout["rewards"].shape)
    for b in range(len(out)):
        row = {k: v[b].numpy() for k, v in rollout.items()}
        for t in np.flatnonzero(row["mask"]):
            out[b, t] = per_step(row, steps_from(t, row))
    return out


# Catches: a recursion that only `terminated` cuts; `next_values` that `truncated` cuts too, or that are multiplied by
# ~over; a missing `lam`; `select(decay, mask, 0.0)`; every second pass left out (`k *= 4`).
@pytest.mark.parametrize("seed", range(40))
def test_gae_matches_its_definition(seed):
    rollout, gamma, lam = random_rollout(seed), 0.97, 0.9

    def advantage(row, steps):
        total = 0.0
        for n, s in enumerate(steps):
            future = 0.0 if row["terminated"][s] else gamma * row["next_values"][s]
            total += (gamma * lam) ** n * (row["rewards"][s] + future - row["values"][s])
        return total

    adv, targets = gae(**rollout, gamma=gamma, lam=lam)
    expected, values = by_definition(rollout, advantage), torch.where(rollout["mask"], rollout["values"], 0.0).numpy()
    np.testing.assert_allclose(adv.numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(targets.numpy(), expected + values, atol=1e-12)


# Catches: `cut = truncated.bool()`, which bootstraps a step that is both terminated and truncated; `last` as the last
# column; a bootstrap without gamma.
@pytest.mark.parametrize("bootstrapped", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_discounted_matches_its_definition(seed, bootstrapped):
    rollout, gamma = random_rollout(seed), 0.97

    def reward_to_go(row, steps):
        total = sum(gamma**n * row["rewards"][s] for n, s in enumerate(steps))
        end = steps[-1]
        if bootstrapped and not row["terminated"][end]:
            total += gamma ** len(steps) * row["next_values"][end]
        return total

    got = discounted(rollout["rewards"], rollout["terminated"], rollout["truncated"], gamma=gamma, mask=rollout["mask"],
                     bootstrap=rollout["next_values"] if bootstrapped else None)
    np.testing.assert_allclose(got.numpy(), by_definition(rollout, reward_to_go), atol=1e-12)


# Catches: `cut | last` without `& ~over`.
@pytest.mark.parametrize(("terminated", "truncated", "expected"), [
    (0, 0, [1 + 0.5 * 5, 5]),         # the rollout ends mid-episode: 1 + 0.5 * V
    (0, 1, [1 + 0.5 * 5, 5]),         # time limit: the same
    (1, 0, [1 + 0.5 * 1, 1]),         # terminated: nothing follows
    (1, 1, [1 + 0.5 * 1, 1]),         # both in one step: terminated
])
def test_termination_truncation_and_rollout_end_match_values_by_hand(terminated, truncated, expected):
    rewards, values = torch.ones(1, 2), torch.tensor([[3.0, 7.0]])
    next_values = torch.tensor([[7.0, 8.0]])
    term, trunc = torch.tensor([[0.0, terminated]]), torch.tensor([[0.0, truncated]])
    assert discounted(rewards, term, trunc, gamma=0.5, bootstrap=next_values).tolist() == [expected]
    adv, targets = gae(rewards, values, next_values, term, trunc, gamma=0.5, lam=1.0)
    assert targets.tolist() == [expected]
    assert adv.tolist() == [[expected[0] - 3, expected[1] - 7]]


# Catches: a decay of 0.999 gamma.
def test_advantages_with_gamma_1_lambda_1_and_zero_values_are_returns():
    rewards = torch.randint(-9, 10, (3, 50), generator=torch.Generator().manual_seed(0)).float()
    zero = torch.zeros_like(rewards)
    adv, targets = gae(rewards, zero, zero, zero, zero, gamma=1.0, lam=1.0)
    assert torch.equal(adv, rewards.flip(1).cumsum(1).flip(1))             # whole numbers: no rounding
    assert torch.equal(targets, adv)
    assert torch.equal(discounted(rewards, zero, zero, gamma=1.0), adv)


# Catches: a value at a truncation that comes from the next column; `next_values` that `truncated` cuts.
@pytest.mark.parametrize("lam", [0.0, 0.7, 1.0])
def test_advantages_are_zero_for_the_true_values(lam):
    gamma, length = 0.9, 12                              # reward t at step t, ends after 12 steps; V by the definition
    V = np.array([sum(gamma ** (s - t) * s for s in range(t, length)) for t in range(length)] + [NAN])
    step = np.array([0, 1, 2, 3, 4, 0, 1, 2, 9, 10, 11, 5, 6])   # truncated at 4 and 2, terminated at 11, row ends at 6
    terminated, truncated = step == 11, np.isin(np.arange(13), [4, 7])
    row = [torch.tensor(x)[None] for x in (step.astype(float), V[step], V[step + 1], terminated, truncated)]
    adv, targets = gae(*row, gamma=gamma, lam=lam)
    np.testing.assert_allclose(adv.numpy(), 0, atol=1e-12)
    torch.testing.assert_close(discounted(row[0], row[3], row[4], gamma=gamma, bootstrap=row[2]), targets)


def both(rollout):
    """Advantages, value targets and returns of a rollout."""
    returns = discounted(rollout["rewards"], rollout["terminated"], rollout["truncated"], gamma=0.9,
                         bootstrap=rollout["next_values"], mask=rollout["mask"])
    return *gae(**rollout, gamma=0.9, lam=0.8), returns


# Catches: a missing `select(deltas, mask)`; a decay of 0 at masked steps; `last` as the last column; a result without
# `select`.
@pytest.mark.parametrize("seed", range(10))
def test_masked_steps_may_be_inserted_or_removed(seed):
    rollout = {k: v[:1] for k, v in random_rollout(seed).items()}        # one row, so that masked steps can be removed
    dense = {k: v[:, rollout["mask"][0]] for k, v in rollout.items()}
    padded = {k: torch.cat([v, torch.full((1, 7), k != "mask" if v.dtype == torch.bool else NAN, dtype=v.dtype)], 1)
              for k, v in rollout.items()}                               # the flags of padding are arbitrary too
    for a, b, c in zip(both(dense), both(rollout), both(padded), strict=True):
        torch.testing.assert_close(b[rollout["mask"]], a[0], rtol=0, atol=1e-12)
        torch.testing.assert_close(c[padded["mask"]], a[0], rtol=0, atol=1e-12)
        assert (b[~rollout["mask"]] == 0).all() and (c[~padded["mask"]] == 0).all()


# Catches: a result that depends on the row number.
def test_row_order_changes_nothing():
    rollout = random_rollout(3)
    order = torch.arange(len(rollout["rewards"])).flip(0)
    assert len(order) > 1
    for shuffled, kept in zip(both({k: v[order] for k, v in rollout.items()}), both(rollout), strict=True):
        assert torch.equal(shuffled, kept[order])


# Catches: `lam.mean()` in place of lam.
def test_lam_may_depend_on_the_row():
    rollout = random_rollout(4)
    lam = torch.linspace(0.1, 1.0, len(rollout["rewards"]), dtype=torch.float64)
    adv, _ = gae(**rollout, gamma=0.9, lam=lam[:, None])
    for b in range(len(lam)):
        row = {k: v[b:b + 1] for k, v in rollout.items()}
        torch.testing.assert_close(adv[b:b + 1], gae(**row, gamma=0.9, lam=lam[b].item())[0])


# Catches: `while 2 * k < T`; `x = b`, which changes the caller's tensor.
@pytest.mark.parametrize("T", [1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 100])
def test_linear_recursion_matches_a_loop(T):
    generator = torch.Generator().manual_seed(T)
    b, a = torch.randn(2, 3, T, generator=generator, dtype=torch.float64)
    kept = b.clone(), a.clone()
    x, columns = torch.zeros(3, dtype=torch.float64), []
    for t in reversed(range(T)):
        x = b[:, t] + a[:, t] * x
        columns.append(x)
    torch.testing.assert_close(linear_recursion(b, a), torch.stack(columns[::-1], 1))
    assert torch.equal(b, kept[0]) and torch.equal(a, kept[1])


# Catches: a division by the variance of equal targets, which gives -inf, NaN or about -1e12 after rounding; a large
# constant that hides the variance of the targets; masked steps that count; a diverged or non-finite value function
# that is not visible; a warning for one step.
def test_explained_variance_of_equal_targets_is_0():
    values = torch.tensor([[0.3, -0.2, 7.1, 0.4]])
    zeros, ends = torch.zeros(1, 4), torch.ones(1, 4, dtype=torch.bool)
    for reward in 0.0, 1.0, 1e-3, 1e5:                                    # one-step episodes with a constant reward
        _, target = gae(zeros + reward, values, zeros, ends, ~ends, gamma=0.99, lam=0.95)
        assert explained_variance(values, target) == 0
    target, error = torch.tensor([[1.0, 2.0, 3.0, NAN]]), torch.tensor([[0.5, -0.5, 0.0, NAN]])
    for shift in 0.0, 1000.0:
        found = explained_variance(target + shift - error, target + shift, torch.tensor([[1, 1, 1, 0]]))
        assert found == pytest.approx(0.75, abs=1e-3)
    assert explained_variance(torch.tensor([0.0, 1e5]), torch.tensor([0.0, 1.0])) < -1e9          # a diverged V
    assert explained_variance(torch.tensor([NAN, 1.0]), torch.tensor([0.0, 1.0])).isnan()
    with warnings.catch_warnings(action="error"):
        assert explained_variance(torch.zeros(1), torch.ones(1)) == 0
