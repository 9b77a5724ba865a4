"""Writes reports: of runs on request, and of a run at its end beside its logs."""

import datetime
import os
import pathlib
from collections.abc import Callable, Sequence

from slim_data.common.errors import printable
from terngrad_tf.common.files import atomic_write
from terngrad_tf.reports import reading, sections
from terngrad_tf.reports.page import Page
from terngrad_tf.training.errors import UserError, writing
from terngrad_tf.training.log import log
from terngrad_tf.version import __version__


def write(
    folders: Sequence[str | os.PathLike],
    output: str | os.PathLike,
    *,
    eval_dirs: Sequence[str | os.PathLike | None] | None = None,
    next_steps: Callable[[reading.RunData], dict[str, str]] | None = None,
) -> pathlib.Path:
    """Writes a report of runs, which compares several runs.

    Args:
        folders: folders of the runs.
        output: path of the HTML file; an existing file is replaced once the report is complete.
        eval_dirs: further folder of evaluations of each run. Default: none; see
            `reading.read_run_data`.
        next_steps: function from a `reading.RunData` to a dict from a possible next step to its
            command. Default: none.

    Returns:
        `pathlib.Path` of the file.

    Raises:
        UserError: a folder holds no run, or the file cannot be written.
        DataError: the library that draws the charts is not installed.
    """
    output = pathlib.Path(output)
    if output.is_dir() or not output.parent.is_dir():
        raise UserError(
            f"`output` must be a file in a folder that exists. Received: output={str(output)!r}"
        )
    eval_dirs = eval_dirs or [None] * len(folders)
    runs = [
        reading.read_run_data(folder, name, eval_dir)
        for folder, name, eval_dir in zip(folders, _names(folders), eval_dirs, strict=True)
    ]
    page = Page(printable("Report of " + ", ".join(run.name for run in runs)))
    for section in sections.SECTIONS:
        section(page, runs)
    if next_steps is not None:
        sections.add_next_steps(page, runs, next_steps)
    now = datetime.datetime.now().astimezone()
    text = page.html(f"Written by terngrad_tf {__version__}, {now:%Y-%m-%d %H:%M %Z}.")
    with writing("output", output), atomic_write(output) as beside:
        beside.write_text(text, encoding="utf-8")
    return output


def _names(folders):
    """Returns the last parts of the paths, enough to distinguish them."""
    paths = [pathlib.Path(os.path.abspath(folder)).parts for folder in folders]
    if len(set(paths)) < len(paths):
        raise UserError(f"RUN must be given once each. Received: {' '.join(map(str, folders))}")
    length = 1
    while len({path[-length:] for path in paths}) < len(paths):
        length += 1
    return [printable("/".join(path[-length:])) for path in paths]


def write_or_warn(
    folders: Sequence[str | os.PathLike],
    output: str | os.PathLike,
    next_steps: Callable[[reading.RunData], dict[str, str]],
) -> None:
    """Calls `write` at the end of a run and logs the report's path, or a warning on failure."""
    try:
        log(f"report: {write(folders, output, next_steps=next_steps)}")
    except Exception as error:  # the run itself has succeeded
        log(f"no report could be written: {printable(' '.join(str(error).split()))}")
