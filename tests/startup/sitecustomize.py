"""Makes tests, and the programs that they start, start faster.

Python imports a module of this name at its start; `tests/conftest.py` puts its folder on
PYTHONPATH. The import of TensorFlow and Keras takes half the time, and tests start many processes.
"""

import atexit
import gc
import importlib.abc
import sys


class _KerasByItself(importlib.abc.MetaPathFinder):
    """Hides optional packages from Keras during its import; others may import them later."""

    def find_spec(self, fullname, path=None, target=None):
        """Raises for some packages while Keras is imported, as if they were not installed."""
        if fullname in ("sklearn", "matplotlib"):
            spec = getattr(sys.modules.get("keras"), "__spec__", None)
            if getattr(spec, "_initializing", False):
                raise ModuleNotFoundError(f"{fullname} is hidden from Keras", name=fullname)


sys.meta_path.insert(0, _KerasByItself())

# Collecting garbage among TensorFlow's many objects takes a tenth of the tests' time.
gc.freeze()
gc.set_threshold(100_000, 50, 100)
atexit.register(gc.freeze)
