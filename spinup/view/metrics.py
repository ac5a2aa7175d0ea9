"""Descriptions of the columns of `progress.csv`, as `spinup metrics` prints them.

The TOML file of an algorithm describes the columns that only this algorithm has. The Python file of an environment
describes the columns of the environment.
"""
from spinup import registry

METRICS = {
    # Every run.
    "epoch": "row number, from 1",
    "steps": "environment steps so far, summed over all copies; for language models: updates so far; offline: gradient "
             "steps so far",
    "wall_seconds": "training time so far in seconds, including earlier processes of a resumed run",
    "steps_per_second": "steps / wall_seconds",
    "loss": "loss of the last gradient step; for language models, the mean over a row",
    "grad_norm": "gradient norm of the last gradient step, before clipping; for language models, the mean over a row",
    "learning_rate": "learning rate of the optimiser",
    # Environments.
    "episodes": "number of episodes that ended since the previous row",
    "return_mean": "mean undiscounted training return of these episodes: raw rewards, with exploration",
    "return_min": "minimum of these returns",
    "return_max": "maximum of these returns",
    "length_mean": "mean length of these episodes, in steps",
    "return_mean_100": "mean undiscounted return of the last 100 training episodes, or of all if there are fewer",
    "test_return": "mean return of --test-episodes separate test episodes, always the same ones, without exploration",
    # On-policy algorithms.
    "kl": "KL divergence of the policy from the one before the update, in nats, at least 0 (k3 estimator; exact in "
          "TRPO)",
    "clip_fraction": "share of steps with zero gradient because their probability ratio is clipped",
    "entropy": "entropy of the policy in nats; for a squashed Gaussian, of actions in -1 to 1, estimated from samples",
    "value_loss": "half the squared error of the value function",
    "explained_variance": "share of the variance of the value targets that the value function explains; 1 = all",
    "epochs": "passes over the batch in the last update; fewer than --epochs if --target-kl stopped it",
    # Off-policy algorithms, which learn Q-values from a replay buffer.
    "q": "mean Q-value of the last batch; compare it with the returns to detect overestimation",
    "error": "mean absolute TD error",
    "epsilon": "share of random actions",
    "q_loss": "squared error of the critics, summed over the critics; in param_noise with discrete actions, the Huber "
              "loss",
    "q_grad_norm": "gradient norm of the critics",
    "pi_loss": "actor loss: minus the Q-value of its actions; in SAC plus the temperature times their log-probability, "
               "and the loss of the temperature; in DDPG, TD3 and HER plus the saturation penalty",
    "action_std": "standard deviation of actions (range -1 to 1) over a batch; 0: the same action in every state",
    "pi_grad_norm": "gradient norm of the actor; in SAC including the temperature",
    # Language models.
    "reward": "mean training reward of the responses since the previous row",
    "reward_NAME": "mean of the part NAME of these rewards, before its weight",
    "reward_std": "standard deviation of these rewards",
    "zero_variance": "share of groups with zero variance (all rewards equal), which give no policy gradient",
    "length": "mean length of the responses in tokens",
    "cut_off": "share of responses truncated at --max-tokens",
    "logp": "mean log-probability of the actions or tokens trained on",
    "ratio_min": "smallest probability ratio of a token, new policy to old",
    "ratio_max": "largest probability ratio of a token, new policy to old",
    "off_policy": "share of tokens with an importance weight outside 0.9 to 1.1 (of --engine and --lag)",
    "held_out_accuracy": "accuracy of sampled responses on held-out problems",
    "held_out_greedy": "accuracy of greedy (most likely) responses on held-out problems",
    "held_out_reward": "mean reward of sampled responses to held-out prompts",
    "held_out_reward_NAME": "mean of the part NAME of these rewards, before its weight",
    "held_out_gold": "mean true reward on held-out prompts, if a reward model gives the rewards",
    "kl_to_initial": "KL divergence from the initial policy on held-out prompts, in nats per token",
    "kl_of_response": "KL divergence from the initial policy on held-out prompts, in nats per response",
    "kl_coef": "KL coefficient: weight of the penalty per nat of KL divergence from the initial policy",
    "train_accuracy": "share of training pairs in which the chosen response scores higher",
    "pair_accuracy": "share of held-out pairs in which the chosen response scores higher",
    "pair_margin": "mean score difference of held-out pairs, chosen minus rejected",
    "calibration_error": "expected calibration error of the predicted preference probabilities on held-out pairs",
    "length_correlation": "correlation between the score and the length of a response",
    "reward_margin": "mean implicit reward difference of pairs, chosen minus rejected",
    "logp_chosen": "log-probability of the chosen responses",
    "logp_rejected": "log-probability of the rejected responses",
    "rollout_seconds": "seconds spent on sampling responses since the previous row",
    "reward_seconds": "seconds spent on computing rewards",
    "update_seconds": "seconds spent on gradient steps",
    "evaluation_seconds": "seconds spent on evaluation with held-out problems",
    "tokens_per_second": "sampled tokens per second of sampling, rewards and gradient steps",
}


def meanings() -> dict[str, str]:
    """Return the description of each column, by name."""
    from spinup.envs.vector import all_measures
    found = METRICS | all_measures()
    for family in registry.FAMILIES:
        for algorithm in {**registry.algorithms(family), **registry.installed(family)}.values():
            found |= algorithm.about.get("metrics", {})
    return found
