"""Conversion of observations for the network, supported action spaces, and spaces as JSON."""
import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from spinup.core.distributions import Categorical, DiagGaussian
from spinup.envs import make
from spinup.envs.spaces import (
    action_bounds,
    action_distribution,
    number_of_actions,
    observation_view,
    space_from_json,
    space_to_json,
    to_native,
    vector_size,
)
from spinup.errors import ActionsError, UserError

INF = np.inf


class Shows(gymnasium.Env):
    """Returns the given observations, first `seen[0]`, then `seen[1]`, in episodes of one step."""

    action_space = Discrete(2)

    def __init__(self, space, seen):
        self.observation_space, self.seen = space, seen

    def reset(self, *, seed=None, options=None):
        return self.seen[0], {}

    def step(self, action):
        return self.seen[1], 0.0, True, False, {}


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def pixels(*shape: int) -> Box:
    return Box(0, 255, shape, np.uint8)


# space, an observation, what the network gets
SEEN = {
    "vector": (Box(-1, 1, (2,)), np.array([0.5, -1], np.float32), [0.5, -1]),
    "vector of float64": (Box(-1, 1, (2,), np.float64), np.array([0.5, -1]), [0.5, -1]),
    "table": (Box(-1, 1, (2, 2)), np.array([[0, 1], [-1, 0.5]], np.float32), [0, 1, -1, 0.5]),
    "number": (Box(-1, 1, ()), np.float32(0.5), [0.5]),
    "bytes": (pixels(3), np.array([0, 51, 255], np.uint8), [0, 0.2, 1]),
    "bytes to 10": (Box(0, 10, (2, 1), np.uint8), np.array([[5], [10]], np.uint8), [0.5, 1]),
    "bytes in a dict": (Dict(a=Dict(b=pixels(1, 2), c=Discrete(2)), d=Tuple([Box(0, 9, (1,))])),
                        {"a": {"b": np.array([[51, 255]], np.uint8), "c": 1}, "d": (np.array([9], np.float32),)},
                        [0.2, 1, 0, 1, 9]),
    "discrete": (Discrete(3), 2, [0, 0, 1]),
    "discrete from -1": (Discrete(3, start=-1), -1, [1, 0, 0]),
    "multidiscrete": (MultiDiscrete([2, 3]), np.array([1, 0]), [0, 1, 1, 0, 0]),
    "multibinary": (MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1]),
    "dict": (Dict(b=Discrete(2), a=Box(-1, 1, (2,))), {"a": np.array([0.5, 1], np.float32), "b": 1}, None),
    "tuple": (Tuple([Discrete(2), Box(-1, 1, (1,))]), (0, np.array([0.25], np.float32)), [1, 0, 0.25])}


# Catches: one-hot vectors that ignore `start`; a table that keeps its two axes; float64 that stays float64; bytes that
# are not divided, in a Dict or outside of one.
@pytest.mark.parametrize("space, seen, expected", SEEN.values(), ids=SEEN)
def test_observations_other_than_images_become_vectors(space, seen, expected):
    if expected is None:                                                  # gymnasium decides the order of the keys
        expected = spaces.flatten(space, seen)
    shape, dtype, _ = observation_view(space)
    env = make(lambda: Shows(space, [seen, seen]), 2)
    obs = env.reset()
    assert obs.shape == (2, *shape) == (2, len(expected)) and obs.dtype == dtype == np.float32
    np.testing.assert_array_equal(obs, np.float32([expected, expected]))
    np.testing.assert_array_equal(env.step(np.zeros(2, np.int64)).final_obs, np.float32([expected, expected]))


# Catches: channels that stay at the end; a reshape of the image in place of a permutation of its axes.
@pytest.mark.parametrize("shape, turned", [
    ((36, 40), (1, 36, 40)), ((36, 40, 3), (3, 36, 40)), ((4, 84, 84), (4, 84, 84)), ((50, 36, 40), (50, 36, 40))])
def test_images_have_their_channels_first(shape, turned):
    first, last = image(2, *shape)
    env = make(lambda: Shows(pixels(*shape), [first, last]))
    obs = env.reset()
    assert obs.shape == (1, *turned) and obs.dtype == np.uint8
    assert observation_view(pixels(*shape))[:2] == (turned, np.uint8)
    channels = [first[..., c] for c in range(3)] if shape[-1] == 3 else first.reshape(turned)
    np.testing.assert_array_equal(obs[0], channels)
    np.testing.assert_array_equal(env.step(np.zeros(1, np.int64)).final_obs[0].sum(), last.sum(dtype=np.uint64))


# Gymnasium's own wrapper makes the stack. Catches: a stack that becomes a vector; a stack that is reshaped with its
# channels at the end.
@pytest.mark.parametrize("shape", [(36, 40, 3), (3, 36, 40)])
def test_stacked_images_become_one_image_with_more_channels(shape):
    first, last = image(2, *shape)
    env = make(lambda: gymnasium.wrappers.FrameStackObservation(Shows(pixels(*shape), [first, last]), 2))
    assert env.observation_space.shape == (2, *shape) and env.reset().shape == (1, 6, 36, 40)
    seen = env.step(np.zeros(1, np.int64)).final_obs
    channels = [np.moveaxis(frame, shape.index(3), 0) for frame in (first, last)]
    assert seen.dtype == np.uint8 and np.array_equal(seen[0], np.concatenate(channels))


# Catches: a missing division by 255, which saturates every tanh; 35 pixels that count as enough.
def test_too_small_images_become_vectors_from_0_to_1():
    seen = image(35, 36, 3)
    obs = make(lambda: Shows(pixels(35, 36, 3), [seen, seen])).reset()
    assert obs.dtype == np.float32
    np.testing.assert_allclose(obs, seen.reshape(1, -1) / 255, rtol=1e-6)


# Catches: a division by 255 if white is not 255; pixels that are not scaled to 255, although the network divides by
# 255.
@pytest.mark.parametrize("shape, seen", [((10, 10, 4), 1.0), ((40, 40, 3), 255)])
def test_images_of_zeros_and_ones_are_scaled_like_pixels(shape, seen):
    space = Box(0, 1, shape, np.uint8)
    obs = make(lambda: Shows(space, [np.ones(shape, np.uint8)] * 2)).reset()
    assert (obs == seen).all() and obs.dtype == observation_view(space)[1]


# Catches: 255 x 255, which is 1 in bytes, so that white becomes black.
def test_image_values_above_the_space_are_refused():
    seen = np.full((40, 40, 1), 255, np.uint8)
    with pytest.raises(UserError, match="an image with the value 255, but the largest value of its observation space"):
        make(lambda: Shows(Box(0, 1, seen.shape, np.uint8), [seen] * 2)).reset()


# Catches: floats, which Gymnasium uses as indices.
def test_multidiscrete_observations_must_be_integers():
    space = MultiDiscrete([3, 4])
    assert make(lambda: Shows(space, [np.array([2, 1])] * 2)).reset().sum() == 2
    with pytest.raises(UserError, match="make them agree"):
        make(lambda: Shows(space, [np.array([2.0, 1.0])] * 2)).reset()


@pytest.mark.parametrize("space", [Box(0, 1, (0,)), Dict()], ids=["Box", "Dict"])
def test_empty_observations_are_refused(space):
    with pytest.raises(UserError, match="observations of .* are empty; give the environment"):
        observation_view(space)


def test_half_precision_of_actions_is_kept():
    space = Box(-1, 1, (2,), np.float16)
    assert space.contains(to_native(space, np.array([0.3, -1], np.float32)))


def test_observations_without_a_fixed_length_are_refused():
    with pytest.raises(UserError, match="Sequence have no fixed length; wrap the environment"):
        observation_view(spaces.Sequence(Discrete(2)))


# Catches: bounds that stay two-dimensional; MultiBinary as one choice of 2.
def test_each_action_space_has_its_distribution():
    assert action_distribution(Discrete(3, start=5), "ppo") == Categorical((3,))
    assert action_distribution(MultiDiscrete([3, 2]), "ppo") == Categorical((3, 2))
    assert action_distribution(MultiBinary(2), "ppo") == Categorical((2, 2))
    box = action_distribution(Box(np.float32([[-1, -2]]), np.float32([[3, INF]])), "ppo")
    assert isinstance(box, DiagGaussian) and box.low.tolist() == [-1, -2] and box.high.tolist() == [3, INF]


@pytest.mark.parametrize("space", [Dict(a=Discrete(2)), Tuple([Discrete(2)]), Text(3), Box(0, 9, (2,), np.int64),
                                   MultiDiscrete([[2, 3]])])
def test_unsupported_action_spaces_are_refused_by_name(space):
    with pytest.raises(UserError, match="^vpg cannot act in .*supports Discrete, MultiDiscrete, MultiBinary and Box"):
        action_distribution(space, "vpg")


# Catches: a `start` that adds to the number of actions; a MultiDiscrete space that counts as its first choice.
def test_only_discrete_spaces_have_a_number_of_actions():
    assert number_of_actions(Discrete(3, start=5), "dqn") == 3
    for space in (MultiDiscrete([3, 2]), MultiBinary(2), Box(-1, 1, (2,)), Dict(a=Discrete(2))):
        with pytest.raises(ActionsError, match=r"^dqn cannot act in .*; it supports Discrete actions$") as error:
            number_of_actions(space, "dqn")
        assert error.value.kind == type(space).__name__ and str(space) in str(error.value)


# Catches: bounds that stay two-dimensional; the bounds of the first dimension for all.
def test_action_bounds_are_one_row_with_a_pair_per_dimension():
    low, high = action_bounds(Box(np.float32([[-1, -2], [0, 3]]), np.float32([[1, 5], [0.5, 4]])), "sac")
    assert low.tolist() == [-1, -2, 0, 3] and high.tolist() == [1, 5, 0.5, 4]
    low, high = action_bounds(Box(-0.1, 0.1, (1,), np.float64), "sac")
    assert low.tolist() == [-0.1] and high.tolist() == [0.1] and low.dtype == np.float64


# Catches: an infinite bound on one side, or an empty range, that is accepted; an ActionsError, which would suggest
# other algorithms with the same limitation.
@pytest.mark.parametrize(("low", "high"), [
    ([-INF, 0], [1, 1]), ([0, 0], [1, INF]), ([0, 1], [1, 1]), ([-3e38, 0], [3e38, 1])])
@pytest.mark.filterwarnings("ignore:overflow")
def test_infinite_or_empty_bounds_are_refused_with_a_solution(low, high):
    with pytest.raises(UserError, match="^td3 needs actions with finite bounds.*TransformAction") as error:
        action_bounds(Box(np.float32(low), np.float32(high)), "td3")
    assert not isinstance(error.value, ActionsError)


@pytest.mark.parametrize("space", [Discrete(2), MultiDiscrete([3, 2]), MultiBinary(2), Box(0, 9, (2,), np.int64),
                                   Tuple([Box(-1, 1)])])
def test_spaces_without_bounds_are_refused_by_name(space):
    with pytest.raises(ActionsError, match=r"^sac cannot act .* supports Box actions \(real numbers\)$") as error:
        action_bounds(space, "sac")
    assert error.value.kind == type(space).__name__


# Catches: the first axis of an image as its size; a one-hot vector that counts as one number.
def test_vectors_have_a_size_and_images_do_not():
    assert vector_size(Box(-1, 1, (2, 3)), "sac") == 6
    assert vector_size(Discrete(4), "sac") == 4
    assert vector_size(pixels(5, 5, 3), "sac") == 75                      # too small for the network: a vector
    with pytest.raises(UserError, match=r"^sac supports vector observations, not images of \(3, 36, 40\); wrap"):
        vector_size(pixels(36, 40, 3), "sac")


# Catches: a missing start or dtype; float32 bounds that are rounded (0.1 is not a float32); the parts of a Dict in
# sorted order, with which a loaded policy would exchange parts of the observation.
@pytest.mark.parametrize("space", [
    Box(np.array([-0.1, -INF], np.float32), np.array([0.3, INF], np.float32)), Box(-1, 1, (2, 3), np.float64),
    Box(-5, 5, (), np.float32), pixels(4, 5, 3), Discrete(4, start=-3), MultiDiscrete([3, 2]),
    MultiDiscrete([3, 2], start=[1, 5]), MultiBinary(4), MultiBinary([2, 3]), Tuple([Discrete(2), Box(0, 1, (1,))]),
    Dict(b=Discrete(2), a=Dict(c=MultiBinary(2)))], ids=repr)
def test_spaces_are_restored_from_json(space):
    read = space_from_json(json.loads(json.dumps(space_to_json(space))))
    assert read == space and read.dtype == space.dtype
    if isinstance(space, Dict):
        assert list(read.spaces) == list(space.spaces)                    # the vector has this order


def test_unknown_spaces_are_refused_in_both_directions():
    with pytest.raises(UserError, match="Text is not supported; wrap the environment"):
        space_to_json(Text(3))
    with pytest.raises(UserError, match="unknown kind of space, 'Torus'"):
        space_from_json({"kind": "Torus"})
