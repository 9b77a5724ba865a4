"""A progress bar on a terminal, and nothing where there is none."""

import contextlib
import sys


@contextlib.contextmanager
def bar(title, total, unit="images"):
    """Shows on standard error how much is done, how fast, and how long the rest will take.

    Args:
        title: text before the bar.
        total: number of all that there is to do.
        unit: what is counted; "bytes" are shown as kB, MB and so on.

    Yields:
        A function of the number that is done so far.

    Example:
        >>> with bar("train", 1437) as progress:
        ...     write(generate, paths, 1437, identity=identity, progress=progress)
    """
    if not sys.stderr.isatty():
        yield lambda done: None
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
