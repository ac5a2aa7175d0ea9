"""The best policy of a run by its test episodes, kept in the checkpoint beside the last one. It is never the result."""
import math
from typing import Any

from torch import Tensor, nn

UNUSED = 500_000        # added to an evaluation's seed: it must not reuse the test episodes that selected the policy


class Best:
    """Weights of the policy with the highest mean return of its test episodes so far, the first of equal ones.

    Attributes:
        test_return: that mean return.
        steps: environment steps after which the policy was tested.
        policy: its weights, `[...]` each, by name.
    """

    def __init__(self):
        self.test_return, self.steps, self.policy = -math.inf, 0, dict[str, Tensor]()

    def consider(self, test_return: float, steps: int, policy: nn.Module) -> None:
        """Keep a copy of the policy if its test episodes were better than all before."""
        if test_return > self.test_return:
            self.test_return, self.steps = test_return, steps
            self.policy = {name: x.detach().clone() for name, x in policy.state_dict().items()}

    def state_dict(self) -> dict[str, Any]:
        """Return all attributes as plain data."""
        return {"test_return": self.test_return, "steps": self.steps, "policy": self.policy}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the output of `state_dict`."""
        self.test_return, self.steps = float(state["test_return"]), int(state["steps"])
        self.policy = dict(state["policy"])
