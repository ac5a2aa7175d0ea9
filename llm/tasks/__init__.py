"""Tasks: prompts with a verifier, which are the environments of language models.

Public names are imported on first use, so `llm.tasks.names` does not load torch.
"""
import importlib
from typing import Any

PLACES = {"Problem": "llm.tasks.task", "Task": "llm.tasks.task", "make_task": "llm.tasks.make"}
__all__ = ["Problem", "Task", "make_task"]


def __getattr__(name: str) -> Any:
    if name in PLACES:
        return getattr(importlib.import_module(PLACES[name]), name)
    raise AttributeError(f"module 'llm.tasks' has no attribute {name!r}")
