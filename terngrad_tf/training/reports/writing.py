"""Writes reports: of some runs where the user wants it, and of a run at its end beside its logs."""

import datetime
import os
import pathlib
from collections.abc import Callable, Sequence

from slim_data.common.errors import printable
from terngrad_tf.files import atomic_write
from terngrad_tf.training.errors import UserError
from terngrad_tf.training.log import log
from terngrad_tf.training.reports import reading, sections
from terngrad_tf.training.reports.page import Page
from terngrad_tf.version import __version__


def write(
    folders: Sequence[str | os.PathLike],
    output: str | os.PathLike,
    *,
    eval_dirs: Sequence[str | os.PathLike | None] | None = None,
    next_steps: Callable[[reading.RunData], dict[str, str]] | None = None,
) -> pathlib.Path:
    """Writes a report of runs, which are compared where there are several.

    Args:
        folders: their folders.
        output: path of the HTML file; replaced, if it is there, once all is written.
        eval_dirs: further folder of evaluations of each run. Default: none; see
            `reading.read_run_data`.
        next_steps: function of a `reading.RunData` to a dict from what may be done with the run
            to the command for it. Default: nothing is told.

    Returns:
        `pathlib.Path` of the file.

    Raises:
        UserError: a folder holds no run, or the file cannot be written there.
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
    try:
        with atomic_write(output) as beside:
            beside.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"`output` cannot be written. Received: output={str(output)!r} ({error.strerror})"
        ) from error
    return output


def _names(folders):
    """The last parts of the paths, as many as tell them apart."""
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
    """As `write` at the end of a run: tells where the report is, or warns where none could be made.

    Args:
        folders, output, next_steps: as for `write`.
    """
    try:
        log(f"report: {write(folders, output, next_steps=next_steps)}")
    except Exception as error:  # The run itself is done, and is good.
        log(f"no report could be written: {printable(' '.join(str(error).split()))}")
