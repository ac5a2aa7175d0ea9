"""The proof checker: accepted proofs are valid by truth tables, every rule is accepted, and errors are named."""
import itertools
import random
import time

import numpy as np
import pytest

from llm.tasks import make_task
from llm.tasks.deduction import ATOMS, ERRORS, LONGEST, check, parse, text_of

ROWS = 2 ** len(ATOMS)                  # rows of a truth table; a set of rows is one whole number, a bit for each row
TRUE = (1 << ROWS) - 1
TABLE = {atom: sum(1 << row for row in range(ROWS) if row >> i & 1) for i, atom in enumerate(ATOMS)} | {"0": 0}


def rows(formula):
    """The rows of the truth table in which a formula is true."""
    if isinstance(formula, str):
        return TABLE[formula]
    operator, left, right = formula[0], rows(formula[1]), rows(formula[2])
    return {"&": left & right, "|": left | right, ">": (TRUE & ~left) | right}[operator]


def valid(premises, goal):
    """Whether the goal is true in every row in which all premises are true."""
    held = TRUE
    for premise in premises:
        held &= rows(premise)
    return held & ~rows(goal) == 0


def test_truth_table_decides_known_formulas():
    for premises, goal, holds in ([["a>b", "a"], "b", True], [["a>b", "b"], "a", False], [[], "a|-a", True],
                                  [["0"], "h", True], [["a|b"], "a&b", False], [["-a"], "a>b", True]):
        assert valid(map(parse, premises), parse(goal)) == holds


# Catches: a reversed modus ponens; lines of a closed box that can still be used; a box that proves its last line
# without its assumption; a distinction of cases without one of the two implications; any other rule that is not valid.
@pytest.mark.parametrize("premises", [[], ["a>b"], ["a|b", "-a"], ["--a"], ["a&b"], ["a>b", "b>a", "a|b"]])
def test_small_proofs_prove_only_valid_formulas(premises):
    """All texts of one and two lines over eight formulas, and of three over five. All that they prove must be valid."""
    premises = [parse(p) for p in premises]
    proved = set()
    for n, formulas, ends in ((1, 8, 3), (2, 8, 3), (3, 5, 2)):
        lines = [begin + f + end for f in ("a", "b", "0", "a>b", "a|b", "a&b", "-a", "b>a")[:formulas]
                 for begin in ("", "[") for end in ("", "]", "]]")[:ends]]
        for proof in itertools.product(lines, repeat=n):
            found = check(premises, "h", ",".join(proof))
            assert found.kind and found.error.startswith(f"line {found.line}, ") and found.line <= n
            if found.proved is not None:
                proved.add((found.sound, found.proved))
    assert len(proved) > 20
    for text, formula in proved:
        assert valid(premises, formula), (text, text_of(formula))
        assert check(premises, formula, text).kind == ""


# Catches: a rule that is not valid and does not occur in the small proofs above.
def test_corrupted_proofs_are_rejected_or_still_valid():
    rng, accepted, refused = random.Random(0), 0, 0
    task = make_task("proofs:lines=8")
    for problem in task.problems(300, np.random.default_rng(1)):
        premises, goal, proof = problem.data.premises, problem.data.goal, problem.data.proof
        assert valid(premises, goal)
        for _ in range(8):
            text = list(proof)
            for _ in range(rng.randint(1, 3)):
                at = rng.randrange(len(text))
                text[at:at + rng.randint(0, 2)] = rng.choices(task.alphabet.replace(".", ""), k=rng.randint(0, 2))
                text = text or ["a"]
            wrong = rng.sample(premises, rng.randint(0, len(premises)))                   # some premises are missing
            found = check(wrong, goal, "".join(text))
            accepted, refused = accepted + (not found.kind), refused + bool(found.kind)
            assert found.kind or valid(wrong, goal)
            assert found.proved is None or valid(wrong, found.proved)
    assert accepted > 30 and refused > 1000


# Catches: a missing rule.
@pytest.mark.parametrize(("premises", "goal", "proof"), [
    ("a", "a", "a"), ("a,b", "a&b", "a&b"), ("a&b", "b", "b"), ("a&b", "a", "a"), ("a", "a|b", "a|b"),
    ("b", "a|b", "a|b"), ("a|b,a>c,b>c", "c", "c"), ("a,a>b", "b", "b"), ("0", "a", "a"), ("--a", "a", "a"),
    ("a>b,b>c", "a>c", "[a,b,c]"), ("", "a>(b>a)", "[a,[b,a]]"), ("", "a>a", "[a]"), ("a>b,-b", "-a", "[a,b,0]"),
    ("a>b", "a>b", "a>b"), ("", "a|-a", "[-(a|-a),[a,a|-a,0],-a,a|-a,0],a|-a"), ("a,-a", "b", "0,b"),
    ("a|b", "b|a", "[a,b|a],[b,b|a],b|a"), ("a&(b&c)", "c", "b&c,c")])
def test_every_rule_is_accepted(premises, goal, proof):
    assert check([parse(p) for p in premises.split(",") if p], parse(goal), proof).kind == ""


# Catches: an error that names another line or another reason.
@pytest.mark.parametrize(("proof", "line", "kind", "sound", "proved"), [
    ("c", 1, "N", "", None), ("[a,c]", 2, "N", "[a]", "a>a"), ("[a,b,c", 3, "O", "[a,b,c]", "a>c"),
    ("[a,b,c],a>b", 4, "G", "[a,b,c],a>b", "a>b"), ("[a,b],b", 3, "N", "[a,b]", "a>b"),
    ("[a,b]", 2, "G", "[a,b]", "a>b"), ("[a,b,c]]", 3, "B", "[a,b]", "a>b"),
    ("[a,b c]", 2, "S", "[a]", "a>a"), ("", 1, "S", "", None), ("[a,[a>b,(b]", 3, "S", "[a,[a>b]]", "a>((a>b)>(a>b))"),
    ("[a,a>b>c", 2, "S", "[a]", "a>a"), ("[a,b,c],i", 4, "S", "[a,b,c]", "a>c")])
def test_errors_name_the_line_and_the_reason(proof, line, kind, sound, proved):
    found = check([parse("a>b"), parse("b>c")], parse("a>c"), proof)
    assert (found.line, found.kind, found.sound) == (line, kind, sound)
    assert ERRORS[kind] in found.error and found.error.startswith(f"line {line}, {proof.split(',')[line - 1]!r}")
    assert found.proved == (parse(proved) if proved else None)


# Catches: an endless loop or an exception for a long or strange text; time that grows exponentially.
def test_any_text_gets_a_verdict_quickly():
    texts = ["[a," * 250 + "a" + "]" * 249, "(" * 99 + "a", "-" * 400, "-" * 99 + "a", "a," * 499 + "a",
             "[a]," * 249 + "a", "x" * (LONGEST + 1), "\0", "é,∧", "]", "[", "[]", ",,", "a" + ">a" * 40,
             "[" + "-(" * 30 + "a>b" + ")" * 30]
    rng = random.Random(0)
    texts += ["".join(rng.choices("abc>&|-0()[],.? \n", k=rng.randint(0, 60))) for _ in range(2000)]
    began = time.process_time()
    for text in texts:
        found = check([("&", "a", "b")], "c", text)
        assert found.kind in ERRORS and found.line >= 1
    assert time.process_time() - began < 5


# Catches: missing brackets; one text for two different formulas.
def test_formulas_keep_their_meaning_as_text():
    for text in ("a", "0", "-a", "--a", "a>b", "-(a&b)", "(a>b)>c", "a>(b|-c)", "-a&-(0|h)"):
        assert text_of(parse(text)) == text
    assert parse("(a>b)") == parse("a>b") and parse("a>0") == parse("-a") != parse("0>a")
    for text in ("", "i", "a>", ">a", "a>b>c", "(a", "a)", "a b", "ab", "()", "-"):
        with pytest.raises(ValueError, match=r"."):
            parse(text)
