"""Libraries that load without looks for garbage."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Python looks for no garbage in this context, nor ever among what there is at its end.

    For programs: a library that loads makes a million objects that stay. Looking at them again and
    again is a third of the time in which TensorFlow and Keras load and go.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
