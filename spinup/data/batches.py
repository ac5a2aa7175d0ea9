"""Random batches of a dataset, in the form that the losses take."""
import numpy as np
import torch

from spinup.core.normaliser import Normaliser
from spinup.core.replay import Batch
from spinup.data.dataset import Dataset


class Batches:
    """Transitions of a dataset as tensors, from which batches are sampled uniformly.

    Args:
        data: the dataset, of N transitions.
        actions: `[N, ...]`, its actions in the units of the policy's distribution.
        normaliser: that of the policy. A new one gets the statistics of the dataset's observations. One that has
            statistics keeps them. Each batch is normalised with the statistics at the time of sampling, because a
            checkpoint may replace them. With None, observations are unchanged.
    """

    def __init__(self, data: Dataset, actions: np.ndarray, normaliser: Normaliser | None, device: torch.device):
        obs, next_obs = (torch.from_numpy(x).to(device) for x in (data.obs, data.next_obs))
        if normaliser is not None and normaliser.count == 0:
            normaliser.update(obs)
        self.normaliser = normaliser
        self.all = Batch(obs, torch.from_numpy(actions).to(device), torch.from_numpy(data.rewards).to(device), next_obs,
                         torch.from_numpy(data.terminated).float().to(device),
                         torch.ones(len(data), dtype=torch.int64, device=device))

    def draw(self, rng: np.random.Generator, size: int) -> Batch:
        """Sample `size` transitions with replacement."""
        rows = torch.from_numpy(rng.integers(len(self.all.rew), size=size)).to(self.all.rew.device)
        batch = Batch(*(x.index_select(0, rows) for x in self.all))
        return batch if self.normaliser is None else batch.seen(self.normaliser)
