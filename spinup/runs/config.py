"""Settings: one dataclass per algorithm. Each field has a type with its range, and a comment that explains it.

The command line, its help, the docs and `config.json` are all made from these dataclasses.
"""
import inspect
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated, Any, ClassVar, get_type_hints

from spinup.errors import UserError
from spinup.registry import Algorithm, own_name
from spinup.runs.convert import LARGEST, checked, flag


@dataclass(frozen=True)
class Range:
    """Range of a number; both ends are included unless `open_low`."""

    low: float
    high: float = math.inf
    open_low: bool = False

    def holds(self, x: float) -> bool:
        """Return whether a number is finite and in the range."""
        return math.isfinite(x) and (self.low < x if self.open_low else self.low <= x) and x <= self.high

    def __str__(self) -> str:
        low, high = (f"{x:.0f}" if x % 1 == 0 and abs(x) < 1e15 else f"{x:g}" for x in (self.low, self.high))
        above = f"above {low}" if self.open_low else f"at least {low}"
        if self.high == math.inf:
            return above
        return f"{above} and at most {high}" if self.open_low else f"from {low} to {high}"


Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range(0)]
Threads = Annotated[int, Range(0, 256)]                                   # torch crashes with too many threads
Processes = Annotated[int, Range(1, 256)]
Size = Annotated[int, Range(1, 65_536)]        # of a layer, or the number of objects in memory at once
Seed = Annotated[int, Range(0, LARGEST - 1)]
Positive = Annotated[float, Range(0, open_low=True)]
Ratio = Annotated[float, Range(0, 1000, open_low=True)]                   # of gradient steps to environment steps
NonNegative = Annotated[float, Range(0)]
Unit = Annotated[float, Range(0, 1)]
Share = Annotated[float, Range(0, 1, open_low=True)]
LogStd = Annotated[float, Range(-5, 2)]        # of an action in the range -1 to 1
Entropy = Annotated[float, Range(-10, 0.69)]   # in nats per dimension of that range; a uniform distribution has log 2
Episodes = Annotated[int, Range(0, 100_000)]
Frames = Annotated[int, Range(1, 1000)]
Widths = tuple[Size, ...]
INTERNAL = {"internal": True}            # metadata of a field that is not a setting: no flag, not in config.json
Row = dict[str, float | int]


@dataclass(kw_only=True)
class RunConfig:
    """Settings of every run. UserError, on creation, for a value of the wrong type or outside its range.

    Attributes:
        FAMILY: the family of the algorithm, a key of `spinup.registry.FAMILIES`.
        SUBJECT: the name of the field that holds the environment or task.
        AUTOMATIC: settings whose 0 becomes a number that suits the machine when a run starts.
        ONLY_WITH: settings whose effect depends on another setting. If the rule is a name, that other setting must
            not be 0, empty or false. If it is a tuple, that other setting, named first, must have one of the values
            after the name. A subclass adds its rules to those of its parents.
        algorithm: the name of the algorithm or variant, as in `config.json`; by default from the module of the class.
        on_row: from Python, a function that the run calls with each row of `progress.csv`.
    """

    FAMILY: ClassVar[str] = ""
    SUBJECT: ClassVar[str] = "env"
    AUTOMATIC: ClassVar[frozenset[str]] = frozenset()
    ONLY_WITH: ClassVar[dict[str, str | tuple]] = {}

    seed: Seed = 1                       # random seed; runs with the same seed on the same machine are identical
    total_steps: Count = 100_000         # steps of the whole run
    device: str = "auto"                 # auto, cpu, cuda, cuda:1 or mps; auto uses a GPU only where it is faster
    threads: Threads = 0                 # CPU threads of torch; 0 = automatic: 2 for wide networks and images, else 1
    log_dir: str = "runs"                # the folder for all experiments
    exp_name: str = ""                   # the experiment's name; without one, each run gets a new number
    checkpoint_steps: Natural = 0        # steps between checkpoints; 0 = 1/20 of the run
    tensorboard: bool = True             # also write TensorBoard events beside progress.csv
    wandb: bool = False                  # also send the rows to Weights & Biases, which you must install
    quiet: bool = False                  # print nothing during training
    algorithm: str = field(default="", metadata=INTERNAL)
    on_row: Callable[[Row], None] | None = field(default=None, metadata=INTERNAL)

    def __post_init__(self):
        for name, hint in types_of(type(self)).items():
            setattr(self, name, checked(name, hint, getattr(self, name)))
        if not self.log_dir:
            raise UserError("--log-dir is empty; type --log-dir . for this folder, or leave it out to use runs")
        self.log_dir = os.path.expanduser(self.log_dir)                   # a shell leaves --log-dir=~/runs as it is
        self.algorithm = self.algorithm or own_name(type(self).__module__, self.FAMILY)
        if self.on_row is not None and not callable(self.on_row):
            raise UserError(f"on_row must be a function of a row, not {self.on_row!r}")

    @classmethod
    def full_subject(cls, value: Any) -> Any:
        """Return the full name of an environment or task; `value` may be a short one."""
        return value

    @classmethod
    def default_subject(cls, asked: dict[str, Any]) -> Any:
        """Return the default environment or task for the given settings, `asked`, if they name none."""
        return getattr(cls, cls.SUBJECT)

    @classmethod
    def preset_names(cls, value: Any, algorithm: Algorithm, kinds: Sequence[str] = ()) -> list[str]:
        """Names that a preset for `value` may have, the most specific first. kinds: see `[defaults.KIND]`."""
        return [value] if isinstance(value, str) else []


@dataclass(kw_only=True)
class BaseConfig(RunConfig):
    """Settings of every algorithm that trains on environments."""

    env: str | Callable = "CartPole-v1"  # Gymnasium id, package:Id-v0, or from Python a function that makes it
    total_steps: Count = 100_000         # environment steps of the whole run, summed over all copies
    num_envs: Size = 8                   # environments in parallel; more: less correlated batches, faster collection
    env_workers: Threads = 0             # worker processes that step environments; useful for steps above 1 ms; 0: none
    frame_stack: Frames = 1              # number of stacked observations per input; several show velocities (2-4)
    init: str = ""                       # run folder whose policy is the initial policy; the network must be the same
    test_episodes: Episodes = 0          # deterministic test episodes per row of progress.csv, for test_return
    keep_best: bool = False              # also save the policy with the best test return; the result is the last policy
    compile: bool = False                # compile the update step: takes about 10 s once, then updates are faster

    def __post_init__(self):
        super().__post_init__()
        if self.keep_best and not self.test_episodes:
            raise UserError("--keep-best chooses by test episodes; add --test-episodes, such as --test-episodes 10")

    @classmethod
    def full_subject(cls, value: Any) -> Any:
        """Return the full id: CartPole becomes CartPole-v1. UserError, with the nearest id, if there is none."""
        from spinup.envs.ids import find_id  # not at the top: `spinup plot` does not need to import Gymnasium
        return find_id(value) if isinstance(value, str) else value

    @property
    def env_settings(self) -> dict[str, Any]:
        """Settings that `spinup.envs.make` takes in addition to the id."""
        return {"frame_stack": self.frame_stack} if self.frame_stack > 1 else {}

    def check_batch(self) -> None:
        """Check the settings of an on-policy algorithm. UserError if a batch of `num_envs` x `rollout_steps` steps
        cannot be split into equal `minibatches` of at least two steps, or is larger than the run. An algorithm
        without the setting `minibatches` has one."""
        batch, minibatches = self.num_envs * self.rollout_steps, getattr(self, "minibatches", 1)
        if batch % minibatches:
            raise UserError(f"--minibatches {minibatches} does not divide a batch of --num-envs {self.num_envs} x "
                            f"--rollout-steps {self.rollout_steps} = {batch} steps; choose a divisor of {batch}")
        if batch == minibatches:
            few = "minibatches" if batch > 1 else "a batch"
            larger = f"--minibatches below {batch}" if batch > 1 else "a larger --rollout-steps or --num-envs"
            raise UserError(f"advantages cannot be normalised over {few} of one step; choose {larger}")
        if self.total_steps < batch:
            raise UserError(f"--total-steps {self.total_steps} is less than one batch of {batch} steps; choose at "
                            f"least {batch}, or a smaller --rollout-steps")


@dataclass(kw_only=True)
class AtariConfig(BaseConfig):
    """Settings of every algorithm that supports images: the protocol of an Atari game. The id sets missing values."""

    ABOUT = "Atari games"

    sticky_actions: Unit | None = None   # Atari: chance per frame of repeating the last action; none = as the id says
    life_loss: bool | None = None        # Atari: a lost life ends the episode, in training only; none = as the id says
    clip_rewards: bool | None = None     # Atari: train on the sign of each reward; none = as the id says
    frame_skip: Frames | None = None     # Atari: frames per action, at 60 frames per second; none = as the id says
    full_actions: bool | None = None     # Atari: all 18 actions, not only those the game uses; none = as the id says

    def __post_init__(self):
        super().__post_init__()
        from spinup.envs.atari import protocol  # not above: `spinup plot` does not need to import Gymnasium
        for name, value in protocol(self.env, self._protocol()).items():
            setattr(self, name, value)

    def _protocol(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in AtariConfig.__annotations__ if getattr(self, name) is not None}

    @property
    def env_settings(self) -> dict[str, Any]:
        """Settings of any environment, and the protocol of an Atari game."""
        return super().env_settings | self._protocol()


@dataclass(kw_only=True)
class ReplayConfig(BaseConfig):
    """Settings of every algorithm that learns from a replay buffer."""

    ABOUT = "algorithms with a replay buffer"

    num_envs: Size = 1                   # environment copies run in parallel; does not change --update-ratio
    replay_size: Count = 1_000_000       # capacity of the replay buffer, in transitions; a small one drops useful data
    save_replay: bool = True             # save the replay buffer during the run; else a resumed run has an empty one
    learning_starts: Count = 1000        # steps of random actions at first; rounded up to a multiple of --update-every
    update_every: Count = 1              # steps between updates; rounded down to a multiple of --num-envs, at least one
    update_ratio: Ratio = 1.0            # gradient steps per environment step; higher: better data use, up to a limit
    batch_size: Size = 256               # transitions sampled for each gradient step

    def __post_init__(self):
        super().__post_init__()
        self.update_every = max(self.num_envs, self.update_every // self.num_envs * self.num_envs)
        for name, limit in (("replay_size", self.replay_size), ("total_steps", self.total_steps)):
            least = max(self.learning_starts, self.update_every)
            if limit < least:
                raise UserError(f"{flag(name)} {limit} is less than --learning-starts {self.learning_starts} or "
                                f"--update-every {self.update_every}; choose at least {least}")


def settings_of(config: type[RunConfig] | RunConfig) -> list[str]:
    """Names of the settings of a Config, without internal fields such as `on_row`."""
    return [f.name for f in fields(config) if not f.metadata.get("internal")]


def types_of(config: type[RunConfig]) -> dict[str, Any]:
    """The type of each setting, with its range."""
    hints = get_type_hints(config, include_extras=True)
    return {name: hints[name] for name in settings_of(config)}


def dependencies(config: type[RunConfig]) -> dict[str, tuple[str, list[Any]]]:
    """The rules in `ONLY_WITH` of a Config and its parents: by setting, the name of the other setting and the values
    that it must have. No values mean any but 0 and false."""
    rules = {name: rule for cls in reversed(config.__mro__) for name, rule in vars(cls).get("ONLY_WITH", {}).items()}
    return {name: (rule, []) if isinstance(rule, str) else (rule[0], [*rule[1:]]) for name, rule in rules.items()}


@cache
def comments(config: type[RunConfig]) -> dict[str, str]:
    """The comment of each setting, from the source code; a setting of a user's algorithm may have none."""
    found = {name: text.strip() for cls in reversed(config.__mro__[:-1])
             for name, text in re.findall(r"^    (\w+): .*?#\s*(.+)$", inspect.getsource(cls), re.M)}
    return {name: found.get(name, "no description") for name in settings_of(config)}
