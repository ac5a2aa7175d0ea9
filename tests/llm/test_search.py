"""Search at test time: the problems that it solves, and the tokens that it generates."""
import json

import numpy as np
import pytest
import torch

import llm.search
from llm.algos.sft import Config
from llm.policy.load import fresh
from llm.policy.policy import LanguagePolicy
from llm.rollout import demonstrated
from llm.search import Search, best, lemmas, powers, repair, search, vote
from llm.tasks import Problem, make_task
from llm.tasks.check import problems_of
from llm.tasks.deduction import parse
from llm.tasks.held_out import EVALUATION, held_out
from llm.tasks.proofs import Theorem
from spinup.errors import UserError

CHAIN = Theorem((parse("a"), parse("a>b"), parse("b>c"), parse("c>d"), parse("d>e")), parse("e"), "b,c,d,e")
LONG = Problem(CHAIN.statement, "b,c,d,e.", CHAIN)


@pytest.fixture
def scripted(monkeypatch):
    """A function that sets the next responses. It returns a policy and a list of the prompts that are sampled for."""
    def script(task, *texts):
        start, asked, rest = fresh(Config(layers=1, width=16, heads=2), task), [], list(texts)

        def sampled(policy, task, problems, samples):
            asked.extend(p.prompt for p in problems)
            some, rest[:] = rest[:len(problems) * samples], rest[len(problems) * samples:]
            batch = demonstrated(task, start.tokenizer, start.model, problems, some, task.max_tokens)
            of = [p for p in problems for _ in range(samples)]
            batch.rewards = torch.tensor(task.rewards(of, some))
            return [batch]
        monkeypatch.setattr(llm.search, "sampled", sampled)
        return LanguagePolicy(start.model, start.tokenizer, task.max_tokens), asked
    return script


# Catches: tokens after the first right attempt; missing attempts; a mean without the unsolved problems.
def test_search_stops_at_its_first_right_attempt():
    right = np.array([[0, 1, 0, 1], [0, 0, 0, 0]], bool)
    tokens = np.array([[3, 4, 5, 6], [1, 1, 1, 1]])
    found = Search(right, tokens)
    assert [found.after(k) for k in (1, 2, 4)] == [(0.0, 2.0), (0.5, (7 + 2) / 2), (0.5, (7 + 4) / 2)]
    assert [Search(right, tokens, stops=False).after(k) for k in (2, 3)] == [(0.5, 4.5), (0.0, 7.5)]
    assert powers(1) == [1] and powers(8) == [1, 2, 4, 8] and powers(6) == [1, 2, 4, 6]


# Catches: another temperature than the policy's; the problems of the run's own evaluation, whatever the seed.
def test_search_samples_new_problems_at_the_policys_temperature(monkeypatch):
    asked, problems = [], []
    task = make_task("reverse:length=3")
    start = fresh(Config(layers=1, width=16, heads=2), task)
    policy = LanguagePolicy(start.model, start.tokenizer, 5, 0.3)
    monkeypatch.setattr(llm.search, "sample", lambda *args, **settings: asked.append((len(args[3]), settings)))
    monkeypatch.setattr(llm.search, "ROWS", 4)
    llm.search.sampled(policy, task, [Problem("abc>")] * 5, 2)
    assert [n for n, _ in asked] == [2, 2, 1]
    assert all((s["temperature"], s["max_tokens"], s["samples"]) == (0.3, 5, 2) for _, s in asked)

    monkeypatch.setattr(llm.search, "load", lambda *_: policy)
    monkeypatch.setitem(llm.search.WAYS, "best",
                        lambda _, __, asked, ___: problems.append([p.prompt for p in asked]) or {})
    for seed in 0, 0, 1:
        search("run", "reverse", samples=2, problems=8, seed=seed)
    own = [p.prompt for p in problems_of(make_task("reverse"), 8, np.random.default_rng(EVALUATION), True)]
    assert problems[0] == problems[1] != problems[2] and own not in problems
    search("run", "letters", samples=2, problems=100)                     # few problems are distinct, as in `llm eval`
    assert problems[-1] == [p.prompt for p in held_out(make_task("letters"), 100, 0)] and len(problems[-1]) > 50


def test_best_needs_one_right_response_and_vote_the_most_frequent(scripted):
    task = make_task("reverse:length=3")
    problem = Problem("abc>", "cba")
    texts = ["abc", "cba", "abc", "cab", "cba", "cba"]
    policy, _ = scripted(task, *texts, *texts)
    chosen, voted = best(policy, task, [problem], 6)["best"], vote(policy, task, [problem], 6)["vote"]
    assert chosen.right.tolist() == [[False, True, False, False, True, True]] and chosen.tokens.tolist() == [[4.0] * 6]
    assert voted.right.tolist() == [[False, False, False, False, False, True]]
    assert chosen.after(6) == (1.0, 8.0) and voted.after(6) == (1.0, 24.0) and voted.after(5) == (0.0, 20.0)


# Catches: a comparison of whole responses, of which no two are equal; votes of responses without an answer.
def test_vote_compares_final_answers(scripted):
    task = make_task("steps")
    problem = task.problems(1, np.random.default_rng(0), True)[0]
    wrong = str((int(problem.answer) + 1) % 5)
    shown = task.demonstration(problem, np.random.default_rng(0))
    steps = shown[:shown.rindex(")") + 1] if ")" in shown else "(1)"
    texts = ["", "", f"(1){wrong}", f"{steps}{problem.answer}", f"(12){problem.answer}"]
    assert [task.answer_of(problem, text) for text in texts] == [None, None, wrong, problem.answer, problem.answer]
    policy, _ = scripted(task, *texts)
    voted = vote(policy, task, [problem], 5)["vote"]
    assert voted.right.tolist() == [[False, False, False, False, task.rewards([problem], [texts[3]])[0] >= 1]]
    assert voted.right.any()


# Catches: a repair that counts as an attempt; the tokens of the verifier's message in the cost.
def test_repairs_are_compared_with_attempts(scripted):
    task, problem = make_task("proofs:turns=2"), Problem(CHAIN.statement, "", CHAIN)
    policy, _ = scripted(task, "e.?1N.b,c,d,e.", "b,c,d,e.", "e.?1N.e.", "b,c,d,e.")
    found = repair(policy, task, [problem], 2)
    assert found["attempts"].right.tolist() == [[False, True, False, True]]
    assert found["attempts"].tokens.tolist() == [[2, 8, 2, 8]]
    assert found["repair"].right.tolist() == [[True, True]] and found["repair"].tokens.tolist() == [[10, 8]]


# Catches: lemmas of another theorem; missing lemmas; a proof that is accepted although it uses a lemma without a proof.
def test_lemmas_solve_problems_that_single_attempts_do_not(scripted, monkeypatch):
    monkeypatch.setattr(llm.search, "ROUND", 1)
    task, other = make_task("proofs"), Problem("f:f|a.", "f|a.", Theorem((parse("f"),), parse("f|a"), "f|a"))
    policy, asked = scripted(task, "b,e.", "f|b.", "c,e.", "f|a.", "d,f.", "e.")
    found = lemmas(policy, task, [LONG, other], 4)["lemmas"]
    assert asked == [LONG.prompt, "f:f|a.", "a,a>b,b>c,c>d,d>e,b:e.", "f,f|b:f|a.", *asked[4:]]
    assert sorted(asked[4].split(":")[0].split(",")[5:]) == ["b", "c"]
    assert sorted(asked[5].split(":")[0].split(",")[5:]) == ["b", "c", "d"]
    assert found.right.tolist() == [[False, False, False, True], [False, True, False, False]]
    assert found.tokens.tolist() == [[4, 4, 4, 2], [4, 4, 0, 0]]


def test_command_prints_each_search_and_refuses_wrong_tasks(tmp_path, cli):
    made = ["--total-steps", "1", "--layers", "1", "--width", "16", "--heads", "2", "--held-out", "4", "--quiet",
            "--threads", "1", "--no-tensorboard", "--exp-name", "tiny"]
    assert cli("llm", "sft", "--task", "proofs:turns=2", *made).code == 0
    given = ["llm", "search", "runs/tiny", "--episodes", "3", "--samples", "3", "--task"]
    for how in ("best", "vote", "lemmas"):
        done = cli(*given, "proofs", "--how", how, "--json")
        found = json.loads(done.out)
        assert [row["attempts"] for row in found["rows"]] == [1, 2, 3] and found["problems"] == 3
        assert all(0 < row["tokens"] <= 3 * 48 for row in found["rows"])
    table = cli(*given, "proofs:turns=2", "--how", "repair").out.splitlines()
    assert "tiny" in table[0] and table[1].split() == ["search", "attempts", "solved", "tokens", "per", "problem"]
    assert [line.split()[:2] for line in table[2:]] == [["attempts", str(k)] for k in (1, 2, 4, 6)] + [
        ["repair", str(k)] for k in (1, 2, 3)]
    for task, how, words in (("proofs", "repair", "a second turn"), ("reverse", "lemmas", "such as proofs"),
                             ("proofs:turns=2", "lemmas", "one turn")):
        done = cli(*given, task, "--how", how)
        assert done.code == 2 and words in done.err and len(done.err.splitlines()) == 1
    with pytest.raises(UserError, match="choose best, vote"):
        search(tmp_path / "runs/tiny", "proofs", how="beam")
