"""Runs `python -m spinup WORDS`, or `python SCRIPT`, as a shell would, in a process that the fixture `start` forked.

Globals given: `words`, the command line; `folder`, where it stands; `output`, the files of its stdout and stderr;
`environment`, its environment variables; `prelude`, Python that is run first; `script`, a file, or "" for `spinup`.
"""
import os
import runpy
import sys

words, folder, output, environment, prelude, script = (globals()[name] for name in (
    "words", "folder", "output", "environment", "prelude", "script"))

os.environ.clear()
os.environ.update(environment)
os.chdir(folder)
for descriptor, path in zip((1, 2), output, strict=True):
    file = os.open(path, os.O_WRONLY)
    os.dup2(file, descriptor)
    os.close(file)
sys.stdout = open(1, "w", closefd=False)                                  # noqa: SIM115  open for as long as it runs
sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)                   # noqa: SIM115
sys.argv = [script or "spinup", *words]
exec(prelude)
if script:
    runpy.run_path(script, run_name="__main__")
else:
    runpy.run_module("spinup", run_name="__main__")
