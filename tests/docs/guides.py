"""Code blocks of the documentation's pages, and the folders that they run in."""

import dataclasses
import os
import pathlib
import re
import shlex
import subprocess

from tests import forks

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
_BLOCK = re.compile(
    r"^(?:<!-- not run: (.*?) -->\n)?```(\w*)(?: title=\"(.*?)\")?\n(.*?)^```", re.M | re.S
)


@dataclasses.dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
        not_run: reason why no test runs the block; "" if a test does.
        language: such as "python"; "" for output of commands.
        title: path of the file that holds the block; "" if it is not a file.
        text: the code.
    """

    not_run: str
    language: str
    title: str
    text: str


def blocks(path):
    """Returns the `Block`s of a Markdown file, in order."""
    return [Block(*found) for found in _BLOCK.findall(path.read_text(encoding="utf-8"))]


def script(path):
    """Returns the Python code of a page, except files, as one program."""
    found = [b.text for b in blocks(path) if (b.language, b.title, b.not_run) == ("python", "", "")]
    return "\n".join(found)


def commands(path):
    """Returns the command blocks of a page that tests run."""
    return [b.text for b in blocks(path) if b.language == "bash" and not b.not_run]


def write_files(path, folder):
    """Writes a page's file blocks into a folder."""
    for block in blocks(path):
        if block.title:
            file = folder / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")


def anchors(path):
    """Returns the names by which links reach the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.M)
    return [re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings]


def run_commands(path, folder, timeout=500):
    """Runs a page's commands from top to bottom in a folder with the page's files.

    Args:
        path: path of the page.
        folder: empty `pathlib.Path`.
        timeout: seconds.

    Returns:
        Exit status, and standard output with errors.
    """
    write_files(path, folder)
    tools = folder / ".bin"
    tools.mkdir()
    for name, words in {"python": [], "terngrad": ["-m", "terngrad_tf"]}.items():
        (tools / name).write_text(f'#!/bin/sh\nexec {shlex.join(forks.command(*words))} "$@"\n')
        (tools / name).chmod(0o755)
    done = subprocess.run(
        ["bash", "-euxc", "".join(commands(path))],
        cwd=folder,
        env=os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "TF_CPP_MIN_LOG_LEVEL": "2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        timeout=timeout,
    )
    return done.returncode, done.stdout
