"""A recipe: stages of training, from a TOML file in this folder or from the user. To add a recipe, add a file.

Listing the recipes imports neither torch nor a method.
"""
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spinup import registry
from spinup.errors import UserError, check_names, nearest, unreadable
from spinup.runs.config import settings_of

FOLDER = Path(__file__).parent
ENTRIES = ["about", "shared", "evaluate", "stages"]     # of a recipe
WORDS = ["method", "look"]                              # of a stage, beside its settings
NAME = re.compile(r"[a-z]\w*", re.ASCII)                # of a stage
MARK = "@"                                              # before the name of an earlier stage
REWARD = "reward"                                       # the setting that takes the run of a judge
JUDGE = "reward_model"                                  # the method whose runs hold a judge and no policy
NOT_SET = ("exp_name", "log_dir", "config")             # settings that the command sets, or that only it has


@dataclass(frozen=True)
class Step:
    """One stage of a recipe.

    Attributes:
        name: its name in the recipe.
        method: name of a method of `spinup llm`.
        settings: settings of this stage alone; a value such as "@base" is the folder of the stage base.
        look: one sentence about what to look at in its result.
    """

    name: str
    method: str
    settings: dict[str, Any]
    look: str = ""

    @property
    def references(self) -> dict[str, str]:
        """Settings that are the folder of an earlier stage, with the name of that stage."""
        return {key: x[len(MARK):] for key, x in self.settings.items() if isinstance(x, str) and x.startswith(MARK)}


@dataclass(frozen=True)
class Recipe:
    """Stages that run one after another.

    Attributes:
        name: name of the recipe, the name of its file.
        about: one line about it.
        shared: settings of all stages.
        evaluate: tasks on which every policy is evaluated; empty: the tasks of the stages.
        steps: the stages, in order.
    """

    name: str
    about: str
    shared: dict[str, Any]
    evaluate: list[str]
    steps: list[Step]


def recipe_names() -> dict[str, str]:
    """Return the names of the built-in recipes, found in the TOML files of this folder, with a line about each."""
    return {path.stem: tomllib.loads(path.read_text("utf-8"))["about"] for path in sorted(FOLDER.glob("*.toml"))}


def find_recipe(text: str | Path) -> Recipe:
    """Return the built-in recipe of a name, or that of a user's TOML file.

    Raise UserError, with the nearest name, for an unknown recipe, method, setting or stage that a setting refers to.
    """
    if text in recipe_names():
        return read_recipe(FOLDER / f"{text}.toml", f"the recipe {text}")
    path = Path(text)
    if path.suffix != ".toml":
        raise UserError(f"there is no recipe {str(text)!r}.{nearest(str(text), recipe_names())} `spinup llm recipe` "
                        "lists them; the name of your own file must end in .toml")
    return read_recipe(path, str(text))


def read_recipe(path: Path, where: str) -> Recipe:
    """Read and check a recipe; `where` names it in messages. Raise UserError as `find_recipe` does."""
    try:
        data = tomllib.loads(path.read_text("utf-8-sig"))                 # Windows may add a byte order mark
    except OSError as error:
        raise UserError(f"{where}: {error.strerror.lower()}; give a readable TOML file") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not TOML ({unreadable(error)}); write tables such as [stages.sft]") from None
    check_names(data, ENTRIES, f"{where}: a recipe has no entry")
    shared, stages, evaluate = data.get("shared", {}), data.get("stages"), data.get("evaluate", [])
    if not isinstance(stages, dict) or not stages or not all(isinstance(x, dict) for x in (shared, *stages.values())):
        raise UserError(f"{where} has no stages; write a table such as [stages.sft] for each")
    if not isinstance(evaluate, list) or not all(isinstance(x, str) for x in evaluate):
        raise UserError(f'{where}: evaluate must be a list of tasks, such as ["reverse"], not {evaluate!r}')
    steps: list[Step] = []
    for name, given in stages.items():
        steps.append(step_of(name, given, f"{where}, stage {name}", steps))
    shared = underscored(shared, f"{where}, [shared]")
    for step in steps:
        check_names(shared, known_of(step.method), f"{where}, [shared]: the stage {step.name} has no setting")
    return Recipe(path.stem, str(data.get("about", "")), shared, evaluate, steps)


def underscored(given: dict[str, Any], where: str) -> dict[str, Any]:
    """Return settings with _ in their names. Raise UserError for one that is there twice, or a task that is no text."""
    found = {key.replace("-", "_"): x for key, x in given.items()}
    if len(found) < len(given):
        twice = next(key for key in given if "-" in key and key.replace("-", "_") in given)
        raise UserError(f"{where} has both {twice} and {twice.replace('-', '_')}; leave one out")
    if not isinstance(found.get("task", ""), str):
        raise UserError(f'{where}: task must be a text, such as "reverse", not {found["task"]!r}')
    return found


def known_of(method: str) -> list[str]:
    """Names of the settings of a method that a recipe can set."""
    config = registry.look_up(f"llm {method}").load().Config
    return ["preset", *(name for name in settings_of(config) if name not in NOT_SET)]


def step_of(name: str, given: dict[str, Any], where: str, earlier: list[Step]) -> Step:
    """Return a stage from its table in the file. Raise UserError if something in it is unknown."""
    if not NAME.fullmatch(name):
        raise UserError(f"{where}: a stage's name has lower-case letters, digits and _, as in [stages.round_1]")
    given = underscored(given, where)
    method, settings = str(given.get("method", name)), {key: x for key, x in given.items() if key not in WORDS}
    if registry.look_up(f"llm {method}") is None:
        how = "" if "method" in given else '; a stage with a name of its own needs a line such as method = "grpo"'
        raise UserError(f"{where}: there is no method {method!r}.{nearest(method, registry.algorithms('llm'))} "
                        f"`spinup llm` lists them{how}")
    check_names(settings, known_of(method), f"{where}: {method} has no setting")
    step, names = Step(name, method, settings, str(given.get("look", ""))), [s.name for s in earlier]
    for key, other in step.references.items():
        if other not in names:
            few = f" Earlier stages are {', '.join(names)}" if names else " It is the first stage"
            raise UserError(f'{where}: {key} = "{MARK}{other}" names no earlier stage.{nearest(other, names) or few}')
        judges = next(s.method for s in earlier if s.name == other) == JUDGE
        if judges != (key == REWARD):
            raise UserError(f'{where}: {key} = "{MARK}{other}" is ' + (
                f"a reward model, which writes no text; use it as {REWARD}" if judges else
                f"a policy and no reward model; name a stage with the method {JUDGE}"))
    return step
