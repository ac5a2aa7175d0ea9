"""`python -m spinup.run` is the same command as `spinup`, as users of Spinning Up type it."""
from spinup.cli import main

if __name__ == "__main__":
    main()
