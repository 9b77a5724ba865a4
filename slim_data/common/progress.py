"""A progress bar on a terminal, and nothing where there is none."""

import contextlib
import sys
from collections.abc import Callable, Iterator

Bar = Callable[..., contextlib.AbstractContextManager[Callable[[int], None]]]


def ignore(done: object) -> None:
    """Takes a number or a line that nobody wants to know; a default."""


@contextlib.contextmanager
def no_bar(*_: object) -> Iterator[Callable[[object], None]]:
    """Is `progress_bar` where nothing is to be shown."""
    yield ignore


@contextlib.contextmanager
def progress_bar(
    title: str, total: int | None, unit: str = "images"
) -> Iterator[Callable[[int], None]]:
    """Shows on standard error how much is done, how fast, and how long the rest will take.

    Args:
        title: text before the bar.
        total: number of all that there is to do.
        unit: what is counted; "bytes" are shown as kB, MB and so on.

    Yields:
        A function of the number that is done so far.

    Example:
        >>> with progress_bar("train", 1437) as progress:
        ...     write(generate, paths, 1437, fingerprint=fingerprint, progress=progress)
    """
    if not sys.stderr.isatty():
        yield ignore
        return
    from rich import console, progress  # which only a terminal needs

    if unit == "bytes":
        amount = [progress.DownloadColumn(), progress.TransferSpeedColumn()]
    else:
        amount = [progress.MofNCompleteColumn(), _speed_column(progress.ProgressColumn, unit)]
    with progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        *amount,
        progress.TimeRemainingColumn(),
        console=console.Console(stderr=True),
        transient=True,
    ) as display:
        task = display.add_task(title, total=total)
        yield lambda done: display.update(task, completed=done)


def _speed_column(base, unit):
    class Speed(base):
        def render(self, task):
            return f"{task.speed:,.0f} {unit}/s" if task.speed else f"- {unit}/s"

    return Speed()
