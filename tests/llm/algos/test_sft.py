"""Settings of SFT for the tests of every method, which train it too."""

# For the tests of all methods; `suite_of` in tests/llm/conftest.py describes it.
SUITE = {
    "settings": {"batch": 16},
    "lacking": ["reward", "reward_std", "zero_variance", "kl", "clip_fraction", "ratio_min", "ratio_max"]}
