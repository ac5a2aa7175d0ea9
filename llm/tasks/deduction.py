"""A checker of natural deduction in propositional logic, with boxes as in Huth and Ryan, Logic in Computer Science.

A proof is a list of lines with commas between them. A line is a formula that follows from earlier lines by one rule;
the checker finds the rule. `[a` opens a box with the assumption a, and `]` closes it: the assumption implies the last
line of the box, and the lines of the box cannot be used afterwards.

    [a,b,c]       proves a>c from the premises a>b and b>c

Formulas: a to h, 0 (a contradiction), a>b (implies), a&b (and), a|b (or), -a (short for a>0), with brackets around
every part that has two parts itself, as in a>(b&c).
"""
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

ATOMS, OPERATORS = "abcdefgh", ">&|"
LONGEST, LINE = 2000, 100               # characters of a proof and of a line; more is an error
Formula: TypeAlias = str | tuple        # "a", "0", or (operator, left formula, right formula)
ERRORS = {"S": "is not a formula", "N": "does not follow", "B": "closes no box", "O": "leaves a box open",
          "G": "is not the goal"}


@dataclass(frozen=True)
class Verdict:
    """Result of a check.

    line: the first wrong line, counted from 1; 0 if the proof is accepted.
    kind: the letter of the error in `ERRORS`; "" if the proof is accepted.
    error: a sentence that names the line and the reason; "" if the proof is accepted.
    sound: the lines before the error, with their open boxes closed: a proof of `proved`.
    proved: the formula that `sound` proves; None if it has no line.
    """
    line: int
    kind: str
    error: str
    sound: str
    proved: Formula | None


def check(premises: Sequence[Formula], goal: Formula, proof: str) -> Verdict:
    """Check a proof of `goal`. Any text gets a verdict quickly. A lemma that has a proof can be one of the premises."""
    if len(proof) > LONGEST:
        return Verdict(1, "S", f"line 1: a proof has at most {LONGEST} characters", "", None)
    boxes: list[list[Formula]] = [list(premises)]             # what is known outside all boxes, then in each open box
    for number, line in enumerate(lines := proof.split(","), 1):
        tried = [list(box) for box in boxes]
        kind, why = add(line, tried)
        done, boxes = (lines[:number - 1], boxes) if kind else (lines[:number], tried)
        if not kind and number == len(lines) and len(boxes) > 1:
            kind, why = "O", "write a ] for each ["
        elif not kind and number == len(lines) and boxes[0][-1] != goal:
            kind, why = "G", f"the goal is {text_of(goal)}"
        if kind:
            sound = ",".join(done) + "]" * (len(boxes) - 1)
            while len(boxes) > 1:
                close(boxes)
            return Verdict(number, kind, f"line {number}, {line!r:.60}, {ERRORS[kind]}: {why}", sound,
                           boxes[0][-1] if done else None)
    return Verdict(0, "", "", proof, goal)


def add(line: str, boxes: list[list[Formula]]) -> tuple[str, str]:
    """Add a line to the innermost box. Return the letter of its error in `ERRORS` and a reason; "" if it is right."""
    body = line.rstrip("]")
    try:
        formula = parse(body.removeprefix("["))
    except ValueError as error:
        return "S", str(error)
    if body.startswith("["):
        boxes.append([])
    elif not follows(formula, {known for box in boxes for known in box}):
        return "N", "it is not the result of one rule from the lines before it"
    boxes[-1].append(formula)
    for _ in range(len(line) - len(body)):
        if len(boxes) == 1:
            return "B", "leave out the ] or open a box with ["
        close(boxes)
    return "", ""


def close(boxes: list[list[Formula]]) -> None:
    """Close the innermost box: its assumption implies its last line."""
    box = boxes.pop()
    boxes[-1].append((">", box[0], box[-1]))


def follows(formula: Formula, known: Collection[Formula]) -> bool:
    """Return whether one rule of natural deduction, other than that of boxes, gives a formula from known ones."""
    if formula in known or "0" in known or (">", (">", formula, "0"), "0") in known:
        return True                                           # repetition; from a contradiction, anything; from --a, a
    operator, left, right = formula if isinstance(formula, tuple) else ("", "", "")
    both, one = left in known and right in known, left in known or right in known
    if (operator == "&" and both) or (operator == "|" and one):           # and, or: introduced
        return True
    for each in known:
        operator, left, right = each if isinstance(each, tuple) else ("", "", "")
        if operator == ">" and right == formula and left in known:        # modus ponens
            return True
        if operator == "&" and formula in (left, right):      # and, eliminated
            return True
        if operator == "|" and (">", left, formula) in known and (">", right, formula) in known:      # proof by cases
            return True
    return False


def parse(text: str) -> Formula:
    """Return the formula that a text writes. Raise ValueError, with the reason, for any other text."""
    if len(text) > LINE:                                      # this also limits the depth of brackets
        raise ValueError(f"it has more than {LINE} characters")
    formula, rest = read(text)
    if rest:
        raise ValueError(f"{rest[:9]!r} comes after a whole formula; a part needs brackets, as in a>(b&c)")
    return formula


def read(text: str) -> tuple[Formula, str]:
    """Read a formula from the beginning of a text; return it and the rest. Raise ValueError if there is none."""
    left, rest = read_part(text)
    if rest == "" or rest[0] not in OPERATORS:
        return left, rest
    right, after = read_part(rest[1:])
    return (rest[0], left, right), after


def read_part(text: str) -> tuple[Formula, str]:
    """Read a formula that needs no brackets in another one; return it and the rest. Raise ValueError if there is none.
    """
    first, rest = text[:1], text[1:]
    if first and first in ATOMS + "0":
        return first, rest
    if first == "-":
        part, rest = read_part(rest)
        return (">", part, "0"), rest
    if first != "(":
        raise ValueError(f"{text[:9]!r} is not the beginning of a formula" if text else "a formula is missing")
    formula, rest = read(rest)
    if rest[:1] != ")":
        raise ValueError("a ( has no )")
    return formula, rest[1:]


def text_of(formula: Formula, part: bool = False) -> str:
    """Return the text of a formula. part: in brackets, if it has two parts."""
    if isinstance(formula, str):
        return formula
    operator, left, right = formula
    if operator == ">" and right == "0":
        return f"-{text_of(left, True)}"
    return "(" * part + f"{text_of(left, True)}{operator}{text_of(right, True)}" + ")" * part
