"""stable-baselines3 with the settings of RL Baselines3 Zoo: they are accepted, and used in the evaluation too."""
import tomllib
from pathlib import Path

import pytest

from spinup.bench import peers
from spinup.bench.returns import returns
from spinup.errors import UserError


# Turned red by: a setting of the zoo with another name or type than the library's; a width or an activation left out.
def test_the_library_accepts_every_setting_of_the_zoo():
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


# Turned red by: observations that are not normalised in the evaluation, or with other statistics; rewards that are.
def test_a_policy_of_the_zoo_is_evaluated_as_it_was_trained(tmp_path, monkeypatch):
    seen = []

    def evaluate(model, env, episodes, return_episode_rewards):
        seen.append((model.get_vec_normalize_env(), env))
        return [1.0] * episodes, [5] * episodes
    monkeypatch.setattr(peers, "evaluate_policy", evaluate)
    found = peers.returns(str(tmp_path), {"algo": "ppo", "env": "InvertedPendulum-v5", "seed": 1, "total_steps": 64,
                                          "against": "zoo"})
    (trained, tested), = seen
    assert found["E100"] == 1 and found["steps"] == 64 and trained.obs_rms.count > 64
    assert tested.obs_rms is trained.obs_rms and not tested.training and not tested.norm_reward


def test_what_cannot_be_compared_is_a_sentence(tmp_path):
    with pytest.raises(UserError, match="--peer-seeds are seeds of another library; add --against sb3 or"):
        returns("ppo", "CartPole-v1", seeds=[1], peer_seeds=[1], log_dir=tmp_path)
    with pytest.raises(UserError, match="against is 'sb3' or 'zoo', not 'sbx'"):
        returns("ppo", "CartPole-v1", seeds=[1], against="sbx", log_dir=tmp_path)
    with pytest.raises(UserError, match="zoo has no settings of ppo in CartPole-v1, only of ppo in HalfCheetah.*sb3"):
        returns("ppo", "CartPole-v1", seeds=[1], against="zoo", log_dir=tmp_path)
    assert not list(tmp_path.iterdir())
