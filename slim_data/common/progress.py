"""A progress bar, shown only on a terminal."""

import contextlib
import sys
from collections.abc import Callable, Iterator

Bar = Callable[..., contextlib.AbstractContextManager[Callable[[int], None]]]


def ignore(done: object) -> None:
    """Ignores a number or a line; a default for callbacks."""


@contextlib.contextmanager
def no_bar(*_: object) -> Iterator[Callable[[object], None]]:
    """Replaces `progress_bar` to show no progress."""
    yield ignore


@contextlib.contextmanager
def progress_bar(
    title: str, total: int | None, unit: str = "images"
) -> Iterator[Callable[[int], None]]:
    """Shows the amount done, the speed and the remaining time on standard error.

    Args:
        total: None: unknown.
        unit: "bytes" are shown as kB, MB and so on.

    Yields:
        A function of the amount done so far.

    Example:
        >>> with progress_bar("train", 1437) as progress:
        ...     write(generate, paths, 1437, fingerprint=fingerprint, progress=progress)
    """
    if not sys.stderr.isatty():
        yield ignore
        return
    from rich import console, progress  # only a terminal needs it

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
