"""Out-of-memory errors as one sentence that names the settings to change."""
from collections.abc import Iterator
from contextlib import contextmanager

from llm.config import LanguageConfig
from spinup import errors
from spinup.errors import UserError

PIECE = 16              # first suggestion for --micro-batch


def out_of_memory(error: BaseException | None, cfg: LanguageConfig) -> UserError | None:
    """Return the UserError that replaces an out-of-memory error; None for any other error."""
    if not errors.out_of_memory(error):
        return None
    piece = min(PIECE, cfg.micro_batch // 2 if cfg.micro_batch else PIECE)
    flags = [f"--micro-batch {piece}"] * (piece > 1) + ["--gradient-checkpointing"] * (not cfg.gradient_checkpointing)
    advice = f"add {' '.join(flags)}, or lower" if flags else "lower"
    return UserError(f"not enough memory for these settings; {advice} --max-tokens")


@contextmanager
def enough_memory(cfg: LanguageConfig) -> Iterator[None]:
    """Raise a UserError if the block runs out of memory."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if told := out_of_memory(error, cfg):
            raise told from None
        raise
