"""The benchmark of parameter noise on tokens: when a chain is solved, and which goals are missed."""
import pytest

from spinup.bench.papers import noise_tokens as bench
from tests.bench.conftest import finished_run


def a_run(folder, rewards, accuracy):
    """Write the folder of a finished run whose rows have these rewards and held-out accuracies."""
    return finished_run(folder, steps=list(range(1, len(rewards) + 1)), reward=rewards, held_out_accuracy=accuracy,
                        test_return=[12.0] * len(rewards))


# Catches: the first row that is right although a later one is wrong; rows that are counted from 0; steps in place of
# responses.
@pytest.mark.parametrize(("accuracy", "since"), [
    ([0, 0.9, 1, 1], 2 * 128), ([1, 0.5, 1, 0.95], 3 * 128), ([1, 1, 1, 0.89], float("inf")), ([1, 1], 128)])
def test_chain_is_solved_only_if_it_stays_solved_to_the_end(accuracy, since, tmp_path):
    assert bench.solved(a_run(tmp_path / "a", [0.0] * len(accuracy), accuracy)) == since


# Catches: rewards of .001 for the near end that count as the far end.
def test_only_the_far_end_is_a_hit(tmp_path):
    assert bench.hits(a_run(tmp_path / "a", [0.0, 0.001, 0.0005, 0.0088, 0.3], [0] * 5)) == 2


# Catches: a goal that all seeds must reach; a met goal although GRPO has a hit; a solution after the limit that counts.
@pytest.mark.parametrize(("late", "lucky", "met"), [(0, 0, True), (1, 0, True), (2, 0, False), (0, 1, False)])
def test_goals_are_nine_of_ten_seeds_and_no_hit_of_grpo(late, lucky, met, tmp_path, monkeypatch):
    def one(n, kind, seed, log_dir):
        first = 60 if seed <= late and n == 20 and kind == "noise" else 10
        right = [0] * first + [1] * (70 - first) if kind == "noise" else [0] * 70
        rewards = [0.5 if kind == "sampling" and seed <= lucky and n == 30 else 0.0005] * 70
        return a_run(log_dir / f"{n}_{kind}_{seed}", rewards, right)

    monkeypatch.setattr(bench, "one", one)
    monkeypatch.setattr(bench, "run", lambda algorithm, env, seed, log_dir, *flags, label: a_run(
        log_dir / f"{label}_{seed}", [0.0] * 5, [0] * 5))
    paper, folders = bench.measure(tuple(range(1, 11)), 1, tmp_path)
    assert all(line.met for line in paper.lines) is met
    assert paper.lines[0].ours == 10 - late and len(folders) == 10 * 13
    from matplotlib.figure import Figure
    figure = Figure()
    paper.draw(figure)
    assert len(figure.axes) == 2
