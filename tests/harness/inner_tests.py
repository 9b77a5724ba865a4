"""Runs pytest on tests of a folder, with hooks of `tests/conftest.py`."""

import subprocess
import sys

TIMEOUT_SECONDS = 120


def run(folder, hooks, files, *arguments):
    """Runs pytest; returns a `subprocess.CompletedProcess` with its output.

    Args:
      folder: `pathlib.Path` of an existing folder.
      hooks: names of functions of `tests/conftest.py`, such as "pytest_addoption".
      files: {name of a file of tests: its text}.
      arguments: of pytest.
    """
    (folder / "conftest.py").write_text(f"from tests.conftest import {', '.join(hooks)}")
    for name, text in files.items():
        (folder / name).write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "--rootdir=.", *arguments, *files],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
