"""Loads libraries without garbage collection."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Disables garbage collection in the context and exempts all objects that exist at its end.

    For programs: loading TensorFlow and Keras makes a million objects that stay, and collections
    would take a third of the time to load and exit.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
