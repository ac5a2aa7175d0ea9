"""Prompts with a verifier: the environments of language models."""
from llm.tasks.make import make_task
from llm.tasks.task import Problem, Task

__all__ = ["Problem", "Task", "make_task"]
