"""Meanings of the columns of `progress.csv`, as `spinup metrics` prints them.

Columns of one algorithm alone are described in the TOML file beside it, those of one environment beside that.
"""
from spinup import registry

METRICS = {
    # Every run.
    "epoch": "number of the row, from 1",
    "steps": "environment steps so far, all copies counted; of a language model: updates",
    "wall_seconds": "time of training so far, earlier processes included",
    "steps_per_second": "steps / wall_seconds",
    "loss": "what the last gradient step minimised",
    "grad_norm": "length of the gradient of that step, before it was clipped",
    "learning_rate": "step size of the optimiser",
    # Environments.
    "episodes": "episodes that ended since the row before",
    "return_mean": "mean undiscounted return of these episodes, in training; raw rewards, exploration included",
    "return_min": "the lowest of these returns",
    "return_max": "the highest of these returns",
    "length_mean": "mean length of these episodes, in steps",
    "return_mean_100": "mean undiscounted return of the last 100 training episodes, or of all while they are fewer",
    "test_return": "mean return of --test-episodes episodes without exploring, always the same ones, not trained on",
    # Policies that are trained on what they did themselves.
    "kl": "how far the policy has moved since it collected its last batch, in nats (estimator k3, never negative)",
    "clip_fraction": "share of steps whose gradient the clip took away",
    "entropy": "randomness of the policy in nats; of a squashed Gaussian in units of -1 to 1, estimated by draws",
    "value_loss": "half the squared error of the value function",
    "explained_variance": "share of the variance of the returns that the value function knows; 1 all, 0 as a constant",
    "epochs": "passes over the batch in the last update; fewer than --epochs where --target-kl ended it",
    # Values of actions, learned from a replay.
    "q": "mean value of the actions in the last batch: beside the returns it tells of overestimation",
    "error": "mean absolute difference between a value and its target",
    "epsilon": "share of random actions",
    "q_loss": "squared error of the critics, added up",
    "q_grad_norm": "length of the gradient of the critics",
    "pi_loss": "what the actor minimises: minus the value of its actions; in SAC plus the price of certainty",
    "action_std": "standard deviation of the actor's actions over a batch, of a range of -1 to 1; 0: all are the same",
    "pi_grad_norm": "length of the gradient of the actor, in SAC of the temperature too",
    # Language models.
    "reward": "mean reward of the responses of the last updates, as the method was given them",
    "reward_std": "their deviation",
    "no_contrast": "share of groups whose responses all have the same reward: nothing is learned from them",
    "length": "mean length of the responses in tokens",
    "cut_off": "share of responses that reached --max-tokens without an end",
    "logp": "mean log-probability of the tokens trained on",
    "ratio_min": "the smallest probability ratio of a token, new policy to old",
    "ratio_max": "the largest",
    "held_out_accuracy": "share of held-out problems solved by drawn responses",
    "held_out_greedy": "share of held-out problems solved by the likeliest response",
    "held_out_reward": "mean reward on held-out problems",
    "held_out_gold": "mean true reward on held-out problems, where rewards are a model's",
    "kl_to_start": "distance from the start on held-out problems, in nats a token",
    "kl_of_response": "the same in nats a response",
    "kl_coef": "price of a nat away from the start",
    "train_accuracy": "share of the pairs learned from that are ranked rightly",
    "pair_accuracy": "share of held-out pairs that are ranked rightly",
    "pair_margin": "mean difference of the scores of a held-out pair, preferred minus other",
    "calibration_error": "how far the claimed probabilities of preference are from the shares that come true",
    "length_correlation": "correlation of a response's score with its length",
    "reward_margin": "mean difference of the implicit rewards of a pair, preferred minus other",
    "logp_preferred": "log-probability of the preferred responses",
    "logp_other": "log-probability of the others",
    "rollout_seconds": "time spent on responses since the row before",
    "reward_seconds": "time spent on their rewards",
    "update_seconds": "time spent on gradient steps",
    "evaluation_seconds": "time spent on held-out problems",
    "tokens_per_second": "tokens of responses per second of all that",
}


def meanings() -> dict[str, str]:
    """The meaning of each column, by name."""
    from spinup.envs.make import all_measures
    found = METRICS | all_measures()
    for family in registry.FAMILIES:
        for algorithm in {**registry.algorithms(family), **registry.installed(family)}.values():
            found |= algorithm.about.get("metrics", {})
    return found
