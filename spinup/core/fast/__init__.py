"""Faster equivalents of torch.optim and `module(x)`; skip this folder: those give the same numbers, slower."""
