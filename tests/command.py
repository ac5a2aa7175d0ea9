"""Runs the command line in a process that the fixture `start` has forked, as a shell would: `python -m spinup WORDS`.

Globals given: `words`, the command line; `folder`, where it stands; `output`, the files of its stdout and stderr;
`environment`, its environment variables; `prelude`, Python that is run first.
"""
import os
import runpy
import sys

words, folder, output, environment, prelude = (globals()[name] for name in (
    "words", "folder", "output", "environment", "prelude"))

os.environ.clear()
os.environ.update(environment)
os.chdir(folder)
for descriptor, path in zip((1, 2), output, strict=True):
    file = os.open(path, os.O_WRONLY)
    os.dup2(file, descriptor)
    os.close(file)
sys.stdout = open(1, "w", closefd=False)                                  # noqa: SIM115  open for as long as it runs
sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)                   # noqa: SIM115
sys.argv = ["spinup", *words]
exec(prelude)
runpy.run_module("spinup", run_name="__main__")
