"""TensorFlow, loaded when it is first used."""

import contextlib
import importlib
import sys

from slim_data.common import captured_stderr


class _LazyModule:
    """Stands for a module; the first attribute asked for imports it."""

    def __init__(self, name):
        self._name = name
        self._is_quiet = False

    def __getattr__(self, attribute):
        is_first = self._name not in sys.modules
        hold = (
            captured_stderr.stderr_held_back
            if is_first and self._is_quiet
            else contextlib.nullcontext
        )
        with hold():
            module = importlib.import_module(self._name)
        return getattr(module, attribute)

    def load_quietly(self):
        """Keeps what the module writes while it loads from the terminal; for programs."""
        self._is_quiet = True


# `import tensorflow` imports Keras as well, and takes seconds that `--help`, a wrong folder or
# a search for files need not wait for.
tf = _LazyModule("tensorflow")
