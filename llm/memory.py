"""A memory that does not suffice, told in one sentence that names the settings to change."""
import re
from collections.abc import Iterator
from contextlib import contextmanager

from llm.config import LanguageConfig
from spinup.errors import UserError

# What torch says: of a GPU in an OutOfMemoryError, of other memory in a RuntimeError.
OUT_OF_MEMORY = re.compile("out of memory|can't allocate memory|not enough memory", re.IGNORECASE)
PIECE = 16              # responses in a micro-batch, the first to try


def out_of_memory(error: BaseException | None, cfg: LanguageConfig) -> UserError | None:
    """The UserError to raise in place of an error that memory is exhausted; None for any other."""
    if not isinstance(error, RuntimeError) or not OUT_OF_MEMORY.search(str(error)):
        return None
    piece = min(PIECE, cfg.micro_batch // 2 if cfg.micro_batch else PIECE)
    flags = [f"--micro-batch {piece}"] * (piece > 1) + ["--checkpointing"] * (not cfg.checkpointing)
    advice = f"add {' '.join(flags)}, or lower" if flags else "lower"
    return UserError(f"the memory does not suffice for these settings; {advice} --max-tokens")


@contextmanager
def enough_memory(cfg: LanguageConfig) -> Iterator[None]:
    """Run a block whose end of memory is a UserError."""
    try:
        yield
    except RuntimeError as error:
        raise out_of_memory(error, cfg) or error from None
