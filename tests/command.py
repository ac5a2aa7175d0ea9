"""Runs `python -m PROGRAM WORDS`, or `python PROGRAM WORDS`, as a shell would, in a process that `Forked` has forked.

The caller sets these globals: `program`, the name of a module or the path of a script; `words`, its arguments;
`folder`, the working folder; `output`, the files of its stdout and stderr; `environment`, its environment variables;
`prelude`, Python code that runs first.
"""
import os
import runpy
import sys

program, words, folder, output, environment, prelude = (globals()[name] for name in (
    "program", "words", "folder", "output", "environment", "prelude"))

os.environ.clear()
os.environ.update(environment)
os.chdir(folder)
for descriptor, path in zip((1, 2), output, strict=True):
    file = os.open(path, os.O_WRONLY)
    os.dup2(file, descriptor)
    os.close(file)
sys.stdout = open(1, "w", closefd=False)                                  # noqa: SIM115  stays open while it runs
sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)                   # noqa: SIM115
sys.argv = [program, *words]
exec(prelude)
if program.endswith(".py"):
    runpy.run_path(program, run_name="__main__")
else:
    runpy.run_module(program, run_name="__main__")
