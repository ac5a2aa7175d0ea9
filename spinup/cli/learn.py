"""The command for exercises."""
HELP = """\
Learn:
  spinup exercise [init|start|check|hint ...]     exercises with checks that explain your mistakes
"""


def exercise(argv: list[str]) -> int:
    from spinup.exercises.command import exercise as run_exercise
    return run_exercise(argv)


COMMANDS = {"exercise": exercise}
