"""Notices that another run writes its checkpoints into the same folder."""

import contextlib
import pathlib
from collections.abc import Iterable

from terngrad_tf.checkpoints import files

# By folder: several callbacks of a process may write into one.
_known_in: dict[pathlib.Path, set[str]] = {}


class SoleWriter:
    """A folder in which only this run may write.

    Two runs overwrite and remove each other's checkpoints. A run therefore knows the checkpoints
    that it found and those that it wrote. It needs no lock, which a lost machine could leave on a
    network disk, and no clock.

    Example:
        >>> import tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> writer = SoleWriter(folder)
        >>> files.path_of(folder, 7).touch()
        >>> writer.check()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        ValueError: `folder` must be used by one run at a time; another run wrote ...
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._known = _known_in.setdefault(folder.resolve(), set())
        self._known.clear()
        self._known.update(self._names())
        self._unfinished = files.unfinished(folder)

    def check(self, may_exist: Iterable[pathlib.Path] = ()) -> None:
        """Raises ValueError if another run wrote a checkpoint; call it before writing.

        Args:
            may_exist: checkpoints that another process of this run may have written.
        """
        new = [n for n in self._names() if n not in self._known | {p.name for p in may_exist}]
        if new:
            raise ValueError(
                f"`folder` must be used by one run at a time; another run wrote {new[-1]} there:"
                " end one of the runs, or give it a folder of its own. Received:"
                f" folder={str(self._folder)!r}"
            )

    def remove_unfinished(self) -> None:
        """Removes files that killed runs left half-written: they are as they were at the start."""
        now = files.unfinished(self._folder)
        for path, state in self._unfinished.items():
            if now.get(path) == state:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
        self._unfinished = {}

    def wrote(self, path: pathlib.Path) -> None:
        """Notes a checkpoint of this run, and which are left."""
        self._known.add(path.name)
        # Another run may write a removed one again.
        self._known.intersection_update(self._names())

    def _names(self):
        return [path.name for path in files.find(self._folder)]
