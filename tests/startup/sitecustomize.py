"""What Python does first in tests and in all programs that they start, so that these start sooner.

Python imports a module of this name when it starts, and `tests/conftest.py` puts its folder on
PYTHONPATH. The import of TensorFlow and Keras takes half the time, and tests start many processes.
"""

import atexit
import gc
import importlib.abc
import sys


class _KerasByItself(importlib.abc.MetaPathFinder):
    """Keeps from Keras what it imports only if that is installed; others may import it later."""

    def find_spec(self, fullname, path=None, target=None):
        """Fails for some packages while Keras is imported, as if they were not installed."""
        if fullname in ("sklearn", "matplotlib"):
            spec = getattr(sys.modules.get("keras"), "__spec__", None)
            if getattr(spec, "_initializing", False):
                raise ModuleNotFoundError(f"{fullname} is hidden from Keras", name=fullname)


sys.meta_path.insert(0, _KerasByItself())

# Looks for garbage among all that TensorFlow is made of are a tenth of the tests' time.
gc.freeze()
gc.set_threshold(100_000, 50, 100)
atexit.register(gc.freeze)
