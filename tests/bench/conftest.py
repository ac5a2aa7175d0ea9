"""Replacements for the runs of a benchmark: the command line in this process, and the folder of a finished run."""
import csv
import json

import pytest

from spinup.runs import curve


@pytest.fixture(scope="session")
def pictures():
    """Pictures by the test that drew them."""
    return {}


@pytest.fixture(autouse=True)
def one_picture(request, monkeypatch, pictures):
    """All cases of a parametrised test use the picture of the first case, because rendering takes half a second."""
    real, test = curve.render, request.node.nodeid.partition("[")[0]

    def render(figure, kind):
        if test not in pictures:
            pictures[test] = real(figure, kind)
        return pictures[test]

    if "[" in request.node.nodeid:
        monkeypatch.setattr(curve, "render", render)


@pytest.fixture
def here(cli):
    """Replacement for `spinup.bench.process.spinup`, which runs a command without a second import of torch."""
    def run(*words):
        done = cli(*words)
        assert done.code == 0, done.err
        return done.out
    return run


def finished_run(folder, seconds=1.0, about=None, **columns):
    """Write the folder of a finished run with these columns of progress.csv, and return it.

    about: entries of config.json; otherwise the run has 128 responses per update.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "progress.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    config = {"versions": {}, "git": None, "start": "start", "config": {"prompts": 1, "samples": 128}} | (about or {})
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "result.json").write_text(json.dumps({"status": "finished", "seconds": seconds}))
    return folder
