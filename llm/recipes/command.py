"""Commands `spinup llm recipe` and `spinup llm rlhf`: their flags and their output."""
import shlex
from typing import Any

from llm.recipes.recipe import Recipe, find_recipe, recipe_names
from spinup import registry, signals
from spinup.parser import Parser

USAGE = """\
usage: spinup llm recipe NAME|FILE.toml [--STAGE.SETTING VALUE ...]

Stages of training in sequence. The same command with the same --exp-name skips finished stages and resumes a stopped
one. `spinup llm recipe NAME --help` lists the stages and their settings. FILE.toml is a recipe of your own.

"""


def run(argv: list[str]) -> int:
    """Run `spinup llm recipe ARGV`; without a name, list the recipes."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(USAGE + "\n".join(f"  {name:<13}{about}" for name, about in recipe_names().items()))
        return 0
    return train(find_recipe(argv[0]), ["llm", "recipe", argv[0]], argv[1:])


def run_rlhf(argv: list[str]) -> int:
    """Run `spinup llm rlhf ARGV`."""
    return train(find_recipe("rlhf"), ["llm", "rlhf"], argv)


def train(recipe: Recipe, words: list[str], argv: list[str]) -> int:
    """Run a recipe with the flags `argv` after the words of the command; return the exit code.

    Raise UserError, before anything is created, if a stage could not start.
    """
    given = vars(parser_of(recipe, f"spinup {' '.join(words)}").parse(argv))
    from llm.pipeline import plan, work
    own: dict[str, dict[str, Any]] = {}
    for key, value in given.items():
        stage, _, field = key.rpartition(".")
        own.setdefault(stage, {})[field] = value
    stages = plan(recipe, own.pop("", {}), own)
    try:
        work(recipe, stages)
    except KeyboardInterrupt:
        if not stages[-1].cfg.quiet:
            name = stages[0].cfg.exp_name.removesuffix(f"_{stages[0].step.name}")
            named = [] if "exp_name" in given else ["--exp-name", name]
            print(f"to resume the pipeline, type:\n  {shlex.join(['spinup', *words, *argv, *named])}")
        return signals.exit_code()
    return 0


def parser_of(recipe: Recipe, program: str) -> Parser:
    """Parser of a recipe: flags for all stages, and for one stage with its name in front, as in --ppo.lr."""
    from llm.config import LanguageConfig
    from llm.pipeline import SHAPE
    from spinup.runs.config import comments, settings_of, types_of
    from spinup.runs.flags import add_setting
    words = ", then ".join(step.name if step.name == step.method else f"{step.name} ({step.method})"
                           for step in recipe.steps)
    parser = Parser(program, f"{recipe.about[:1].upper()}{recipe.about[1:]}. {len(recipe.steps)} runs in sequence: "
                             f"{words}. The same command with the same --exp-name skips finished stages and resumes a "
                             "stopped one.")
    configs = {step.name: registry.find(f"llm {step.method}").load().Config for step in recipe.steps}
    alike = [f for f in settings_of(LanguageConfig) if len({getattr(c, f) for c in configs.values()}) == 1]
    given = {"": recipe.shared, **{step.name: step.settings for step in recipe.steps}}
    shown: set[type] = set()                                              # the help has each method once
    for stage, config in {"": LanguageConfig, **configs}.items():
        group = parser.add_argument_group(f"settings of {stage} only" if stage else "settings of all stages; for one "
                                          f"stage, as in --{recipe.steps[0].name}.total-steps")
        prefix, reasons = f"{stage}." if stage else "", comments(config)
        for name, reason in {"preset": "auto (the task's preset), none, or a name from `spinup algos llm METHOD`",
                             "config": "a TOML file of settings"}.items():
            add_setting(group, prefix + name, str, "" if stage else reason, "auto" if name == "preset" else "")
        for field, hint in types_of(config).items():
            default = given[stage].get(field, getattr(config, field) if stage or field in alike else "")
            hidden = stage and (field in alike or field in SHAPE or config in shown)
            add_setting(group, prefix + field, hint, "" if hidden else reasons[field], default)
        shown.add(config)
    return parser
