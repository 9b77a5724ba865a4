"""Phase 2: training in the subspace of a run's weight snapshots, and their average.

Names load at first use: programs that only print their help do not load TensorFlow.
"""

import importlib
from typing import Any

_ORIGINS = {
    "BasisConfig": "config",
    "SubspaceConfig": "config",
    "SubspaceDataConfig": "config",
    "SubspaceGradientConfig": "config",
    "SubspaceOptimizerConfig": "config",
    "AverageConfig": "snapshot_average_config",
    "SubspaceResult": "trainer",
    "train_in_subspace": "trainer",
    "average_run": "snapshot_average",
}

__all__ = [*_ORIGINS]  # pyright: ignore[reportUnsupportedDunderAll] (one list is enough)


def __getattr__(name: str) -> Any:
    if name in _ORIGINS:
        return getattr(importlib.import_module(f"terngrad_tf.phase_2.{_ORIGINS[name]}"), name)
    raise AttributeError(f"module 'terngrad_tf.phase_2' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
