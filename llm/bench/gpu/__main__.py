"""`python -m llm.bench.gpu`, which `.ci/gpu` starts."""
import sys

from llm.bench.gpu.parts import main
from spinup.errors import UserError

if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"spinup: {error}", file=sys.stderr)
        sys.exit(2)
