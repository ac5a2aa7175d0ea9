"""Language-model reinforcement learning with the functions of `spinup`; its methods are not written yet."""
