"""TensorFlow, loaded when it is first used."""

import importlib


class _LazyModule:
    """Stands for a module; the first attribute asked for imports it."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        return getattr(importlib.import_module(self._name), attribute)


# `import tensorflow` imports Keras as well, and takes seconds that `--help`, a wrong folder or
# a search for files need not wait for.
tf = _LazyModule("tensorflow")
