"""`python -m spinup`, the same command as `spinup`."""
from spinup.cli import main

if __name__ == "__main__":
    main()
