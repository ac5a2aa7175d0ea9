"""The search space of `spinup tune`: from flags, and as an algorithm's own comments recommend."""
import pytest

from spinup.algos import dqn, ppo
from spinup.errors import UserError
from spinup.registry import FAMILIES, algorithms
from spinup.runs.config import types_of
from spinup.runs.flags import from_flags, in_words
from spinup.runs.offline import OfflineConfig
from spinup.view.record import record
from spinup.view.space import Dimension, recommended, space_of

ALGORITHMS = {a.name: a for family in FAMILIES for a in algorithms(family).values() if not a.variant}


def ask(dimension: Dimension, share: float) -> str:
    """The value at a fraction of the range, or of the choices, as Optuna might suggest it."""
    class Trial:
        def suggest_float(self, name, low, high, log=False):
            return low * (high / low)**share if log else low + share * (high - low)

        def suggest_int(self, name, low, high):
            return round(low + share * (high - low))

        def suggest_categorical(self, name, choices):
            return choices[int(share * (len(choices) - 1))]
    return dimension.ask(Trial())


# Catches: a learning rate on a linear scale; a discount factor whose small distances from 1 are never tried; a number
# of minibatches by which no batch can be divided; a value that is rounded out of its range; a list of widths that is
# split at its commas.
@pytest.mark.parametrize(("typed", "said", "values"), [
    ({"lr": ["1e-4:1e-2"]}, "0.0001 to 0.01 on a log scale", ["0.0001", "0.001", "0.01"]),
    ({"lr": ["1E-4:+1e-2"]}, "0.0001 to 0.01 on a log scale", ["0.0001", "0.001", "0.01"]),
    ({"epochs": ["1e1:1_2"]}, "10 to 12", ["10", "11", "12"]),
    ({"lr": ["1e-4:4e-4"]}, "0.0001 to 0.0004 on a log scale", ["0.0001", "0.0002", "0.0004"]),
    ({"clip-ratio": ["0.1:0.3"]}, "0.1 to 0.3", ["0.1", "0.2", "0.3"]),
    ({"gamma": ["0.9:0.999"]}, "0.9 to 0.999 on a log scale of the distance from 1", ["0.999", "0.99", "0.9"]),
    ({"gamma": ["0.9999:0.99998"]}, "0.9999 to 0.99998", ["0.9999", "0.99994", "0.99998"]),
    ({"gamma": ["0.9:0.99999999999"]}, "0.9 to 1 on a log scale of the distance from 1", ["0.99999999999", "0.999999",
                                                                                           "0.9"]),
    ({"lr": ["1e-4:1.00005e-4"]}, "0.0001 to 0.000100005 on a log scale", ["0.0001", "0.0001000025", "0.000100005"]),
    ({"log-std": ["-2:0"]}, "-2 to 0", ["-2", "-1", "0"]),
    ({"epochs": ["3:7"]}, "3 to 7", ["3", "5", "7"]),
    ({"minibatches": ["1:16"]}, "1 2 4 8 16", ["1", "4", "16"]),
    ({"rollout-steps": ["1000000:1234567"]}, "1000000 to 1234567", ["1000000", "1117284", "1234567"]),
    ({"rollout-steps": ["300001:4000001"]}, "300001 524288 1048576 2097152 4000001", ["300001", "1048576", "4000001"]),
    ({"gamma": ["0.9", "0.99", "0.9", "1"]}, "0.9 0.99 1", ["0.9", "0.99", "1"]),
    ({"hidden": ["8", "64,64", "64,64,64"]}, "8 64,64 64,64,64", ["8", "64,64", "64,64,64"])])
def test_flags_define_the_search_space(typed, said, values):
    fixed, (dimension,) = space_of(ppo.Config, {"env": ["CartPole-v1"], "no-anneal": [], **typed})
    assert fixed == {"env": ["CartPole-v1"], "no-anneal": []}
    assert dimension.name == next(iter(typed)).replace("-", "_") and str(dimension) == said
    assert [ask(dimension, share) for share in (0, 0.5, 1)] == values


def test_colon_denotes_a_range_only_in_numbers():
    typed = {"env": ["pong:Pong-v5"], "seed": ["1:2"], "exp-name": ["1:2"], "unknown": ["1:2"]}
    assert space_of(ppo.Config, typed) == (typed, [])


@pytest.mark.parametrize(("typed", "message"), [
    ({"lr": ["1e-2:1e-3"]}, "--lr 1e-2:1e-3 is an empty range; write the smaller number first"),
    ({"lr": ["1e-3:1e-2", "1"]}, "--lr takes one range or several values"),
    ({"lr": ["1e-3:"]}, "--lr 1e-3: is not a range LOW:HIGH .--lr must be a number, not ''"),
    ({"lr": ["1e-3:1e-2:1e-1"]}, "--lr 1e-3:1e-2:1e-1 is not a range LOW:HIGH; write two numbers, such as"),
    ({"sticky-actions": ["none:0.3"]}, "--sticky-actions must be a number, not 'none'"),
    ({"gamma": ["0.9:1.5"]}, "--gamma must be from 0 to 1, not 1.5"),
    ({"gamma": ["0.9", "high"]}, "--gamma must be a number, not 'high'")])
def test_wrong_range_gives_one_sentence(typed, message):
    with pytest.raises(UserError, match=message):
        space_of(ppo.Config, typed)


# Catches: an algorithm without settings to tune; a recommended value that no run accepts; settings of the user outside
# the space, so that they cannot be the first trial.
@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_every_algorithm_has_a_valid_recommended_space(algorithm, tmp_path):
    given = []
    if issubclass(algorithm.load().Config, OfflineConfig):
        record(["random:Pendulum-v1"], tmp_path / "d.npz", steps=1, noise=[], stochastic=False, seed=1)
        given = ["--data", str(tmp_path / "d.npz")]

    def works(flags):
        try:
            from_flags(algorithm, [*given, *in_words(flags)])
        except UserError:
            return False
        return True
    base, _ = from_flags(algorithm, given)
    space, types = recommended(base, {}, works), types_of(type(base))
    assert {"lr", "max_kl"} & {d.name for d in space}                     # the size of an update
    for dimension in space:
        assert dimension.place(getattr(base, dimension.name), types[dimension.name]) is not None, dimension
        assert all(works({dimension.name: ask(dimension, share)}) for share in (0, 0.5, 1)), dimension


def test_settings_of_the_user_change_the_recommended_space():
    base = dqn.Config(lr=1e-6, gamma=1.0)
    space = {d.name: d for d in recommended(base, {"n-steps": ["3"]}, lambda flags: True)}
    assert set(space) == {"lr"}                                           # gamma 1 is outside, n_steps is fixed
    assert str(space["lr"]) == "2e-07 to 5e-06 on a log scale"
    small = recommended(ppo.Config(rollout_steps=4, minibatches=2), {}, lambda f: int(f.get("minibatches", 1)) <= 8)
    assert str(next(d for d in small if d.name == "minibatches")) == "2 4 8"
