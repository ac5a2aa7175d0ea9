"""`spinup llm methods`: what differs between methods."""
import pytest

from llm.methods import comparison, overview
from spinup.errors import UserError
from spinup.registry import algorithms


def table(*names):
    return {row[0]: row[1:] for row in (line.split() for line in comparison(names).splitlines()[1:])}


# Catches: settings that are equal; values of the file in place of the variant's; a preset's.
def test_only_what_differs_is_shown():
    found = table("grpo", "dr_grpo", "dapo")
    assert found == {"advantage": ["group", "mean", "group"], "average": ["sequence", "constant", "token"],
                     "clip_high": ["0.2", "0.2", "0.28"], "max_rollouts": ["1", "1", "3"], "overlong": ["0", "0", "2"]}
    assert comparison(["grpo", "grpo"]) == "no setting differs between grpo and grpo"


# Catches: settings of one file alone left out; a difference that only the third method has.
def test_methods_of_different_files_are_compared():
    found = table("grpo", "gspo", "ppo")
    assert found["value_lr"] == ["-", "-", "0.002"] and "kl_coef" not in found
    assert found["loss"] == ["clip", "sequence", "-"] and found["samples"] == ["8", "8", "1"]
    assert "temperature" not in found


# Catches: a method without a line; a variant that says only what its file is.
def test_without_names_every_method_has_a_line(cli):
    done = cli("llm", "methods")
    lines = done.out.splitlines()
    assert done.code == 0 and done.out == overview() + "\n"
    assert [line.split()[0] for line in lines] == [*algorithms("llm")]
    assert ["rloo", "reinforce", "with", "baseline", "others"] in [line.split() for line in lines]
    assert cli("llm", "methods", "grpo", "dapo").out == comparison(["grpo", "dapo"]) + "\n"


# Catches: a traceback; a table of one column; a name that is not told.
@pytest.mark.parametrize("names, words", [
    (["grpo"], "a comparison needs two methods or more; add a second one to grpo, such as "),
    (["grpo", "dapoo"], "there is no method 'dapoo'. Did you mean 'dapo'")])
def test_mistakes_are_told_in_one_sentence(names, words, cli):
    done = cli("llm", "methods", *names)
    assert done.code == 2 and words in done.err and len(done.err.strip().splitlines()) == 1
    with pytest.raises(UserError):
        comparison(names)
