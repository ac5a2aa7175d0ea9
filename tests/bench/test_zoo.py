"""stable-baselines3 with the settings of RL Baselines3 Zoo: they are accepted, and used in the evaluation too."""
import tomllib
from pathlib import Path

import numpy as np
import pytest

from spinup.bench import peers
from spinup.bench.returns import returns
from spinup.envs import make
from spinup.errors import UserError
from spinup.runs.episodes import UNSEEN


# Catches: a setting of the zoo with a name or type that the library does not accept; a missing width or activation
# function.
def test_library_accepts_every_setting_of_the_zoo():
    known = tomllib.loads(Path(peers.__file__).with_name("zoo.toml").read_text())
    for algo, env in [(algo, env) for algo, envs in known.items() for env in envs]:
        made, settings = peers.as_in_the_zoo(algo, env, seed=1)
        model = getattr(peers.stable_baselines3, algo.upper())("MlpPolicy", made, device="cpu", **settings)
        wanted = known[algo][env]
        assert model.n_envs == wanted.get("copies", 1) and model.learning_rate == wanted.get("learning_rate", 3e-4)
        assert (model.get_vec_normalize_env() is not None) == wanted.get("normalise", False)
        widths = wanted.get("policy", {}).get("net_arch")
        assert not widths or [p.shape[0] for p in model.policy.parameters() if p.dim() == 2][:2] == widths
        assert ("ReLU" in str(model.policy)) == (algo != "ppo" or "activation_fn" in wanted.get("policy", {}))


# Catches: observations that are not normalised in the evaluation, or with wrong statistics; rewards that are
# normalised; other initial states than those of our policies.
def test_policy_of_the_zoo_is_evaluated_with_its_normalisation(tmp_path, monkeypatch):
    seen, states, play, normalise = [], [], peers.played, peers.VecNormalize.normalize_obs

    def noted(self, obs):
        made = normalise(self, obs)
        if states and len(obs) == 10:                                     # the copies of the evaluation
            seen.append((self, obs, made, self.obs_rms.count))
        return made

    def played(envs, env, episodes, act):
        states.append(envs.seeds)
        return play(envs, env, episodes, act)
    monkeypatch.setattr(peers.VecNormalize, "normalize_obs", noted)
    monkeypatch.setattr(peers, "played", played)
    found = peers.returns(str(tmp_path), {"algo": "ppo", "env": "InvertedPendulum-v5", "seed": 1, "total_steps": 64,
                                          "against": "zoo"})
    assert states == [make("InvertedPendulum-v5", 10, UNSEEN).seeds] and len(found["evaluation_returns"]) == 100
    (normaliser, obs, made, count), *_ = seen
    rms = normaliser.obs_rms
    assert np.allclose(made, np.clip((obs - rms.mean) / np.sqrt(rms.var + normaliser.epsilon), -10, 10), atol=1e-5)
    assert {count} == {again for *_, again in seen} and count > 64        # the statistics do not change
    assert found["E100"] == np.mean(found["evaluation_returns"]) >= 1 and found["steps"] == 64


def test_impossible_comparisons_are_refused(tmp_path):
    with pytest.raises(UserError, match="--peer-seeds are seeds of another library; add --against sb3 or"):
        returns("ppo", "CartPole-v1", seeds=[1], peer_seeds=[1], log_dir=tmp_path)
    with pytest.raises(UserError, match="against is 'sb3' or 'zoo', not 'sbx'"):
        returns("ppo", "CartPole-v1", seeds=[1], against="sbx", log_dir=tmp_path)
    with pytest.raises(UserError, match="zoo has no settings for ppo in CartPole-v1, only for ppo in HalfCheetah.*sb3"):
        returns("ppo", "CartPole-v1", seeds=[1], against="zoo", log_dir=tmp_path)
    assert not list(tmp_path.iterdir())
