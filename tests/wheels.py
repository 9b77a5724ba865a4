"""The package's wheel, as users install it."""

import os
import shutil
import subprocess
import sys

from tests import source_tree

PARTS = ("pyproject.toml", "setup.py", "README.md", *source_tree.PACKAGES)


def run_pip(*arguments):
    """Runs this Python's pip."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    # The checkout on PYTHONPATH may pass for an installation.
    environment = {name: v for name, v in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*command, *arguments], env=environment, check=True)


def build(folder):
    """Builds the wheel in a folder, a `pathlib.Path`, and returns the wheel's path."""
    source = folder / "source"
    source.mkdir()
    # A copy: setuptools writes beside the sources, and takes what an older build left there.
    for part in PARTS:
        copy = shutil.copytree if (source_tree.ROOT / part).is_dir() else shutil.copy
        copy(source_tree.ROOT / part, source / part)
    run_pip("wheel", "--no-deps", "--wheel-dir", folder, source)
    (wheel,) = folder.glob("*.whl")
    return wheel
