"""Run the tutorials and save their outputs: python tutorials/build.py [NAME ...] writes NAME.ipynb beside NAME.py.

The sources are Python files in jupytext's percent format. A notebook has their cells and outputs. The budget comes from
SPINUP_BUDGET, or else from the source. A failed assertion ends the run, and nothing is written.
"""
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import jupytext
from nbclient import NotebookClient
from nbformat import NotebookNode
from traitlets.config import Config

from spinup.runs.files import write_whole

HERE = Path(__file__).parent
KEPT = ("tags", "jupyter")                                                # of a cell's metadata


def notebook(source: Path) -> NotebookNode:
    """Return the notebook of a source, not yet executed."""
    made = jupytext.read(source)
    for i, cell in enumerate(made.cells):
        cell["id"] = f"cell-{i}"
        cell.metadata = NotebookNode({k: v for k, v in cell.metadata.items() if k in KEPT})
    made.metadata = NotebookNode({"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}})
    made.nbformat, made.nbformat_minor = 4, 5
    return made


def executed(source: Path) -> NotebookNode:
    """Return the executed notebook of a source. Raise nbclient's CellExecutionError if a cell fails."""
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())       # without a screen, SDL would complain
    with tempfile.TemporaryDirectory() as sockets:
        # Another process can take a TCP port between its choice and its use. The kernel would then end at once.
        files = {"transport": "ipc", "ip": str(Path(sockets, "kernel"))} if os.name == "posix" else {}
        made = NotebookClient(notebook(source), timeout=1800, record_timing=False,
                              config=Config(ConnectionFileMixin=files),
                              resources={"metadata": {"path": str(source.parent)}}).execute()
    made.metadata.pop("language_info", None)
    return made


def sources() -> list[Path]:
    return sorted(path for path in HERE.glob("*.py") if path.name[0].isdigit())


if __name__ == "__main__":
    for source in sources():
        if not sys.argv[1:] or source.stem in sys.argv[1:]:
            began = time.perf_counter()
            text = json.dumps(executed(source), indent=1, ensure_ascii=False) + "\n"
            write_whole(source.with_suffix(".ipynb"), text.encode())
            print(f"{source.stem}: {time.perf_counter() - began:.0f} s", flush=True)
