"""Finds the best checkpoint by a value in the logs of `fit`."""

import contextlib
import logging
import pathlib
import re
from collections.abc import Collection, Iterable, Mapping

from terngrad_tf.checkpoints import files
from terngrad_tf.common.arguments import check

_MODES = ("auto", "min", "max")
_HIGH = re.compile(r"acc|auc|precision|recall|score|iou|r2|f1|dice", re.IGNORECASE)

_logger = logging.getLogger(__name__)


class Best:
    """The best value so far, and the best checkpoint in a folder."""

    def __init__(self, folder: pathlib.Path, monitor: str | None, mode: str) -> None:
        is_name = monitor is None or (isinstance(monitor, str) and bool(monitor))
        check(is_name, "monitor", "must be a name or None", monitor)
        check(mode in _MODES, "mode", f"must be one of {_MODES}", mode)
        self._folder = folder
        self._monitor = monitor
        if mode == "auto":
            mode = "max" if monitor is not None and _HIGH.search(monitor) else "min"
        self._sign = 1.0 if mode == "max" else -1.0
        self._value: float | None = None
        self._has_warned = False

    def known(self) -> float | None:
        """Returns the best value of the folder's checkpoints, or None without checkpoints."""
        return self._best(self._values().values())

    def path(self) -> pathlib.Path | None:
        """Returns the path of the checkpoint with the best value, or None."""
        values = self._values()
        return max(values, key=lambda path: self._key(values[path]), default=None)

    def begin(self, known: Iterable[float | None]) -> None:
        """Starts with the best of the values that processes know."""
        self._value = self._best(value for value in known if value is not None)

    def improves(self, logs: Mapping[str, float], names: Collection[str]) -> bool:
        """Returns True if the logs hold a new best value, and notes the value.

        Args:
            logs: the values that are finite numbers.
            names: names of all values.
        """
        if self._monitor is None:
            return False
        value = logs.get(self._monitor)
        if value is None:
            if not self._has_warned and self._monitor not in names:
                self._has_warned = True
                told = ", ".join(sorted(logs)) or "no number"
                rule = "`monitor` must be among the logs, which hold %s. Received: monitor=%r"
                _logger.warning(rule, told, self._monitor)
            return False
        if self._value is not None and self._key(value) <= self._key(self._value):
            return False
        self._value = value
        return True

    def _best(self, values):
        return max(values, key=self._key, default=None)

    def _key(self, value):
        return self._sign * value

    def _values(self):
        values = {}
        if self._monitor is None:
            return values
        for path in files.find(self._folder):
            with contextlib.suppress(ValueError, OSError):
                value = files.describe(path).logs.get(self._monitor)
                if value is not None:
                    values[path] = value
        return values
