"""Settings: a dataclass per algorithm, whose fields say their range and, in their comments, their reason.

The command line, its help, the docs and `config.json` are all made from these dataclasses.
"""
import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from spinup.errors import UserError, nearest
from spinup.registry import Algorithm, own_name


@dataclass(frozen=True)
class Range:
    """The values a number may take, both ends included unless `open_low`."""

    low: float
    high: float = math.inf
    open_low: bool = False

    def holds(self, x: float) -> bool:
        """Whether a number is finite and inside."""
        return math.isfinite(x) and (self.low < x if self.open_low else self.low <= x) and x <= self.high

    def __str__(self) -> str:
        above = f"above {self.low:g}" if self.open_low else f"at least {self.low:g}"
        if self.high == math.inf:
            return above
        return f"{above} and at most {self.high:g}" if self.open_low else f"from {self.low:g} to {self.high:g}"


LARGEST = 2**63                                                           # of whole numbers that torch takes
Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range(0)]
Threads = Annotated[int, Range(0, 256)]                                   # torch dies of too many
Processes = Annotated[int, Range(1, 256)]
Size = Annotated[int, Range(1, 65_536)]        # of a layer, or how many of a thing are held in memory at once
Seed = Annotated[int, Range(0, LARGEST - 1)]
Positive = Annotated[float, Range(0, open_low=True)]
NonNegative = Annotated[float, Range(0)]
Unit = Annotated[float, Range(0, 1)]
LogStd = Annotated[float, Range(-5, 2)]        # of an action whose range is -1 to 1
Entropy = Annotated[float, Range(-10, 0.69)]   # nats of a dimension of that range; log 2 is that of a uniform draw
Episodes = Annotated[int, Range(0, 100_000)]
Frames = Annotated[int, Range(1, 1000)]
Widths = tuple[Size, ...]
TRUTH = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}


INTERNAL = {"internal": True}            # metadata of a field that is no setting: no flag, not in config.json
Row = dict[str, float | int]


@dataclass(kw_only=True)
class RunConfig:
    """Settings of every run. UserError, on creation, for a value of the wrong type or out of its range.

    Attributes:
        FAMILY: the family of its algorithms, a key of `spinup.registry.FAMILIES`.
        SUBJECT: the field that names what is trained on.
        algorithm: the name of the algorithm, or of the variant, as `config.json` has it; made from the class's module.
        on_row: from Python, a function that is called with each row of `progress.csv`.
    """

    FAMILY: ClassVar[str] = ""
    SUBJECT: ClassVar[str] = "env"

    seed: Seed = 1                       # decides every random number; the same seed and machine give the same run
    total_steps: Count = 100_000         # steps of the whole run
    device: str = "auto"                 # auto, cpu, cuda, cuda:1, mps; auto: a GPU where one helps, else the CPU
    threads: Threads = 0                 # torch's threads; 0 chooses: 1 for narrow networks, 2 for wide ones, images
    log_dir: str = "runs"                # the folder that holds the experiments
    exp_name: str = ""                   # the experiment's name; without one, each run takes a fresh number
    checkpoint_steps: Natural = 0        # steps between checkpoints; 0 means a twentieth of the run
    tensorboard: bool = True             # write TensorBoard events beside progress.csv
    wandb: bool = False                  # send the same rows to Weights & Biases, where it is installed
    quiet: bool = False                  # print nothing while training
    algorithm: str = field(default="", metadata=INTERNAL)
    on_row: Callable[[Row], None] | None = field(default=None, metadata=INTERNAL)

    def __post_init__(self):
        for name, hint in types_of(type(self)).items():
            setattr(self, name, checked(name, hint, getattr(self, name)))
        if not self.log_dir:
            raise UserError("--log-dir is empty; write . for this folder, or leave it out for runs")
        self.algorithm = self.algorithm or own_name(type(self).__module__, self.FAMILY)
        if self.on_row is not None and not callable(self.on_row):
            raise UserError(f"on_row must be a function of a row, not {self.on_row!r}")

    @classmethod
    def full_subject(cls, value: Any) -> Any:
        """The full name of what is trained on, where `value` is a short one."""
        return value

    @classmethod
    def preset_names(cls, value: Any, algorithm: Algorithm) -> list[str]:
        """Names that a preset for `value` may have, the most particular first."""
        return [value] if isinstance(value, str) else []


@dataclass(kw_only=True)
class BaseConfig(RunConfig):
    """Settings of every training on environments."""

    env: str | Callable = "CartPole-v1"  # a Gymnasium id, package:Id-v0, or in Python a function making an environment
    total_steps: Count = 100_000         # environment steps of the whole run, all copies counted
    num_envs: Size = 8                   # copies stepped together; more fill a batch sooner, with less correlated data
    env_workers: Threads = 0             # processes that step the copies, if a step takes over 1 ms; 0 = this process
    init: str = ""                       # the folder of a run whose policy to begin with; its network must be the same
    test_episodes: Episodes = 0          # deterministic episodes played for each row, apart from training: test_return
    compile: bool = False                # compile the whole update step: some 10 s once, then faster; for long runs

    @classmethod
    def full_subject(cls, value: Any) -> Any:
        """CartPole is CartPole-v1. UserError, with the nearest id, for one that does not exist."""
        from spinup.envs.make import find_id  # not above: `spinup plot` need not wait for Gymnasium
        return find_id(value) if isinstance(value, str) else value

    @property
    def env_settings(self) -> dict[str, Any]:
        """Settings that `spinup.envs.make` takes beside the id."""
        return {}


@dataclass(kw_only=True)
class AtariConfig(BaseConfig):
    """Settings of every training that sees images: the protocol of an Atari game, completed by what the id says."""

    ABOUT = "Atari games"

    sticky_actions: Unit | None = None   # Atari: chance, each frame, that the last action is repeated; none: by the id
    life_loss: bool | None = None        # Atari: a lost life ends the episode for the learner alone; none: by the id
    clip_rewards: bool | None = None     # Atari: the learner gets only the sign of each reward; none: by the id
    frame_skip: Frames | None = None     # Atari: frames that an action lasts, of 60 a second; none: by the id
    full_actions: bool | None = None     # Atari: all 18 actions, not only those that the game uses; none: by the id

    def __post_init__(self):
        super().__post_init__()
        from spinup.envs.atari import protocol  # not above: `spinup plot` need not wait for Gymnasium
        for name, value in protocol(self.env, self.env_settings).items():
            setattr(self, name, value)

    @property
    def env_settings(self) -> dict[str, Any]:
        """The protocol; {} for what is not an Atari game."""
        values = {name: getattr(self, name) for name in AtariConfig.__annotations__}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(kw_only=True)
class ReplayConfig(BaseConfig):
    """Settings of every training from a replay."""

    ABOUT = "learning from a replay"

    num_envs: Size = 1                   # copies stepped together; the gradient steps per environment step stay as many
    replay_size: Count = 1_000_000       # steps to remember; what is forgotten too early must be learned again
    save_replay: bool = True             # keep the replay on disk while the run lasts: else resuming begins a new one
    learning_starts: Count = 1000       # steps of random actions before the first gradient step
    update_every: Count = 1              # steps between updates, rounded down to a multiple of --num-envs
    update_ratio: Positive = 1.0         # gradient steps per environment step; more learn more of each, to a limit
    batch_size: Size = 256               # steps drawn for a gradient step

    def __post_init__(self):
        super().__post_init__()
        self.update_every = max(self.num_envs, self.update_every // self.num_envs * self.num_envs)
        for name, limit in (("replay_size", self.replay_size), ("total_steps", self.total_steps)):
            least = max(self.learning_starts, self.update_every)
            if limit < least:
                raise UserError(f"{flag(name)} {limit} is less than --learning-starts {self.learning_starts} or "
                                f"--update-every {self.update_every}; choose at least {least}")


def check_minibatches(cfg: Any) -> None:
    """UserError where `num_envs` x `rollout_steps` steps cannot be cut into equal `minibatches`, each of several steps,
    or are more than the run has."""
    batch = cfg.num_envs * cfg.rollout_steps
    if batch % cfg.minibatches:
        raise UserError(f"--minibatches {cfg.minibatches} does not divide a batch of --num-envs {cfg.num_envs} x "
                        f"--rollout-steps {cfg.rollout_steps} = {batch} steps; choose a divisor of {batch}")
    if batch == cfg.minibatches:
        raise UserError("advantages cannot be normalised over minibatches of one step; choose --minibatches below "
                        f"{batch}")
    if cfg.total_steps < batch:
        raise UserError(f"--total-steps {cfg.total_steps} is less than one batch of {batch} steps; choose at "
                        f"least {batch}, or a smaller --rollout-steps")


def checked(name: str, hint: Any, value: Any) -> Any:
    """`value` as `hint` wants it: an int where a float is wanted becomes one. UserError where it does not fit."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        value = checked(name, args[0], value)
        for limit in args[1:]:
            if not limit.holds(value):
                raise UserError(f"{flag(name)} must be {limit}, not {value}")
        return value
    if origin is Literal:
        if value not in args:
            words = [str(a) for a in args]
            near = nearest(str(value), words)
            raise UserError(f"{flag(name)} must be one of {', '.join(words)}, not {value!r}.{near}")
        return value
    if origin in (Union, UnionType):
        if value is None and type(None) in args:
            return None
        if object in args or (Callable in args and (callable(value) or hasattr(value, "num_envs"))):
            return value                                                  # the last is a vector environment
        return checked(name, next(a for a in args if a is not type(None)), value)
    if origin is tuple:
        if not isinstance(value, list | tuple) or not value:
            raise UserError(f"{flag(name)} must be numbers such as 64,64, not {value!r}")
        return tuple(checked(name, args[0], v) for v in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value) if abs(value) < 2**1023 else checked(name, hint, math.inf)
    if hint is int and isinstance(value, int | float) and abs(value) >= LARGEST:
        raise UserError(f"{flag(name)} must be below 2^63, which is 9.2e18; choose a smaller number")
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        kind = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(hint, str(hint))
        raise UserError(f"{flag(name)} must be {kind}, not {value!r}")
    if hint is float and not math.isfinite(value):
        raise UserError(f"{flag(name)} must be a finite number, not {value}")
    return value


def parse(name: str, hint: Any, text: str) -> Any:
    """The value that `text`, from the command line, stands for. UserError where it stands for none.

    1e6 and 100_000 are whole numbers, 64,64 is a tuple, none is None, and yes, on and 1 are true.
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return checked(name, hint, parse(name, args[0], text))
    if origin in (Union, UnionType):
        if type(None) in args and text.lower() == "none":
            return None
        return parse(name, next(a for a in args if a is not type(None)), text)
    if origin is tuple:
        parts = text.strip().strip("()[]").removesuffix(",").split(",")
        return tuple(parse(name, args[0], part) for part in parts) if text.strip("()[], ") else ()
    if hint in (int, float):
        try:
            number = int(text) if re.fullmatch(r"[+-]?[\d_]{1,300}", text.strip()) else float(text)
        except ValueError:
            kind = "a whole number" if hint is int else "a number"
            raise UserError(f"{flag(name)} must be {kind}, not {text[:40]!r}") from None
        return checked(name, hint, number)
    return checked(name, hint, TRUTH.get(text.lower(), text) if hint is bool else text)


def flag(name: str) -> str:
    """The command-line spelling of a field."""
    return "--" + name.replace("_", "-")


def settings_of(config: type[RunConfig] | RunConfig) -> list[str]:
    """Names of the settings of a Config; fields that are none, such as `on_row`, are left out."""
    return [f.name for f in fields(config) if not f.metadata.get("internal")]


def types_of(config: type[RunConfig]) -> dict[str, Any]:
    """The type of each setting, with its range."""
    hints = get_type_hints(config, include_extras=True)
    return {name: hints[name] for name in settings_of(config)}


@cache
def comments(config: type[RunConfig]) -> dict[str, str]:
    """The comment of each setting, from the source."""
    found = {}
    for cls in reversed(config.__mro__[:-1]):
        for name, text in re.findall(r"^    (\w+): .*?#\s*(.+)$", inspect.getsource(cls), re.M):
            found[name] = text.strip()
    return found


def check_names(given: dict[str, Any], known: list[str], sentence: str) -> None:
    """UserError for the first name that is not known, with the nearest one."""
    for name in given:
        if name not in known:
            raise UserError(f"{sentence} {name!r}.{nearest(name, known)}")
