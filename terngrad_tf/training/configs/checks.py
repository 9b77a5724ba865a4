"""Rules of options, each a function of an option's name and value that raises `UserError`."""

import dataclasses
import os
from collections.abc import Callable, Collection
from typing import Any

from terngrad_tf.training.errors import require

_PATTERN = set("*?[]\\")


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers from `least` to `most`, or `also`; `above` and `below` exclude the bounds."""

    least: int
    most: int
    above: bool = False
    below: bool = False
    also: int | None = None
    integer: bool = False

    def __call__(self, name: str, value: Any) -> None:
        """Raises UserError unless the value is in the range."""
        kinds = int if self.integer else (int, float)
        right = isinstance(value, kinds) and not isinstance(value, bool)
        # A NaN is in no range.
        right = right and (
            value == self.also
            or (self.least < value if self.above else self.least <= value)
            and (value < self.most if self.below else value <= self.most)
        )
        require(right, name, f"must be {self}", value)

    def __str__(self) -> str:
        also = "" if self.also is None else f" or {self.also}"
        if self.least == self.most:
            return f"{self.least}{also}"
        kind = "an integer" if self.integer else "a number"
        least = f"{'above' if self.above else 'of at least'} {self.least}"
        most = f"{'below' if self.below else 'at most'} {self.most}"
        return f"{kind} {least} and {most}{also and ',' + also}"


def integers(least: int, most: int, also: int | None = None) -> Range:
    """Returns the `Range` of integers from `least` to `most`."""
    return Range(least, most, also=also, integer=True)


# Enough for every computer, and representable on every computer.
COUNT = integers(1, 2**31 - 1)
COUNT_OR_0 = integers(0, 2**31 - 1)
THREADS = integers(1, 1024)
WORKERS = integers(1, 4096)
BATCH = integers(1, 2**20)
PIXELS = integers(1, 2**14)
SEED = integers(-(2**31), 2**31 - 1)
# The shuffle buffer holds 1024 times this number of records, at 24 bytes plus the record.
BUFFER = integers(1, 2**14)
SECONDS = Range(0, 10**9)
EPOCHS = Range(0, 10**6)
FACTOR = Range(0, 10**6)


def one_of(values: Collection[str]) -> Callable[[str, Any], None]:
    """Returns a check that a value is one of `values`."""

    def check(name, value):
        require(value in values, name, f"must be one of {', '.join(values)}", value)

    return check


def path(name: str, value: str | os.PathLike) -> None:
    """Raises UserError unless the value is a path."""
    text = os.fspath(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        rule = "text in UTF-8"
    else:
        rule = "a path without zero bytes" if "\0" in text else None
    require(rule is None, name, f"must be {rule}", text)


def folder(name: str, value: str | os.PathLike) -> None:
    """Raises UserError for a path in which TensorFlow cannot find checkpoints.

    TensorFlow takes these characters for a pattern.
    """
    path(name, value)
    text = os.fspath(value)
    found = sorted(_PATTERN & set(text))
    rule = f"must be a path without {' '.join(found)}, which TensorFlow takes for a pattern"
    require(not found, name, rule, text)


# Checks of paths.
PATHS = (path, folder)
