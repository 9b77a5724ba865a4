"""The manifest of what is replaced in TensorFlow and Keras, and its installation.

A module of this package enters each function that it replaces with `patch`. All are installed
together, after the releases at hand were found to have every function in the form expected, and can
be uninstalled. A replacement does what the stock function does unless a strategy of this package,
or an op of it, is at work: other strategies of the process are left as they are.
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
# What `uninstall_patches` has to put back: owner, name and what the owner had of its own.
_replaced = []


@dataclasses.dataclass(frozen=True)
class Patch:
    """A function of TensorFlow or Keras that is replaced.

    Attributes:
        owner: module or class.
        name: name of the function in it.
        replacement: function that is called with the stock function and then with what that takes.
            Its parameters are those that the stock function must have, `*args` standing for any
            more; its docstring says why it is replaced.
    """

    owner: typing.Any
    name: str
    replacement: typing.Callable

    def check(self) -> None:
        """Raises RuntimeError where the function is missing or takes other parameters."""
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
        """The function that takes the place of the stock function."""
        stock = getattr(self.owner, self.name)

        @functools.wraps(stock)
        def function(*args, **kwargs):
            return self.replacement(stock, *args, **kwargs)

        return function


_Function = typing.TypeVar("_Function", bound=Callable[..., Any])

manifest: list[Patch] = []


def patch(owner: Any, *names: str) -> Callable[[_Function], _Function]:
    """Decorator that enters a function into the manifest: see `Patch`, one for each name."""

    def enter(replacement):
        manifest.extend(Patch(owner, name, replacement) for name in names)
        return replacement

    return enter


def install_patches() -> None:
    """Replaces all functions of the manifest, unless that was done.

    Raises:
        RuntimeError: a release of TensorFlow or Keras does not fit. Nothing is replaced then.
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
