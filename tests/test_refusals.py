"""Empty values, control characters, huge numbers and empty files get one sentence, and no file is created."""
import math

import pytest

from spinup.errors import UserError
from spinup.registry import find
from spinup.runs.checkpoint import load_checkpoint, save_checkpoint
from spinup.runs.presets import configure
from spinup.view.plots import read_published

CHARACTER = "has an invalid character; use letters, digits and _"
HEAD = "env,algorithm,source,steps,value\n"
LARGE = "must be below 2^63, which is 9.2e18; choose a smaller number"
REFUSED = [                                                               # the input, and part of the error message
    ("llm grpo|--reward=", "--reward is empty; write --reward FILE:NAME, or leave it out"),
    ("ppo|--log-dir=", "--log-dir is empty; write --log-dir DIR, or leave it out"),
    ("ppo|--exp-name=", "--exp-name is empty; write --exp-name NAME, or leave it out"),
    ("ppo|--init=", "--init is empty; write --init DIR, or leave it out"),
    ("ppo|--config=", "--config is empty; write --config FILE, or leave it out"),
    ("llm rlhf|--ppo.reward=", "--ppo.reward is empty; write --ppo.reward FILE:NAME, or leave it out"),
    ("ppo|--exp-name=a\nb", f"--exp-name 'a\\nb' {CHARACTER}"),
    ("ppo|--exp-name=\x00", f"--exp-name '\\x00' {CHARACTER}"),
    ("ppo|--exp-name=\x1b[31m", CHARACTER), ("ppo|--exp-name=\udcff", CHARACTER), ("ppo|--exp-name= ", CHARACTER),
    ("ppo|--log-dir=a\nb", f"--log-dir 'a\\nb' {CHARACTER}"), ("ppo|--log-dir=a\x00", CHARACTER),
    ("grid ppo|--seed=1|--exp-name=a\nb", CHARACTER),
    ("arena|/dev/null", "/dev/null is not a Python file; give one, such as mine.py"),
    ("arena|--game=tictactoe|--out=", "argument --out: '' is not a path; write one of letters, digits and _"),
    ("plot|.|--out=", "argument --out: '' is not a path"), ("resume|", "argument DIR: '' is not a path"),
    ("eval|a\x00", "argument DIR: 'a\\x00' is not a path"),
    ("ppo|--total-steps=1e44", f"--total-steps {LARGE}"), ("llm sft|--total-steps=1e44", f"--total-steps {LARGE}"),
    ("ppo|--total-steps=1" + "0" * 400, f"--total-steps {LARGE}"), ("ppo|--seed=" + "9" * 5000, f"--seed {LARGE}"),
    ("ppo|--checkpoint-steps=1e44", f"--checkpoint-steps {LARGE}"), ("arena|--games=1e44", f"--games {LARGE}"),
    ("ppo|--num-envs=65537", "--num-envs must be from 1 to 65536, not 65537"),
    ("ppo|--hidden=1e9", "--hidden must be from 1 to 65536, not 1000000000"),
    ("es|--workers=257", "--workers must be from 1 to 256, not 257"),
    ("sac|--env-workers=257", "--env-workers must be from 0 to 256, not 257"),
    ("grid ppo|--seed=1|--workers=257", "--workers must be from 1 to 256, not 257"),
    ("bench returns ppo|--workers=257", "--workers must be from 1 to 256, not 257"),
    ("llm sft|--layers=2000", "--layers must be from 1 to 1024, not 2000"),
    ("llm sft|--width=1e9", "--width must be from 1 to 65536, not 1000000000"),
    ("ppo|--env=ALE/Pong-v5|--frame-skip=1e9", "--frame-skip must be from 1 to 1000, not 1000000000")]


# Catches: an empty value that counts as the default; a name with a line break, which breaks every printed command; a
# number that is too large for torch; more processes or environment copies than a machine can run.
@pytest.mark.parametrize(("typed", "words"), REFUSED, ids=lambda text: ascii(text)[1:40])
def test_meaningless_values_are_refused_and_nothing_is_created(typed, words, cli, tree):
    head, *rest = typed.split("|")
    done = cli(*head.split(), *rest)
    assert (done.code, done.err.count("\n"), tree()) == (2, 1, [])
    assert words in done.err and len(done.err) < 300


# Catches: a refused byte order mark, which editors on Windows write; a traceback for endlessly nested brackets.
def test_settings_file_may_have_a_byte_order_mark_but_must_be_valid(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_bytes(b"\xef\xbb\xbflr = 0.5\n")
    assert configure(find("ppo"), {}, file=file)[0].lr == 0.5
    for text, words in ((b"lr = " + b"[" * 3000, "nested too deeply"), (b"lr = 0.1 # \xff", "save it as UTF-8"),
                        (b"lr = " + b"9" * 5000, "mine.toml is not TOML"), (b'log_dir = ""', "--log-dir is empty"),
                        (b'exp_name = "a\\nb"', "has an invalid character")):
        file.write_bytes(text)
        with pytest.raises(UserError, match=words):
            config, _ = configure(find("ppo"), {}, file=file)
            find("ppo").load().train(config)


@pytest.mark.parametrize("text", ["", HEAD, f"{HEAD}a,b,c,1,nan\n", f"{HEAD}a,b,c,inf,1\n", "a,b\n1,2\n", "\x00"])
def test_file_of_published_curves_without_numbers_is_refused(text, tmp_path):
    (tmp_path / "others.csv").write_text(text)
    with pytest.raises(UserError, match="others.csv holds no curves; give a CSV file whose first line is env,"):
        read_published(tmp_path / "others.csv")


# Catches: a traceback of numpy or torch for an array that does not fit into memory.
@pytest.mark.parametrize("error", [MemoryError("Unable to allocate 7.28 TiB"), MemoryError(), RuntimeError(
    "[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried\nto allocate")])
def test_too_little_memory_gives_one_sentence(error, cli, monkeypatch):
    monkeypatch.setattr("spinup.algos.ppo.train", lambda *_: (_ for _ in ()).throw(error))
    done = cli("ppo", "--quiet")
    assert done.code == 2 and done.err.count("\n") == 1
    assert "not enough memory" in done.err and "choose smaller values" in done.err
    monkeypatch.setattr("spinup.algos.ppo.train", lambda *_: math.sqrt(-1))
    with pytest.raises(ValueError, match="math domain"):
        cli("ppo", "--quiet")


# Catches: a checkpoint that is reported as damaged although it is only too large.
@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_checkpoint_larger_than_memory_is_not_called_damaged(error, tmp_path, monkeypatch):
    save_checkpoint(tmp_path / "checkpoint.pt", {"algorithm": "ppo"})
    monkeypatch.setattr("torch.load", lambda *_, **__: (_ for _ in ()).throw(error))
    with pytest.raises(UserError, match="not enough memory to load .*checkpoint.pt; end other programs"):
        load_checkpoint(tmp_path / "checkpoint.pt")
