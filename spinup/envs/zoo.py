"""PettingZoo environments. A turn-based two-player game becomes a `Game`. In an environment with simultaneous actions,
each agent is one row.

The ids are PettingZoo's: classic/connect_four-v3, mpe/simple_spread-v3, atari/pong-v3, sisl/..., butterfly/...
"""
import importlib
import os
import pkgutil
import sys
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Discrete

from spinup.envs.faults import check_step, failed, making, place
from spinup.envs.games import Duels, Game, Games
from spinup.envs.spaces import observation_view, to_native
from spinup.envs.state import load_rng, save_rng
from spinup.envs.vector import Step, VectorEnv, copy_seeds
from spinup.errors import UserError, nearest, source_name

# Start of the id -> modules that it needs besides PettingZoo.
NEEDS = {"atari/": ("supersuit", "multi_agent_ale_py"), "butterfly/": ("supersuit",), "sisl/": ("supersuit",),
         "mpe/": ("mpe2", "supersuit"), "classic/chess": ("chess",),
         **{f"classic/{cards}": ("rlcard",) for cards in ("gin_rummy", "leduc_holdem", "texas_holdem")}}
FAMILIES = ("atari/", "butterfly/", "classic/", "mpe/", "sisl/")


def is_zoo(env: object) -> bool:
    """True if this is a PettingZoo id."""
    return isinstance(env, str) and env.startswith(FAMILIES)


def is_parallel(env: object) -> bool:
    """True if this is a user's own class of PettingZoo environments in which all agents act simultaneously."""
    pettingzoo = sys.modules.get("pettingzoo")                            # imported if the class derives from it
    return isinstance(env, type) and pettingzoo is not None and issubclass(env, pettingzoo.ParallelEnv)


@cache
def zoo_ids() -> list[str]:
    """Return all ids, sorted; none if PettingZoo is not installed."""
    if find_spec("pettingzoo") is None:
        return []
    import pettingzoo
    ids = [*pettingzoo.aec_registry]
    if find_spec("mpe2") is not None:
        import mpe2
        names = (module.name.rpartition("_v") for module in pkgutil.iter_modules(mpe2.__path__))
        ids += [f"mpe/{name}-v{version}" for name, _, version in names if version.isdigit()]
    return sorted(ids)


def missing(env: str) -> str:
    """Return a module that this id needs and that is not installed, or ""."""
    needed = [module for words, modules in NEEDS.items() if env.startswith(words) for module in modules]
    return next((module for module in ("pettingzoo", *needed) if find_spec(module) is None), "")


def find_zoo_id(env: str) -> str:
    """Return the full id. UserError if a package is missing, or, with the nearest name, if there is no such id."""
    if module := missing(env):
        raise UserError(f"{env} needs {module}; type: pip install 'spinup-rl[multi]'")
    for known in zoo_ids():
        if env in (known, known.rpartition("-v")[0]):
            return known
    raise UserError(f"there is no environment {env!r}.{nearest(env, zoo_ids())} `spinup envs` lists them all")


def make_zoo(env: str | type, num_envs: int, seed: int, **kwargs: Any) -> VectorEnv:
    """Create `Duels` for classic games, else `Agents`; `kwargs` are settings of the PettingZoo environment."""
    if isinstance(env, str) and env.startswith("classic/"):
        return Duels(partial(ZooGame, env, **kwargs), num_envs, seed)
    return Agents(env, num_envs, seed, **kwargs)


def num_agents(env: object) -> int:
    """Number of `VectorEnv` rows per environment copy: 1, or the number of agents if they act simultaneously."""
    if not is_parallel(env) and (not is_zoo(env) or env.startswith("classic/")):
        return 1
    one = make_one_zoo(find_zoo_id(env) if is_zoo(env) else env, "parallel")
    agents = len(one.possible_agents)
    one.close()
    return agents


def make_one_zoo(env: str | type, kind: str, **kwargs: Any) -> Any:
    """Create a PettingZoo environment of the kind "aec" or "parallel". UserError: it cannot be created;
    EnvironmentFailure: a user's class raises an exception."""
    if not isinstance(env, str):
        with making(source_name(env)):
            return env(**kwargs)
    import pettingzoo
    from pettingzoo.env_registry.exceptions import FailedToImport
    try:
        if env.startswith("mpe/"):
            module = importlib.import_module("mpe2." + env.removeprefix("mpe/").replace("-v", "_v"))
            return (module.parallel_env if kind == "parallel" else module.env)(**kwargs)
        if env.startswith("atari/"):
            import ale_py

            kwargs.setdefault("auto_rom_install_path", os.path.join(os.path.dirname(ale_py.__file__), "roms"))
        return pettingzoo.make(kind, env, **kwargs)
    except (ImportError, FailedToImport) as error:
        family = env.partition("/")[0]
        extra = "spinup-rl[multi]" if family in ("mpe", "atari", "classic") else f"pettingzoo[{family}]"
        raise UserError(f"{env} cannot be made here: {str(error).splitlines()[0].rstrip('.')}; type: pip install "
                        f"'{extra}'") from None
    except TypeError as error:
        raise UserError(f"{env} does not take these settings: {error}") from None


class ZooGame(Game):
    """N games of a PettingZoo game for two players, each in a separate environment.

    The result of a game is the sum of the rewards of its moves. `save` keeps the moves, and `load` plays them again.
    UserError: the game does not have two players with the same actions. A later step raises it if the game is not
    zero-sum.
    """

    def __init__(self, env: str, num_games: int, seed: int = 0, **kwargs: Any):
        super().__init__(num_games)
        own = np.random.SeedSequence(seed, spawn_key=(1,))                # `generator(seed)` draws the openings
        self.name, self.rng = env, np.random.default_rng(own)
        self.games = [make_one_zoo(env, "aec", **kwargs) for _ in range(num_games)]
        one = self.games[0]
        spaces = [one.action_space(agent) for agent in one.possible_agents]
        if len(spaces) != 2 or spaces[0] != spaces[1] or not isinstance(spaces[0], Discrete):
            raise UserError(f"{env} is not a two-player game with the same actions for both players; choose another, "
                            "such as classic/connect_four-v3")
        self.num_actions = int(spaces[0].n)
        self.seeds, self.moves = [0] * num_games, [[]] * num_games        # they determine each game
        self.openers, self.totals = [""] * num_games, [{}] * num_games    # first player, rewards of both
        self.seen: list[tuple[np.ndarray, np.ndarray] | None] = [None] * num_games        # what `_see` has computed
        self.reset()
        self.shape = self._see(0)[0].shape

    def reset(self, games: Games = slice(None)) -> None:
        for i in self.numbers(games):
            self._begin(i, int(self.rng.integers(2**31)))

    def _begin(self, i: int, seed: int) -> None:
        self.games[i].reset(seed=seed)
        self.seen[i] = None
        self.seeds[i], self.moves[i], self.mover[i] = seed, [], 0
        self.openers[i] = self.games[i].agent_selection
        self.totals[i] = dict.fromkeys(self.games[i].possible_agents, 0.0)

    def legal(self, games: Games = slice(None)) -> np.ndarray:
        return np.stack([self._see(i)[1] for i in self.numbers(games)])

    def observe(self, games: Games = slice(None)) -> np.ndarray:
        return np.stack([self._see(i)[0] for i in self.numbers(games)])

    def _see(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Observation and legal-action mask of the player to move in game i, computed once for each position."""
        if self.seen[i] is None:
            game = self.games[i]
            seen = game.observe(game.agent_selection)
            if isinstance(seen, dict):
                self.seen[i] = np.array(seen["observation"]), np.array(seen["action_mask"], bool)
            else:
                view = observation_view(game.observation_space(game.agent_selection))[2]
                self.seen[i] = np.array(view(seen)), np.ones(self.num_actions, bool)
        return self.seen[i]

    def play(self, action: np.ndarray, games: Games = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        numbers = self.numbers(games)
        worth, over = np.zeros(len(numbers), np.float32), np.zeros(len(numbers), bool)
        if len(numbers):
            self.check_legal(action, games)
        for k, i in enumerate(numbers):
            worth[k], over[k] = self._move(i, int(action[k]))
        return worth, over

    def _move(self, i: int, action: int) -> tuple[float, bool]:
        game, totals = self.games[i], self.totals[i]
        mover, self.seen[i] = game.agent_selection, None
        game.step(action)
        self.moves[i].append(action)
        for agent, reward in game.rewards.items():
            totals[agent] += reward
        if abs(sum(game.rewards.values())) > 1e-6:
            raise UserError(f"{self.name} is not a zero-sum game: its rewards do not add up to 0; choose another, such "
                            "as classic/connect_four-v3")
        if any(game.terminations.values()) or any(game.truncations.values()):
            return totals[mover], True
        self.mover[i] = game.agent_selection != self.openers[i]
        return 0.0, False

    def save(self) -> dict[str, Any]:
        return {"rng": save_rng(self.rng), "seeds": list(self.seeds), "moves": [list(m) for m in self.moves]}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the output of `save`, by playing all moves again."""
        load_rng(self.rng, state["rng"])
        for i, (seed, moves) in enumerate(zip(state["seeds"], state["moves"], strict=True)):
            self._begin(i, seed)
            for action in moves:
                self._move(i, action)


class Agents(VectorEnv):
    """Copies of an environment in which all agents act simultaneously: each agent of each copy is a row.

    One policy controls all agents (parameter sharing). If the observations are vectors of different lengths, they are
    padded with zeros, followed by a one-hot vector of the agent (Terry et al. 2020, arXiv:2005.13625). Atari games use
    4 stacked frames of 84 x 84 grey pixels, and one more constant image per agent, as the one-hot vector. Each frame is
    the maximum of two, and an action lasts 4 frames.

    Args:
        num_envs: number of rows, a multiple of the number of agents.
    UserError: `num_envs` is not a multiple, or agents have different actions. A later step raises it if an agent leaves
    before the others.
    """

    why_not_saved = "the state of PettingZoo's environments cannot be read"
    shown_by = ()

    def __init__(self, env: str | type, num_envs: int, seed: int, **kwargs: Any):
        super().__init__(num_envs)
        self.source, self.name = env, source_name(env)
        first = self._make(**kwargs)
        self.agents = list(first.possible_agents)
        k = len(self.agents)
        if num_envs % k:
            raise UserError(f"--num-envs {num_envs} is not a multiple of {k}, the number of agents of {self.name}; "
                            f"choose {k * max(1, round(num_envs / k))}")
        self.envs = [first, *(self._make(**kwargs) for _ in range(num_envs // k - 1))]
        actions = [first.action_space(agent) for agent in self.agents]
        if any(space != actions[0] for space in actions):
            raise UserError(f"the agents of {self.name} have different actions, so one policy cannot play all of them; "
                            "choose another, such as mpe/simple_spread-v3")
        self.observation_space, self.action_space = first.observation_space(self.agents[0]), actions[0]
        self.shape, self.dtype, self.view = observation_view(self.observation_space)
        self.seeds = copy_seeds(seed, num_envs // k)

    def _make(self, **kwargs: Any) -> Any:
        env = make_one_zoo(self.source, "parallel", **kwargs)
        if self.name.startswith("atari/"):
            import supersuit
            env = supersuit.frame_skip_v0(supersuit.max_observation_v0(env, 2), 4)
            env = supersuit.resize_v1(supersuit.color_reduction_v0(env, "full"), 84, 84)
            return supersuit.agent_indicator_v0(supersuit.frame_stack_v1(env, 4))   # all agents see the same frames
        spaces: list[Space] = [env.observation_space(agent) for agent in env.possible_agents]
        if any(space != spaces[0] for space in spaces):
            import supersuit
            env = supersuit.agent_indicator_v0(supersuit.pad_observations_v0(env))
        return env

    def _rows(self, seen: dict[str, Any]) -> np.ndarray:
        return np.stack([np.asarray(self.view(seen[agent]), self.dtype) for agent in self.agents])

    def _reset(self) -> np.ndarray:
        return np.concatenate([self._rows(env.reset(seed=seed)[0])
                               for env, seed in zip(self.envs, self.seeds, strict=True)])

    def reseed(self, seed: int) -> None:
        self.seeds = copy_seeds(seed, len(self.envs))
        self.reset()

    def _step(self, action: np.ndarray) -> Step:
        k, ends = len(self.agents), []
        obs = np.empty((self.num_envs, *self.shape), self.dtype)
        reward = np.empty(self.num_envs, np.float32)
        terminated, truncated = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        for i, env in enumerate(self.envs):
            rows = slice(i * k, (i + 1) * k)
            acts = {agent: to_native(self.action_space, a) for agent, a in zip(self.agents, action[rows], strict=True)}
            try:
                seen, rewards, ended, cut, _ = env.step(acts)
                obs[rows] = self._rows(seen)
                for values, given in ((reward, rewards), (terminated, ended), (truncated, cut)):
                    values[rows] = [given[agent] for agent in self.agents]
            except Exception as error:
                where = place(int(self.episode_length[rows][0]) + 1, i, action[rows])
                raise failed(self.name, error, where) from error
            if (over := terminated[rows] | truncated[rows]).any():
                if not over.all():
                    raise UserError(f"in {self.name} some agents leave before the others, which is not supported; "
                                    "choose another, such as mpe/simple_spread-v3")
                ends.append((rows, obs[rows].copy()))
                obs[rows] = self._rows(env.reset()[0])
        final_obs = None
        if ends:
            final_obs = obs.copy()
            for rows, last in ends:
                final_obs[rows] = last
        check_step(self.name, obs, reward, final_obs, action, self.episode_length + 1)
        return Step(obs, reward, terminated, truncated, final_obs)

    def close(self) -> None:
        for env in self.envs:
            env.close()
