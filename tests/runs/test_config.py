"""Settings: their ranges, their notation, and the precedence of flags, file, preset and defaults."""
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np
import pytest
from gymnasium import Env, Space, spaces

from spinup.errors import UserError
from spinup.registry import algorithms, find
from spinup.runs.config import BaseConfig, Range, dependencies, settings_of, types_of
from spinup.runs.convert import checked, flag, parse
from spinup.runs.flags import config_parser
from spinup.runs.presets import configure, read_toml
from spinup.runs.public import trainer
from spinup.runs.records import config_from_json, config_to_json

PPO = find("ppo")
ppo = PPO.load()
CONFIGS = {name: algorithm.load().Config for name, algorithm in algorithms().items() if not algorithm.variant}


def limit_of(hint: Any) -> Range | None:
    """The declared range of a field, or of the elements of a tuple."""
    if get_origin(hint) is tuple:
        hint = get_args(hint)[0]
    limits = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((a for a in limits if isinstance(a, Range)), None)


def outside(limit: Range, kind: type) -> list[float]:
    """Values just outside a range, and far outside."""
    near = [limit.low if limit.open_low else limit.low - 1 if kind is int else math.nextafter(limit.low, -math.inf)]
    if limit.high < math.inf:
        near.append(limit.high + 1 if kind is int else math.nextafter(limit.high, math.inf))
    return [*near, limit.low - 1000, *([] if kind is int else [math.nan, math.inf, -math.inf])]


def numbers(config: type[BaseConfig]) -> list[tuple[str, type, Range, bool]]:
    """(field, type, range, whether it is a tuple) of each numeric setting of an algorithm."""
    found = []
    for field, hint in types_of(config).items():
        limit, many = limit_of(hint), get_origin(hint) is tuple
        if limit is not None:
            element = get_args(hint)[0] if many else hint
            found.append((field, get_args(element)[0], limit, many))
    return found


def test_every_numeric_setting_has_a_range():
    for name, config in CONFIGS.items():
        for field, hint in types_of(config).items():
            assert hint not in (int, float), f"{name} --{field}"
            free = hint in (str, bool, bool | None) or field == "env" or get_origin(hint) is Literal
            hint = get_args(hint)[0] if get_origin(hint) is Union else hint                    # the other type is None
            assert free or limit_of(hint), f"{name} --{field}"


# Catches: `<=` for `<` in Range.holds; a range that is not checked within a tuple.
@pytest.mark.parametrize("name", CONFIGS)
def test_number_outside_its_range_is_refused_with_the_range(name):
    config = CONFIGS[name]
    for field, kind, limit, many in numbers(config):
        for bad in outside(limit, kind):
            with pytest.raises(UserError) as refused:
                config(**{field: (64, bad) if many else bad})
            message = str(refused.value)
            assert message.startswith(f"{flag(field)} must be ") and message.count("\n") == 0
            assert str(limit) in message or not math.isfinite(bad) or bad >= 2**63
            with pytest.raises(UserError, match=flag(field)):             # as a flag
                parse(field, types_of(config)[field], f"64,{bad}" if many else repr(bad))
        for wrong in ("many", True, None, [3.5], {}):
            with pytest.raises(UserError, match=f"^{flag(field)} must be "):
                config(**{field: wrong})


@pytest.mark.parametrize(("field", "wrong"), [
    ("device", 3), ("env", 5), ("env", None), ("quiet", 1), ("exp_name", False), ("hidden", ()), ("hidden", 64)])
def test_value_of_a_wrong_type_is_refused(field, wrong):
    having = [config for config in CONFIGS.values() if field in settings_of(config)]
    assert having
    for config in having:
        with pytest.raises(UserError, match=f"^{flag(field)} must be "):
            config(**{field: wrong})


@pytest.mark.parametrize(("limit", "words"), [
    (Range(1), "at least 1"), (Range(0, open_low=True), "above 0"), (Range(0, 1), "from 0 to 1"),
    (Range(0, 2, open_low=True), "above 0 and at most 2")])
def test_range_is_described_in_words(limit, words):
    assert str(limit) == words


@dataclass(kw_only=True)
class Every(BaseConfig):
    """A Config with one field of each kind."""

    ratio: Annotated[float, Range(0, 1)] = 0.5
    widths: tuple[Annotated[int, Range(1)], ...] = (64, 64)
    limit: Annotated[int, Range(1)] | None = None
    mode: Literal["mean", "sum"] = "mean"


EVERY = types_of(Every)


@pytest.mark.parametrize(("field", "text", "value"), [
    ("total_steps", "1e4", 10_000), ("total_steps", "100_000", 100_000), ("total_steps", "2.5e3", 2500),
    ("total_steps", " 7 ", 7), ("seed", "9007199254740993", 9007199254740993),          # a float would round it
    ("ratio", "1e-3", 0.001), ("ratio", "1", 1.0), ("widths", "32,32", (32, 32)), ("widths", "(400, 300)", (400, 300)),
    ("widths", "8", (8,)), ("limit", "none", None), ("limit", "5", 5), ("mode", "sum", "sum"),
    ("env", "CartPole-v1", "CartPole-v1"), ("exp_name", "", "")])
def test_settings_are_parsed_from_the_usual_notations(field, text, value):
    parsed = parse(field, EVERY[field], text)
    assert parsed == value and type(parsed) is type(value)


@pytest.mark.parametrize(("field", "text", "words"), [
    ("total_steps", "1.5", "a whole number, not 1.5"), ("total_steps", "ten", "a whole number, not 'ten'"),
    ("total_steps", "1e400", "below 2^63"), ("total_steps", "0", "at least 1, not 0"),
    ("ratio", "1,5", "a number, not '1,5'"), ("ratio", "nan", "a finite number"),
    ("widths", "64;64", "a whole number, not '64;64'"), ("widths", "", "numbers such as 64,64"),
    ("limit", "0", "at least 1"), ("mode", "summ", "one of mean, sum, not 'summ'. Did you mean 'sum'?")])
def test_unreadable_value_is_refused_with_the_typed_text(field, text, words):
    with pytest.raises(UserError) as refused:
        checked(field, EVERY[field], parse(field, EVERY[field], text))
    assert str(refused.value).startswith(f"{flag(field)} must be {words}")


def test_integers_and_floats_get_the_type_of_their_field():
    config = Every(total_steps=1e4, ratio=1, widths=[32, 16])
    assert (config.total_steps, config.ratio, config.widths) == (10_000, 1.0, (32, 16))
    assert type(config.total_steps) is int and type(config.ratio) is float


# Catches: an element of an array that is refused, or that stays a number of numpy, which JSON cannot store.
def test_numbers_of_numpy_become_numbers_of_python():
    config = Every(total_steps=np.int64(7), ratio=np.float32(0.5), widths=[*np.array([32, 16])])
    assert (config.total_steps, config.ratio, config.widths) == (7, 0.5, (32, 16))
    assert type(config.total_steps) is type(config.widths[0]) is int and type(config.ratio) is float
    assert checked("anneal", bool, np.True_) is True
    with pytest.raises(UserError, match="--total-steps must be a whole number, not 0.5"):
        Every(total_steps=np.float64(0.5))


# Catches: a first argument that replaces the environment given by name, or the reverse.
def test_environment_given_twice_is_refused():
    with pytest.raises(UserError, match="ppo got env twice, as its first argument and by name; leave one out"):
        trainer("ppo")("CartPole-v1", env="Acrobot-v1")


def pixels(actions: Space) -> Callable[[], Env]:
    """A function that makes an environment of images with the given actions."""
    class Pixels(Env):
        observation_space, action_space = spaces.Box(0, 255, (64, 64, 3), np.uint8), actions
    return Pixels


# Catches: defaults by kind that override a preset, a variant, a file or a flag; a kind that is ignored.
def test_defaults_by_kind_apply_only_without_a_preset(tmp_path, monkeypatch):
    tables = {"Box": {"epochs": 7, "lam": 0.5, "gamma": 0.5}, "images": {"epochs": 8}, "Discrete": {"epochs": 9}}
    algorithm = replace(PPO)                                              # a copy, because `about` is read once
    algorithm.__dict__["about"] = PPO.about | {"defaults": tables}
    file = tmp_path / "mine.toml"
    file.write_text("lam = 0.25\n")
    config, said = configure(algorithm, {"env": "InvertedDoublePendulum-v5", "gamma": 0.75}, file=file)
    assert (config.epochs, config.lam, config.gamma) == (7, 0.25, 0.75)
    assert said == "none; defaults for continuous actions"
    config, said = configure(algorithm, {"env": "Pendulum-v1"})
    assert said == "Pendulum-v1" and config == configure(PPO, {"env": "Pendulum-v1"})[0]
    assert configure(algorithm, {"env": "Pendulum-v1"}, "none")[0].epochs == 7
    config, said = configure(algorithm, {"env": pixels(spaces.Box(-1, 1, (2,)))})
    assert (config.epochs, config.lam) == (8, 0.5)                        # images take precedence
    assert said == "none; defaults for continuous actions; defaults for images"
    assert configure(algorithm, {"env": pixels(spaces.MultiBinary(2))})[1] == "none; defaults for images"
    monkeypatch.setattr(type(algorithm), "settings", {"epochs": 6})
    assert configure(algorithm, {"env": "CliffWalking-v1"})[0].epochs == 6


# Catches: a short id that is stored as typed, so that equal runs have two environments; a package that is lost.
def test_full_environment_id_is_stored(tmp_path, monkeypatch):
    assert configure(PPO, {"env": "CartPole"})[0].env == "CartPole-v1"
    (tmp_path / "module_of_a_config.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert configure(PPO, {"env": "module_of_a_config:CartPole-v1"})[0].env == "module_of_a_config:CartPole-v1"


# Catches: a preset that turns a variant into another algorithm; a variant's own preset that is ignored.
@pytest.mark.parametrize(("name", "subject", "expected"), [
    ("double_dqn", {"env": "CartPole-v1"}, {"double": True, "update_every": 256}),
    ("vanilla_dqn", {"env": "CartPole-v1"}, {"double": False, "n_steps": 1}),
    ("c51", {"env": "CartPole-v1"}, {"sigma": 0.0, "n_steps": 1, "v_max": 100.0}),
    ("noisy_dqn", {"env": "Acrobot-v1"}, {"sigma": 0.5, "atoms": 1, "update_every": 4}),
    ("llm vapo", {"task": "reverse"}, {"alpha": 10.0, "value_warmup": 10, "clip_high": 0.28})])
def test_variant_overrides_a_preset_but_not_its_own_preset(name, subject, expected):
    config, said = configure(find(name), subject)
    assert said.startswith(next(iter(subject.values())))
    assert {setting: getattr(config, setting) for setting in expected} == expected


# Catches: a preset of an unrelated environment; a preset that is named although the user chose none.
@pytest.mark.parametrize(("algorithm", "env", "named"), [
    ("ppo", "CartPole-v0", "CartPole-v1"), ("ppo", "ALE/Alien-v5", "PongNoFrameskip-v4"),
    ("dqn", "AlienNoFrameskip-v4", "PongNoFrameskip-v4"), ("ppo", "Humanoid-v5", ""), ("ppo", "FrozenLake-v1", "")])
def test_first_line_names_the_preset_of_a_similar_environment(algorithm, env, named):
    said = configure(find(algorithm), {"env": env})[1]
    assert said.endswith(f"; --preset {named} is for a similar environment" if named else "actions")
    assert "similar" not in configure(find(algorithm), {"env": env}, "none")[1]


# Catches: defaults by kind that are missing in the help, or in the docstring of the Python function.
def test_help_and_docstring_show_defaults_by_kind():
    epochs = PPO.defaults["Box"]["epochs"]
    shown = f"{ppo.Config().epochs}; {epochs} for continuous actions"
    assert f"[{shown}]" in " ".join(config_parser(PPO).format_help().split())
    assert f"epochs = {shown}: " in trainer("ppo").__doc__


# Catches: swapped precedence of preset and file, or of file and flags; dashes that `read_toml` does not replace.
def test_precedence_is_flag_then_file_then_preset_then_default(tmp_path):
    file, default = tmp_path / "mine.toml", ppo.Config()
    preset = configure(PPO, {})[0]
    assert configure(PPO, {})[1] == "CartPole-v1" and preset.lr != default.lr and preset.epochs != default.epochs
    file.write_text(f"lr = {preset.lr / 2}\nrollout-steps = 256\n")
    config, name = configure(PPO, {"rollout_steps": 512, "hidden": (8,)}, file=file)
    assert name == "CartPole-v1"
    assert (config.epochs, config.lr, config.rollout_steps, config.hidden) == (preset.epochs, preset.lr / 2, 512, (8,))
    assert (config.value_coef, config.env) == (default.value_coef, "CartPole-v1")
    config, name = configure(PPO, {"rollout_steps": 512}, preset="none", file=file)
    assert (config.epochs, config.lr, config.rollout_steps, name) == (
        default.epochs, preset.lr / 2, 512, "none; defaults for discrete actions")
    assert configure(find("vpg"), {}, preset="none") == (find("vpg").load().Config(), "none; the defaults apply")


def test_environment_in_the_file_selects_the_preset(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('env = "Pendulum-v1"\n')
    config, name = configure(PPO, {}, file=file)
    assert (config.env, name) == ("Pendulum-v1", "Pendulum-v1")
    config, name = configure(PPO, {"env": "CartPole-v1"}, file=file)
    assert (config.env, name) == ("CartPole-v1", "CartPole-v1")
    assert configure(PPO, {"env": "CartPole"})[1] == "CartPole-v1"
    on_request = configure(PPO, {"env": "Hopper-v5"}, preset="CartPole-v1")[0]              # for another environment
    assert on_request.lr == configure(PPO, {})[0].lr


@pytest.mark.parametrize(("text", "words"), [
    ("lr = = 3", "is not TOML"), ("totl_steps = 3", "there is no setting 'totl_steps'. Did you mean 'total_steps'?"),
    ("[ppo]\nlr = 3", "there is no setting 'ppo'"), ("\xff\xfe", "is not TOML"),
    ("lr = 'x'", "--lr must be a number, not 'x'"), ("hidden = 16", "must be a list such as [64, 64], not 16")])
def test_invalid_settings_file_is_refused(text, words, tmp_path):
    (tmp_path / "mine.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError) as refused:
        read_toml(tmp_path / "mine.toml", ppo.Config)
    assert words in str(refused.value) and "mine.toml" in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("name", CONFIGS)
def test_settings_survive_a_round_trip_through_json(name):
    some = {"lr": 1e-7, "value_lr": 1e-7, "hidden": (8, 16)}              # a tiny number and a tuple, if it has them
    given = {setting: some[setting] for setting in settings_of(CONFIGS[name]) if setting in some}
    config = CONFIGS[name](env="Hopper-v5", tensorboard=False, seed=2**62 + 1, **given)
    data = config_to_json(config)
    assert json.loads(json.dumps(data)) == data and config_from_json(algorithms()[name], data) == config
    data = config_to_json(CONFIGS[name](env=lambda: None))
    assert data["env"] == {"callable": "lambda"} and "lambda" in config_from_json(algorithms()[name], data).env
    with pytest.raises(UserError, match="'sed'. Did you mean 'seed'"):
        config_from_json(algorithms()[name], {**data, "sed": 3})
    assert given and set(data) == {*settings_of(CONFIGS[name])}


# Catches: a setting that is accepted although it has no effect; the rule of a parent that its subclass loses.
@pytest.mark.parametrize(("algorithm", "given", "words"), [
    ("dqn", {"alpha": 0.3},
     "--alpha has no effect with --prioritised false; leave it out, or choose --prioritised true"),
    ("td3", {"noise_clip": 0.1, "target_noise": 0}, "with --target-noise 0.0; .* choose --target-noise above 0"),
    ("param_noise", {"sigma": 0.2, "noise": "actions"}, "with --noise actions; .* choose --noise parameters"),
    ("curiosity", {"feature_size": 8, "bonus": "pixels"}, "choose --bonus rnd or inverse or random"),
    ("llm vapo", {"lam": 0.5}, "--lam has no effect with --alpha 10.0; .* choose --alpha 0"),
    ("llm grpo", {"lora_alpha": 3}, "--lora-alpha has no effect with --lora 0; .* choose --lora above 0"),
    ("llm grpo", {"tau_pos": 3, "loss": lambda *args: None}, "with --loss your own function; .* choose --loss gate")])
def test_setting_without_effect_is_refused(algorithm, given, words):
    with pytest.raises(UserError, match=words):
        configure(find(algorithm), given)


# Catches: a refused default, or a refused setting of a preset or of a variant.
def test_settings_without_effect_that_nobody_chose_are_accepted():
    assert configure(find("param_noise"), {"env": "Chain-40-v0", "noise": "actions"})[0].adapt == 1.05
    assert configure(find("dqn"), {"alpha": 0.6})[0].alpha == 0.6
    assert configure(find("prioritised_dqn"), {"alpha": 0.3})[0].alpha == 0.3
    assert configure(find("llm cispo"), {"clip_low": 1.0})[0].clip_low == 1.0


# Catches: a rule about a setting that was renamed, or about a value that the other setting cannot have.
def test_rules_about_settings_without_effect_name_settings():
    found = 0
    for algorithm in [*algorithms().values(), *algorithms("llm").values()]:
        config = algorithm.load().Config
        for name, (other, values) in dependencies(config).items():
            assert {name, other} <= {*settings_of(config)}, (algorithm.name, name)
            found += all(checked(other, types_of(config)[other], value) == value for value in values)
    assert found > 30
