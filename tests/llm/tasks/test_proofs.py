"""Proofs: theorems with a teacher's proof, attempts and repairs, and lemmas."""
from itertools import permutations

import numpy as np
import pytest

from llm.policy.load import fresh
from llm.rollout import demonstrated
from llm.tasks import Problem, make_task
from llm.tasks.deduction import ATOMS, check, parse, text_of
from llm.tasks.episodes import played
from llm.tasks.proofs import Theorem
from spinup.errors import UserError


def theorem(text, proof="", lemmas=()):
    premises, _, goal = text.rstrip(".").partition(":")
    made = Theorem(tuple(parse(p) for p in premises.split(",") if p), parse(goal), proof, lemmas)
    assert made.statement == text or lemmas
    return Problem(made.statement, proof, made)


# Catches: a proof that the checker rejects; a line that the proof does not need; a trivial theorem; options without an
# effect.
@pytest.mark.parametrize("options", ["", "lines=1", "lines=7,least=5", "atoms=3", "extra=0", "atoms=8", "turns=2"])
def test_checker_accepts_every_proof_of_the_teacher(options):
    task, rng = make_task(f"proofs:{options}"), np.random.default_rng(0)
    seen = set()
    for held_out in (False, True):
        for p in task.problems(40, rng, held_out):
            goal, lines = p.data.goal, p.data.proof.split(",")
            assert check(p.data.premises, goal, p.data.proof).kind == "" and goal not in p.data.premises
            assert p.prompt == p.data.statement and set(p.prompt + p.answer) <= set(task.alphabet)
            assert task.least <= len(lines) <= task.lines and p.data.held_out == held_out
            for i in range(len(lines) - 1):
                assert check(p.data.premises, goal, ",".join(lines[:i] + lines[i + 1:])).kind
            text = task.demonstration(p, rng)
            assert task.reward(p, text) == 1 and len(text) < task.max_tokens and len(p.prompt) <= 40
            seen |= {len(lines), *(set(p.prompt) & set(ATOMS))}
    assert seen == {*range(task.least, task.lines + 1), *ATOMS[:task.atoms]}


# Catches: a held-out theorem that occurs in training with other letters or with another order of its premises.
def test_held_out_theorems_are_new_with_any_letters():
    task = make_task("proofs:atoms=3,extra=0")
    learned = {p.prompt for p in task.problems(3000, np.random.default_rng(0))}
    for p in task.problems(30, np.random.default_rng(1), held_out=True):
        for letters in permutations("abc"):
            renamed = [f.translate(str.maketrans("abc", "".join(letters))) for f in map(text_of, p.data.premises)]
            goal = text_of(p.data.goal).translate(str.maketrans("abc", "".join(letters)))
            for order in permutations(renamed):
                assert f"{','.join(order)}:{goal}." not in learned


def test_reward_is_the_verdict_of_the_checker():
    task, problem = make_task("proofs"), theorem("a,a>b,b>c:c.")
    for proof, reward in {"b,c.": 1, "b,c": 1, "a,b,b,c.": 1, "c.": 0, "b.": 0, "": 0, ".": 0, "b,c,.": 0}.items():
        assert task.reward(problem, proof) == reward


# Catches: an error message in the mask; a second attempt after a right one; a third attempt; a message that names
# another line.
def test_wrong_attempt_can_be_repaired_once():
    task, problem = make_task("proofs:turns=2"), theorem("a,a>b,b>c:c.", "b,c")
    episode = task.open(problem)
    assert episode.act("b,a>c,c.") == (0.0, False) and episode.observe() == "?2N."
    assert episode.act("b,c.") == (1.0, True)
    assert task.open(problem).act("b,c.") == (1.0, True)
    assert make_task("proofs").open(problem).act("c.") == (0.0, True)
    text = "c.?1N.b,c."
    assert task.reward(problem, text) == 1 and task.reward(problem, "c.?1N.b.") == 0
    assert "".join(c for c, own in zip(text, played(task, text, problem)[0], strict=True) if own) == "c.b,c."
    long = ",".join(["a"] * 11)
    episode.act(f"{long},c.")
    assert episode.observe() == "?9N."
    with pytest.raises(UserError, match="choose at most least=2"):
        make_task("proofs:lines=2,least=3")


# Catches: a teacher that always or never makes an error before its proof; an error in the mask.
def test_half_of_the_demonstrations_start_with_an_error():
    task, rng = make_task("proofs:turns=2,least=2"), np.random.default_rng(0)
    problems = task.problems(200, rng)
    texts = [task.demonstration(p, rng) for p in problems]
    assert 70 < sum("?" in text for text in texts) < 130
    from llm.algos.sft import Config
    start = fresh(Config(layers=1, width=16, heads=2), task)
    batch = demonstrated(task, start.tokenizer, start.model, problems, texts, task.max_tokens)
    for row, text in enumerate(texts):
        own = batch.responses.ids[row][batch.responses.mask[row] > 0].tolist()
        assert "?" not in start.tokenizer.decode(own) and start.tokenizer.decode(own).endswith(problems[row].answer)


# Catches: a lemma that the right lines do not prove; a box that stays open; a lemma that is a premise; a line after the
# wrong one; a whole proof without the proof of a lemma, or with a lemma after its use.
def test_lemmas_of_a_wrong_proof_shorten_the_next_proof():
    task, problem = make_task("proofs"), theorem("a,a>b,b>c,c>d,d>e:e.")
    found = task.lemmas(problem, "a,b,[f,c,e]. c")
    assert {text_of(f): lemma.proof for f, lemma in found.items()} == {"b": "a,b", "f>c": "a,b,[f,c]"}
    assert task.lemmas(problem, "e.") == {} == task.lemmas(problem, "")
    given = task.given(problem, [found["b"]])
    assert given.prompt == "a,a>b,b>c,c>d,d>e,b:e." and task.reward(given, "c,d,e.") == 1
    again = task.lemmas(given, "c,e.")
    assert list(again) == ["c"]
    last = task.given(problem, [again["c"], found["b"]])
    whole = task.whole(last, "d,e.")
    assert whole == "a,b,c,d,e." and task.reward(problem, whole) == 1
    assert task.reward(problem, task.whole(last, "e.")) == 0
