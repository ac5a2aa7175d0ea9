"""Stand-ins for a benchmark's runs: the command line in this process, and the folder of a finished run."""
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
    """The cases of a test of an experiment show the picture of the first case: to render one takes half a second."""
    real, test = curve.render, request.node.nodeid.partition("[")[0]

    def render(figure, kind):
        if test not in pictures:
            pictures[test] = real(figure, kind)
        return pictures[test]

    if "[" in request.node.nodeid:
        monkeypatch.setattr(curve, "render", render)


@pytest.fixture
def here(cli):
    """Stands in for `spinup.bench.process.spinup`, without a second import of torch: runs a command."""
    def run(*words):
        done = cli(*words)
        assert done.code == 0, done.err
        return done.out
    return run


@pytest.fixture
def finished():
    """Writes a folder as a finished run of 128 responses per update leaves it, with these columns of progress.csv."""
    def write(folder, seconds=1.0, **columns):
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "progress.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
        (folder / "config.json").write_text(json.dumps({"versions": {}, "git": None, "start": "start",
                                                        "config": {"prompts": 1, "samples": 128}}))
        (folder / "result.json").write_text(json.dumps({"status": "finished", "seconds": seconds}))
        return folder
    return write
