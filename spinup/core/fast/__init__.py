"""Faster versions of torch code. You may skip this folder: torch.optim and `module(x)` give the
same numbers, only more slowly.

Beside each private torch call, a comment "Plain:" gives the public equivalent.
"""
