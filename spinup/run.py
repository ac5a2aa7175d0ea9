"""`python -m spinup.run`, the same command as `spinup`, known from Spinning Up."""
from spinup.cli import main

if __name__ == "__main__":
    main()
