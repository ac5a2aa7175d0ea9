"""Datasets: their episodes and returns, their files, and the refusal of invalid files."""
import json
import re
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch

from spinup.core.normaliser import Normaliser
from spinup.data.batches import Batches
from spinup.data.card import card
from spinup.data.dataset import ARRAYS, Dataset, join, load
from spinup.errors import UserError

ABOUT = {"env": "CartPole-v1", "env_settings": {}, "parts": [{"source": "by hand", "steps": 3, "episodes": 2,
                                                               "mean_return": 3.5, "actions": "none"}],
         "observation_space": {"kind": "Box"}, "action_space": {"kind": "Discrete"}, "seed": 0,
         "versions": {"numpy": "2"}}


@pytest.fixture
def data() -> Dataset:
    """Two episodes: rewards 1 and 2, then 4; the second is truncated."""
    part = Dataset(np.arange(6, dtype=np.float32).reshape(3, 2), np.array([0, 1, 1]), np.float32([1, 2, 4]),
                   np.arange(2, 8, dtype=np.float32).reshape(3, 2), np.array([False, True, False]),
                   np.array([False, False, True]))
    return join([part], ABOUT)


@pytest.fixture
def file(data, tmp_path):
    with open(tmp_path / "d.npz", "wb") as out:
        data.write(out)
    return tmp_path / "d.npz"


# Catches: an episode that ends only at a termination; discounted returns; a part that is left out of the mean.
def test_episodes_and_returns_match_values_by_hand(data):
    assert data.episodes() == [slice(0, 2), slice(2, 3)] and data.returns().tolist() == [3, 4] and len(data) == 3
    twice = join([data, data], ABOUT)
    assert twice.returns().tolist() == [3, 4, 3, 4] and twice.about["episodes"] == 4 and twice.about["steps"] == 6
    assert twice.about["mean_return"] == 3.5


# Catches: an array or a dtype that is lost in the file; metadata that NumPy cannot read without pickle.
def test_file_holds_everything_and_numpy_alone_reads_it(data, file):
    again = load(file)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(again, name), getattr(data, name), strict=True)
    assert {k: v for k, v in again.about.items() if k not in ("format", "sha256")} == data.about
    with np.load(file, allow_pickle=False) as plain:
        assert plain["obs"].shape == (3, 2) and json.loads(plain["about"].tobytes())["env"] == "CartPole-v1"


# Catches: a checksum that leaves out an array, its dtype or the metadata.
@pytest.mark.parametrize("name", [*ARRAYS, "about"])
def test_changed_file_is_noticed(name, file):
    with np.load(file) as plain:
        arrays = dict(plain)
    if name == "about":
        arrays[name] = np.frombuffer(arrays[name].tobytes().replace(b'"seed": 0', b'"seed": 1'), np.uint8)
    else:
        arrays[name] = arrays[name].copy()
        arrays[name].flat[0] = 1 - arrays[name].flat[0]
    np.savez(file, **arrays)
    with pytest.raises(UserError, match=r"d\.npz has changed since it was written; restore it"):
        load(file)


class Trap:
    def __reduce__(self):
        return (print, ("unpickled",))


# Catches: a traceback; a file that is unpickled; a message without the command that makes a dataset.
@pytest.mark.parametrize("kind", ["missing", "text", "empty", "cut", "foreign", "pickled", "npy", "no end", "nan",
                                  "huge", "lie", "part", "kind", "head", "shape", "locked"])
def test_invalid_files_are_refused_in_one_sentence(kind, file, data, capsys):
    whole = file.read_bytes()
    if kind == "missing":
        file.unlink()
    elif kind in ("text", "empty", "cut"):
        file.write_bytes({"text": b"obs,act\n1,2\n", "empty": b"", "cut": whole[:len(whole) // 2]}[kind])
    elif kind == "foreign":
        np.savez(file, x=np.zeros(3))
    elif kind == "pickled":
        np.savez(file, about=np.array([Trap()]), obs=np.zeros(3))
    elif kind in ("head", "shape"):                                       # in the header of an array
        old, new = {"head": (b"'shape': (3,", b"'shape': (3["),
                    "shape": (b"'shape': (3,), }", b"'shape': (9**99)")}[kind]
        assert old in whole
        file.write_bytes(whole.replace(old, new))
    elif kind == "locked":                                                # a flag of the archive: encrypted
        at = whole.rindex(b"PK\x01\x02")
        file.write_bytes(whole[:at + 8] + b"\x01" + whole[at + 9:])
    elif kind == "npy":
        with open(file, "wb") as out:
            np.save(out, np.zeros(3))
    else:
        arrays = data.arrays()
        arrays["truncated"] = np.zeros(3, bool) if kind == "no end" else arrays["truncated"]
        arrays["rewards"] = {"nan": np.float32([1, np.nan, 4]), "huge": np.float32([3e38] * 3)}.get(
            kind, arrays["rewards"])
        about = {"lie": {"mean_return": 9.0}, "part": {"parts": ["a"]}, "kind": {"action_space": {}}}.get(kind, {})
        with open(file, "wb") as out:
            Dataset(**arrays, about={**data.about, **about}).write(out)
    with pytest.raises(UserError, match=r"d\.npz.*`spinup record` makes datasets"):
        load(file)
    assert "unpickled" not in capsys.readouterr().out


# Catches: a message that does not name the cause, so that people cannot correct their own data.
@pytest.mark.parametrize(("changes", "words"), [
    ({"obs": np.zeros((3, 2))}, "obs must be float32 or uint8, not float64; convert it, as in obs.astype('float32')"),
    ({"actions": np.zeros(3, np.int32)}, "not int32; convert it, as in actions.astype('int64')"),
    ({"actions": np.zeros(3, bool)}, "not bool; convert it, as in actions.astype('int64')"),
    ({"actions": np.full((3, 1), -2e30, np.float32)}, "actions has a number above 1e+30 or below -1e+30"),
    ({"rewards": np.zeros((3, 1), np.float32)}, "rewards must have one number per row, but its shape is (3, 1)"),
    ({"actions": np.zeros(2, np.int64)}, "different numbers of rows"),
    ({"truncated": np.zeros(3, bool)}, "the last row does not end an episode"),
    ({"about": {**ABOUT, "versions": None}}, "have no valid entry 'versions'"),
    ({"about": {**ABOUT, "parts": [{}]}}, "have no valid entry 'parts[...].source'")])
def test_faults_of_own_data_are_named(changes, words, data, tmp_path):
    with open(tmp_path / "own.npz", "wb") as out:
        replace(data, **({"about": data.about | changes["about"]} if "about" in changes else changes)).write(out)
    with pytest.raises(UserError, match=re.escape(words)):
        load(tmp_path / "own.npz")


# Catches: members of the archive that are not arrays; metadata that is nested too deeply for JSON.
@pytest.mark.parametrize("about", [b"no array", None])
def test_forged_archive_is_refused_in_one_sentence(about, file, data):
    if about is None:
        np.savez(file, about=np.frombuffer(b"[" * 200_000, np.uint8), **data.arrays())
    else:
        with zipfile.ZipFile(file, "w") as out:
            out.writestr("about", about)
    with pytest.raises(UserError, match=r"d\.npz is damaged or not a dataset"):
        load(file)


# Catches: a bit of an array that has changed on the disk.
def test_a_flipped_bit_is_noticed(file):
    whole = bytearray(file.read_bytes())
    with zipfile.ZipFile(file) as inside:
        start = inside.getinfo("rewards.npy").header_offset
    whole[whole.index(np.float32([1, 2, 4]).tobytes(), start)] ^= 1
    file.write_bytes(whole)
    with pytest.raises(UserError, match=r"d\.npz.* is damaged or not a dataset"):
        load(file)


# Catches: a card without the returns, the sources or the checksum.
def test_card_describes_the_content_of_the_file(file):
    text = card(load(file))
    for words in ("CartPole-v1: 3 transitions in 2 episodes", "1 terminated, 1 truncated", "mean 3.5", "by hand",
                  load(file).about["sha256"], "2 numbers of float32"):
        assert words in text


# Catches: a row of a batch with parts of different transitions; statistics that are not the dataset's; a change of a
# normaliser that was loaded with a policy.
def test_batches_are_rows_of_the_dataset(data):
    batches = Batches(data, data.actions, None, torch.device("cpu"))
    batch = batches.draw(np.random.default_rng(0), 64)
    rows = (batch.obs[:, 0] / 2).long()
    assert set(rows.tolist()) == {0, 1, 2}
    for got, name in ((batch.act, "actions"), (batch.rew, "rewards"), (batch.next_obs, "next_obs")):
        np.testing.assert_array_equal(got, getattr(data, name)[rows])
    assert batch.terminated.tolist() == (rows == 1).float().tolist()
    normaliser = Normaliser((2,))
    Batches(data, data.actions, normaliser, torch.device("cpu"))
    np.testing.assert_allclose(normaliser.mean, data.obs.mean(0))
    double = Dataset(2 * data.obs, *[getattr(data, name) for name in ARRAYS[1:]])
    kept = Batches(double, data.actions, normaliser, torch.device("cpu"))
    np.testing.assert_allclose(normaliser.mean, data.obs.mean(0))
    for got, raw in zip(kept.draw(np.random.default_rng(0), 64)[:4:3], (double.obs, double.next_obs), strict=True):
        np.testing.assert_allclose(got, (raw[rows] - data.obs.mean(0)) / data.obs.std(0), rtol=1e-5)
