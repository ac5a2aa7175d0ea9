"""Expectile regression: regression with an asymmetric squared error."""
import torch
from torch import Tensor


def expectile_loss(error: Tensor, tau: float) -> Tensor:
    """Asymmetric squared error, elementwise, `[...]` (Kostrikov et al. 2021, arXiv:2110.06169):
    the square of the error times 1 - tau if it is negative, and times tau otherwise.

    error: value minus estimate. The estimate that minimises the mean loss is the tau-expectile of
    the values: their mean for tau = 0.5. It approaches their maximum as tau approaches 1.
    """
    return torch.where(error < 0, 1 - tau, tau) * error.square()
