"""New algorithms, tasks and environments are found without registration: a copy of the project gets one of each."""
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OUTSIDE = ROOT / "tests" / "outside"
PAGE = "# {}\n\n" + "\n\n".join(f"## {section}\n\n..." for section in (
    "Background", "Quick facts", "Key equations", "From equation to code", "Pseudocode", "API", "Metrics",
    "Failure modes, and what you would see", "Results", "Its counterpart in `llm`", "Papers, and why these"))
NEW = {  # new files: the content, or the file to copy
    # an algorithm
    "spinup/algos/my_a2c.py": OUTSIDE / "my_a2c.py",
    "spinup/algos/my_a2c.toml": "order = 15\n" + (OUTSIDE / "my_a2c.toml").read_text() + (
        '\n[metrics]\nmy_column = "told by nobody but this algorithm"\n'),
    "tests/algos/test_my_a2c.py": """SUITE = {"settings": {"lr": 0.01}, "tasks": {"discrete": {"num_envs": 8}}}\n""",
    "docs/algorithms/my_a2c.md": PAGE.format("My A2C"),
    # a method for language models
    "llm/algos/my_method.py": OUTSIDE / "my_method.py",
    "llm/algos/my_method.toml": 'order = 25\nparent = "vpg"\n',
    "tests/llm/algos/test_my_method.py": "",
    "docs/llm/my_method.md": PAGE.format("My method"),
    # a task
    "llm/tasks/my_task.py": "from llm.tasks.strings import Copy\n\n\nclass Twice(Copy):\n"
                            '    """`abc>` is answered by abc."""\n\n    name = "my-task"\n',
    "tests/llm/tasks/test_my_task.py": "",
    # a small environment
    "spinup/envs/worlds/my_world.py": "from spinup.envs.worlds.chain import Chain\n\nWORLDS = {'MyWorld-v0': lambda "
                                      "num_envs, seed: Chain(5, False, num_envs, seed)}\n",
    "tests/envs/worlds/test_my_world.py": ""}
VARIANT = "spinup/algos/ppo.toml", "\n[variants.careful_ppo]\nclip_ratio = 0.05\n"        # a variant needs one edit


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A copy of the project with one new file of each kind."""
    copy = tmp_path_factory.mktemp("house")
    for part in ("spinup", "llm", "tests", "docs/algorithms", "docs/llm"):
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__", "*.json", "*.png"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    shutil.copy(ROOT / "docs" / "conf.py", copy / "docs")
    for name, content in NEW.items():
        path = copy / name
        assert not path.exists(), f"{name} already exists"
        path.write_text(content.read_text() if isinstance(content, Path) else content)
    name, more = VARIANT
    (copy / name).write_text((copy / name).read_text() + more)
    return copy


def run(house: Path, *words: object) -> str:
    """The output of a Python process that uses the copy. The process must succeed."""
    done = subprocess.run([sys.executable, *map(str, words)], cwd=house, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(house), "OMP_NUM_THREADS": "1"})
    assert not done.returncode, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


# Catches: a list of algorithms, variants, methods, tasks or environments anywhere in the library.
@pytest.mark.long
def test_command_line_and_packages_find_new_files(house):
    said = run(house, "-c", """
import sys
from spinup.cli import run
for words in (["--help"], ["llm"], ["algos"], ["metrics", "--grep", "my_column"], ["envs", "--grep", "MyWorld"]):
    run(words)
import spinup, llm
print(spinup.my_a2c.__name__, spinup.careful_ppo.__name__, llm.my_method.__name__)
quick = dict(quiet=True, tensorboard=False, threads=1, log_dir="runs")
print(spinup.my_a2c("MyWorld-v0", total_steps=128, num_envs=2, **quick).status)
print(spinup.careful_ppo("CartPole-v1", preset="none", total_steps=1024, **quick).directory)
print(llm.my_method("my-task:length=3", total_steps=1, prompts=2, samples=2, held_out=4, layers=1, width=16, heads=2,
                    sft_accuracy=0.0, model=llm.sft("my-task:length=3", total_steps=1, batch=4, held_out=4, layers=1,
                    width=16, heads=2, **quick).directory.as_posix(), **quick).status)
""")
    for expected in ("vpg, my_a2c, trpo, ppo", "rloo, remax", "my_method", "my_a2c | my_a2c_without_entropy",
                     "careful_ppo", "my-task", "my_column", "MyWorld-v0 *", "my_a2c careful_ppo my_method\nfinished\n",
                     "careful_ppo_CartPole-v1_1_s1\nfinished"):
        assert expected in said, expected


# Catches: a list of algorithms or methods in the tests or the documentation; a project rule that names one of them.
@pytest.mark.long
def test_tests_and_documentation_find_new_files(house):
    passed = run(house, "-m", "pytest", "-q", "-n", "0", "-p", "no:randomly", "tests/algos/test_suite.py",
                 "tests/llm/test_seam.py", "tests/llm/test_run.py", "tests/test_house.py", "-k",
                 "(my_a2c and (learns or column or setting or preset or refuses)) or "
                 "(my_method and (loss or columns or bf16)) or "
                 "((my_a2c or my_method) and (ancestors or reads or toml)) or "
                 "public or circles or limit or one_way or by_name")
    assert int(passed.rsplit(" passed", 1)[0].split()[-1]) >= 15
    spec = importlib.util.spec_from_file_location("conf_of_the_copy", house / "docs" / "conf.py")
    pages = run(house, "-c", f"""
import importlib.util
spec = importlib.util.spec_from_file_location("conf", {spec.origin!r})
conf = importlib.util.module_from_spec(spec)
spec.loader.exec_module(conf)
source = ["{{{{ algorithms }}}}\\n{{{{ methods }}}}\\n{{{{ serves }}}}"]
conf.fill_in(None, "index", source)
print(source[0])
""")
    assert "algorithms/my_a2c" in pages and "llm/my_method" in pages
    assert "| `my_a2c` | Discrete, MultiDiscrete, MultiBinary, Box | vectors |" in pages
