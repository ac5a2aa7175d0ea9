"""`spinup llm methods`: table of the settings that differ between methods."""
import pytest

from llm.methods import comparison, overview
from spinup.errors import UserError
from spinup.registry import algorithms


def table(*names):
    return {row[0]: row[1:] for row in (line.split() for line in comparison(names).splitlines()[1:])}


# Catches: a row for a setting with equal values; the defaults of the file in place of the variant's values; the values
# of a preset.
def test_table_shows_only_settings_that_differ():
    found = table("grpo", "dr_grpo", "dapo")
    assert found == {"advantage": ["group", "mean", "group"], "average": ["sequence", "constant", "token"],
                     "clip_high": ["0.2", "0.2", "0.28"], "max_rollouts": ["1", "1", "3"], "overlong": ["0", "0", "2"],
                     "minibatches": ["1", "1", "2"]}
    assert comparison(["grpo", "grpo"]) == "no setting differs between grpo and grpo"


# Catches: a missing row for a setting that only one file has; a missing row for a difference that only the third method
# has.
def test_table_compares_methods_of_different_files():
    found = table("grpo", "gspo", "ppo")
    assert found["value_lr"] == ["-", "-", "0.002"] and "kl_coef" not in found
    assert found["loss"] == ["clip", "sequence", "-"] and found["samples"] == ["8", "8", "1"]
    assert "temperature" not in found


# Catches: a method without a line; a variant with only the summary of its file.
def test_overview_has_one_line_per_method(cli):
    done = cli("llm", "methods")
    lines = done.out.splitlines()
    assert done.code == 0 and done.out == overview() + "\n"
    assert [line.split()[0] for line in lines] == [*algorithms("llm")]
    assert ["rloo", "reinforce", "with", "baseline", "others"] in [line.split() for line in lines]
    assert cli("llm", "methods", "grpo", "dapo").out == comparison(["grpo", "dapo"]) + "\n"


# Catches: a traceback; a table of one column; an error message without the wrong name.
@pytest.mark.parametrize("names, words", [
    (["grpo"], "a comparison needs two methods or more; add a second one to grpo, such as "),
    (["grpo", "dapoo"], "there is no method 'dapoo'. Did you mean 'dapo'")])
def test_too_few_or_unknown_names_give_a_one_line_error(names, words, cli):
    done = cli("llm", "methods", *names)
    assert done.code == 2 and words in done.err and len(done.err.strip().splitlines()) == 1
    with pytest.raises(UserError):
        comparison(names)
