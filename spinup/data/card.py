"""A readable description of a dataset."""
import numpy as np

from spinup.data.dataset import Dataset


def card(data: Dataset) -> str:
    """Describe a dataset in words: environment, size, spaces, returns, sources, software and checksum."""
    about, returns = data.about, data.returns()
    low, quarter, median, three_quarters, high = np.percentile(returns, [0, 25, 50, 75, 100])
    lengths = [rows.stop - rows.start for rows in data.episodes()]
    lines = [
        f"{about['env']}: {len(data):,} transitions in {len(returns):,} episodes",
        "",
        f"observations  {spelled(data.obs)}, of {about['observation_space']['kind']}",
        f"actions       {spelled(data.actions)}, of {about['action_space']['kind']}",
        f"rewards       from {data.rewards.min():.4g} to {data.rewards.max():.4g}, mean {data.rewards.mean():.4g}",
        f"episode ends  {int(data.terminated.sum()):,} terminated, "
        f"{int((data.truncated & ~data.terminated).sum()):,} truncated; "
        f"length {min(lengths)} to {max(lengths)}, mean {np.mean(lengths):.4g}",
        f"returns       mean {returns.mean():.4g}, standard deviation {returns.std():.4g}; "
        f"minimum {low:.4g}, quartiles {quarter:.4g}, {median:.4g}, {three_quarters:.4g}, maximum {high:.4g}",
        "",
        "parts, in this order"]
    lines += [f"  {part['source']}: {part['steps']:,} transitions, {part['episodes']:,} episodes, mean return "
              f"{part['mean_return']:.4g}; {part['actions']}" for part in about["parts"]]
    lines += ["", f"seed      {about['seed']}",
              "versions  " + ", ".join(f"{name} {version}" for name, version in about["versions"].items()),
              f"sha256    {about['sha256']}" if "sha256" in about else ""]
    if about["env_settings"]:
        lines.insert(1, "settings: " + ", ".join(f"{name} {value}" for name, value in about["env_settings"].items()))
    text = "\n".join(lines).rstrip()
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)           # the file may be anybody's


def spelled(x: np.ndarray) -> str:
    """Describe the shape and the type of an array of numbers, `[N, ...]`, in words."""
    each = "×".join(map(str, x.shape[1:]))
    return f"{each} number{'s' * (each != '1')} of {x.dtype}" if each else f"one {x.dtype}"
