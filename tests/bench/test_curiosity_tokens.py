"""The benchmark of curiosity on tokens: when a lock is open, and which goals are missed."""
import pytest

from spinup.bench.papers import curiosity_tokens as bench
from tests.bench.conftest import finished_run


def a_run(folder, rewards):
    """Write the folder of a finished run whose rows have these rewards and held-out accuracies."""
    return finished_run(folder, steps=[4 * i for i in range(1, len(rewards) + 1)], reward=rewards,
                        length=[1.0] * len(rewards), held_out_accuracy=rewards, return_mean_100=rewards)


# Catches: updates in place of responses; the responses up to the beginning of a row in place of its end; the last row
# with a reward.
@pytest.mark.parametrize(("rewards", "first"), [
    ([0, 0, 0.01, 0], 3 * 4 * 128), ([0.5, 1], 4 * 128), ([0, 0], float("inf"))])
def test_lock_is_open_from_the_first_reward(rewards, first, tmp_path):
    assert bench.opened(a_run(tmp_path / "a", rewards)) == first


# Catches: a goal that all seeds must reach; met goals although GRPO opens a lock, or although the accuracy falls.
@pytest.mark.parametrize(("shut", "lucky", "accuracy", "different", "met"), [
    (0, 0, 0.5, 6.0, True), (1, 0, 0.5, 6.0, True), (2, 0, 0.5, 6.0, False), (0, 1, 0.5, 6.0, False),
    (0, 0, 0.4, 6.0, False), (0, 0, 0.5, 5.9, False)])
def test_goals_are_four_of_five_locks_and_twice_the_answers(shut, lucky, accuracy, different, met, tmp_path,
                                                            monkeypatch):
    def lock(kind, seed, log_dir):
        right = seed > shut if kind == "curiosity" else kind == "grpo" and seed <= lucky
        return a_run(log_dir / f"{kind}_{seed}", [0, 0, 0.1 if right else 0, 0])

    def answers(folder):
        mine = "curiosity" in folder.name
        return {"held_out_accuracy": accuracy if mine else 0.5, "distinct_right": different if mine else 3.0}

    monkeypatch.setattr(bench, "lock", lock)
    monkeypatch.setattr(bench, "countdown", lambda kind, seed, log_dir: a_run(log_dir / f"c_{kind}_{seed}", [0.0]))
    monkeypatch.setattr(bench, "answers", answers)
    monkeypatch.setattr(bench, "run", lambda algorithm, env, seed, log_dir, *flags, label: a_run(
        log_dir / f"rooms_{label}", [0.0] * 4))
    paper, folders = bench.measure((1, 2, 3, 4, 5), 1, tmp_path)
    assert all(line.met for line in paper.lines) is met
    assert paper.lines[0].ours == 5 - shut and len(folders) == 20 + 15 + 2
    from matplotlib.figure import Figure
    figure = Figure()
    paper.draw(figure)
    assert len(figure.axes) == 2
