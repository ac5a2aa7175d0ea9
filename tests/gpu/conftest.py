"""The device of the tests that need a GPU. SPINUP_TEST_DEVICE=cpu runs them on the CPU, to check the tests."""
import os

import pytest
import torch


@pytest.fixture
def device() -> torch.device:
    found = torch.device(os.environ.get("SPINUP_TEST_DEVICE", "cuda"))
    if found.type == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device, and torch sees none here; `.ci/gpu tests` runs it where there is one")
    return found


@pytest.fixture
def second() -> torch.device:
    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs two CUDA devices, and torch sees {torch.cuda.device_count()} here")
    return torch.device("cuda", 1)
