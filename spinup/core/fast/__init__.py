"""You may skip this folder: torch.optim and `module(x)` give the same numbers, slower.

Beside each private call of torch stands its plain equivalent, after «Plain:».
"""
