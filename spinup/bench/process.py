"""Running the command line from a program."""
import shlex
import subprocess
import sys

from spinup.errors import UserError


def spinup(*arguments: str) -> str:
    """What `spinup ARGUMENTS` prints; UserError with its last words where it fails."""
    done = subprocess.run([sys.executable, "-m", "spinup", *arguments], capture_output=True, text=True)
    if done.returncode:
        words = done.stderr.strip().splitlines() or ["it said nothing"]
        raise UserError(f"`spinup {shlex.join(arguments)}` failed: {words[-1]}")
    return done.stdout
