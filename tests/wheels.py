"""Builds and installs the package's wheel, as users do."""

import os
import shutil
import subprocess
import sys

from tests import source_tree

PARTS = ("pyproject.toml", "setup.py", "README.md", *source_tree.PACKAGES)


def run_pip(*arguments):
    """Runs this Python's pip."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    # A checkout on PYTHONPATH could pass for an installation.
    environment = {name: v for name, v in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*command, *arguments], env=environment, check=True)


def build(folder):
    """Builds the wheel in `folder`, a `pathlib.Path`; returns the wheel's path."""
    source = folder / "source"
    source.mkdir()
    # Builds a copy: setuptools writes beside the sources, and reuses files of older builds.
    for part in PARTS:
        copy = shutil.copytree if (source_tree.ROOT / part).is_dir() else shutil.copy
        copy(source_tree.ROOT / part, source / part)
    run_pip("wheel", "--no-deps", "--wheel-dir", folder, source)
    (wheel,) = folder.glob("*.whl")
    return wheel
