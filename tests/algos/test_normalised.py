"""Normalised observations in off-policy methods: the replay buffer has the raw ones, the policy has the statistics."""
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import spinup

BOX = Box(-1, 1, (2,))
each = pytest.mark.parametrize("name, actions", [("ddpg", BOX), ("td3", BOX), ("sac", BOX), ("dqn", Discrete(3))])


# Catches: normalised observations in the replay buffer; statistics of a batch, of the target network, or without the
# newest step; a raw observation as one of the two of a transition; a policy that acts on raw observations.
@each
def test_batches_are_normalised_with_statistics_of_all_steps(name, actions, watch):
    seen = watch(name, actions, num_envs=2, normalise_obs=True)
    raw = np.array([obs for obs, told in sorted(seen.told.items(), key=lambda item: item[1].number)])
    number = {obs: told.number for obs, told in seen.told.items()}
    for step in seen.of("q")[::9]:
        so_far = raw[:step.rows.stop]
        mean, std = so_far.mean(0), np.sqrt(so_far.var(0) + 1e-8)
        obs, next_obs = step.batch[0].double().numpy(), step.batch[3].double().numpy()
        for one, led_to in zip(obs * std + mean, next_obs * std + mean, strict=True):
            near = raw[np.abs(raw - one).sum(1).argmin()]
            np.testing.assert_allclose(one, near, atol=1e-4)
            told = seen.told[tuple(near)]
            assert told.number in step.rows and number[tuple(near)] == told.number
            np.testing.assert_allclose(led_to, told.next_obs, atol=1e-4)
    normaliser, module = seen.result.policy.module.normaliser, seen.result.policy.module
    np.testing.assert_allclose(normaliser.mean, raw.mean(0), rtol=1e-9)
    np.testing.assert_allclose(normaliser.var, raw.var(0), rtol=1e-9)
    view = normaliser(torch.from_numpy(raw[:5]))
    module.normaliser = None
    expected = module.actor()(view.numpy())
    module.normaliser = normaliser
    got = module.actor()(raw[:5].astype(np.float32))
    np.testing.assert_allclose(got[0], expected[0], atol=1e-5)


# Catches: statistics that are missing in a checkpoint, or that change in an evaluation; a normaliser without the
# setting.
@pytest.mark.long("sac-actions2")
@each
def test_statistics_are_saved_and_constant_after_training(name, actions, watch):
    result = watch(name, actions, normalise_obs=True).result
    loaded = spinup.load(result.directory)
    before = {key: value.clone() for key, value in loaded.module.normaliser.state_dict().items()}
    assert before["count"] == 120
    for key, value in result.policy.module.normaliser.state_dict().items():
        assert torch.equal(before[key], value)
    obs = np.float32([3, -2, 9])
    assert np.array_equal(loaded.act(obs), result.policy.act(obs))
    assert torch.equal(loaded.module.normaliser.mean, before["mean"])
    assert watch(name, actions).result.policy.module.normaliser is None
