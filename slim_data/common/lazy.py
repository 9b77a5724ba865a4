"""TensorFlow, loaded at first use.

`importlib.util.LazyLoader` puts the module into `sys.modules` before loading, where other code
looks for it, and cannot capture messages of the loading.
"""

import importlib
import sys
import typing

from slim_data.common.captured_stderr import capture_stderr
from slim_data.common.uncollected import without_collections


class _LazyModule:
    """Stands for a module and imports it at the first attribute access."""

    def __init__(self, name):
        self._name = name
        self._is_for_program = False

    def __getattr__(self, attribute):
        if self._name in sys.modules or not self._is_for_program:
            return getattr(importlib.import_module(self._name), attribute)
        with capture_stderr(), without_collections():
            return getattr(importlib.import_module(self._name), attribute)

    def load_for_program(self):
        """Hides messages of the loading and speeds it up; call it before the first use."""
        self._is_for_program = True


# `import tensorflow` takes seconds, which `--help`, a wrong folder or a search for files do not
# need.
if typing.TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = _LazyModule("tensorflow")
