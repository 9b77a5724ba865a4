"""Settings of callbacks that all processes must share: those that stop training or change its rate.

Others may be on the chief only.
"""

import dis
import functools
import inspect
import types
from collections.abc import Iterable, Iterator
from typing import Any

import keras

from terngrad_tf.distribute.consistency.descriptions import describe

# If set, training changes.
_STORED = {"stop_training", "learning_rate", "_initial_epoch"}
# Arguments that name files or processes, or change only logs.
_FILES = ("dir", "path", "file", "filename")
_LEFT_OUT = {"verbose", "rank", "is_chief", "process_index", "task_index", "worker_index", "name"}


def callback_settings(callbacks: Any) -> dict[str, Any]:
    """Returns classes and arguments of the callbacks, as in `fit`, that change training, by class.

    Example:
    >>> stop = keras.callbacks.LearningRateScheduler(abs)
    >>> callback_settings([keras.callbacks.CSVLogger("log.csv"), stop])
    {'LearningRateScheduler': 'given', 'LearningRateScheduler.schedule': 'abs'}
    """
    settings = {}
    for callback in flat_callbacks(callbacks):
        if _changes(callback):
            settings |= _settings(callback, settings)
    return settings


def flat_callbacks(callbacks: Any) -> list[Any]:
    """Returns the callbacks in the argument of `fit`."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks = callbacks.callbacks
    return [callback for callback in keras.tree.flatten(callbacks) if callback is not None]


def _settings(callback, before):
    """Returns a callback's class and the constructor's arguments that it stores."""
    name = type(callback).__name__
    while name in before:
        name = f"another {name}"
    kept, found = vars(callback), {name: "given"}
    for argument in inspect.signature(type(callback)).parameters:
        is_file = argument.endswith(_FILES)
        if argument in kept and argument not in _LEFT_OUT and not is_file:
            value = describe(kept[argument])
            if not isinstance(value, dict | list):
                found[f"{name}.{argument}"] = value
    return found


def _changes(callback) -> bool:
    # Set on callbacks whose processes wait for each other.
    if getattr(callback, "runs_on_all_processes", False):
        return True
    own = (v for v in vars(callback).values() if isinstance(v, types.FunctionType))
    return _class_changes(type(callback)) or any(_code_changes(f.__code__) for f in own)


@functools.cache
def _class_changes(cls) -> bool:
    stock = keras.callbacks.Callback
    classes = [c for c in cls.__mro__ if c not in stock.__mro__]
    return any(_code_changes(code) for code in _codes(classes))


def _codes(classes: Iterable[type]) -> Iterator[types.CodeType]:
    for cls in classes:
        for member in vars(cls).values():
            function = inspect.unwrap(getattr(member, "__func__", member))
            if isinstance(function, types.FunctionType):
                yield function.__code__


def _code_changes(code):
    instructions = list(dis.get_instructions(code))
    stored = {i.argval for i in instructions if i.opname == "STORE_ATTR"}
    if stored & _STORED or {"learning_rate", "assign"} <= set(code.co_names):
        return True
    # As in `setattr(self.model, "stop_training", True)`.
    if "setattr" in code.co_names and _STORED.intersection(code.co_consts):
        return True
    return any(_code_changes(c) for c in code.co_consts if isinstance(c, types.CodeType))
