"""Asynchronous training with parameter servers.

Names load at first use: programs that only print their help do not load TensorFlow.
"""

import importlib
from typing import Any

_ORIGINS = {
    "serve_parameters": "trainer",
    "train_async": "trainer",
}

__all__ = [*_ORIGINS]  # pyright: ignore[reportUnsupportedDunderAll] (one list is enough)


def __getattr__(name: str) -> Any:
    if name in _ORIGINS:
        return getattr(
            importlib.import_module(f"terngrad_tf.parameter_server.{_ORIGINS[name]}"), name
        )
    raise AttributeError(f"module 'terngrad_tf.parameter_server' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
