"""TensorFlow, loaded when it is first used.

`importlib.util.LazyLoader` would put the module into `sys.modules` before it is loaded, where other
code looks for it, and leaves no place to capture what TensorFlow writes while it loads.
"""

import importlib
import sys
import typing

from slim_data.common.captured_stderr import capture_stderr
from slim_data.common.uncollected import without_collections


class _LazyModule:
    """Stands for a module; the first attribute asked for imports it."""

    def __init__(self, name):
        self._name = name
        self._is_for_program = False

    def __getattr__(self, attribute):
        if self._name in sys.modules or not self._is_for_program:
            return getattr(importlib.import_module(self._name), attribute)
        with capture_stderr(), without_collections():
            return getattr(importlib.import_module(self._name), attribute)

    def load_for_program(self):
        """Keeps what the module writes while it loads from the terminal, and loads it sooner."""
        self._is_for_program = True


# `import tensorflow` imports Keras as well, and takes seconds that `--help`, a wrong folder or
# a search for files need not wait for.
if typing.TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = _LazyModule("tensorflow")
