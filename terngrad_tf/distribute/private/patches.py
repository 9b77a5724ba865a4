"""Lists the functions of TensorFlow and Keras that are replaced, and installs the replacements.

All are installed together, after a check of the installed releases. A replacement behaves like the
stock function unless a strategy or an op of this package is in use.
"""

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf import releases

_ABSENT = object()
# Owner, name and the owner's own attribute.
_replaced = []


@dataclasses.dataclass(frozen=True)
class Patch:
    """A function of TensorFlow or Keras that is replaced.

    Attributes:
        owner: module or class.
        replacement: gets the stock function, then its arguments. Both have the same parameters;
            `*args` stands for any more. The docstring gives the reason for the replacement.
    """

    owner: typing.Any
    name: str
    replacement: typing.Callable

    def check(self) -> None:
        """Raises RuntimeError if the function is missing or has other parameters."""
        stock = getattr(self.owner, self.name, None)
        found = list(inspect.signature(stock).parameters) if stock else ["nothing of this name"]
        _, *expected = inspect.signature(self.replacement).parameters
        if "args" in expected:
            expected = expected[: expected.index("args")]
            found = found[: len(expected)]
        if found != expected:
            what = (
                f"`{self.owner.__name__}.{self.name}` must take {', '.join(expected)}."
                f" Received: {', '.join(found)}"
            )
            raise RuntimeError(releases.untested(tf.__version__, keras.__version__, what))

    def replaced(self) -> Callable[..., Any]:
        """Returns the function that replaces the stock function."""
        stock = getattr(self.owner, self.name)

        @functools.wraps(stock)
        def function(*args, **kwargs):
            return self.replacement(stock, *args, **kwargs)

        return function


_Function = typing.TypeVar("_Function", bound=Callable[..., Any])

manifest: list[Patch] = []


def patch(owner: Any, *names: str) -> Callable[[_Function], _Function]:
    """Returns a decorator that enters a function into the manifest, once per name: see `Patch`."""

    def enter(replacement):
        manifest.extend(Patch(owner, name, replacement) for name in names)
        return replacement

    return enter


def install_patches() -> None:
    """Replaces all functions of the manifest, unless they are replaced already.

    Raises:
        RuntimeError: a release of TensorFlow or Keras does not fit. Nothing is replaced.
    """
    if _replaced:
        return
    for entry in manifest:
        entry.check()
    for entry in manifest:
        _replaced.append((entry.owner, entry.name, vars(entry.owner).get(entry.name, _ABSENT)))
        setattr(entry.owner, entry.name, entry.replaced())


def uninstall_patches() -> None:
    """Puts everything back."""
    while _replaced:
        owner, name, own = _replaced.pop()
        if own is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, own)
