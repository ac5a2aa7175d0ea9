"""Wrappers of tasks: each gives any task another reward in training, as in `--task length:reverse`.

A wrapper is a class with a constant `name` in a file of this folder. There is no list of them.
"""
