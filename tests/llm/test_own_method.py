"""The example method for language models on the page about your own algorithms."""
import json
import re
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "using" / "your_algorithm.md"
RUN = "runs/x/x_s1"


# Catches: code on the page that does not work any more, for example with a changed `Run` or a changed Config.
def test_method_on_the_page_trains_and_resumes(beginner, cli, tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = [block for block in blocks if "LearningConfig" in block]
    (tmp_path / "my_method.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_method", raising=False)
    monkeypatch.chdir(tmp_path)
    words = ["llm", "my_method", "--task", "reverse:length=2,symbols=10", "--model", beginner, "--prompts", "4",
             "--samples", "2", "--held-out", "8", "--threads", "1", "--exp-name", "x"]
    assert cli(*words, "--total-steps", "2").code == 0
    assert cli("resume", RUN, "--total-steps", "3").code == 0
    result = json.loads((tmp_path / RUN / "result.json").read_text())
    assert result["steps"] == 3 and result["status"] == "finished"
