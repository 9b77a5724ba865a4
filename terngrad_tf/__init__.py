"""TernGrad and dimension-reduction training for TensorFlow 2 and Keras 3.

Names load at first use: programs that only print their help do not load TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING, Any

from terngrad_tf.version import __version__

if TYPE_CHECKING:  # what editors read
    from terngrad_tf.checkpoints import Checkpoint
    from terngrad_tf.distribute import (
        AbsAdam,
        ClusterOptions,
        DiLoCo,
        Quantization,
        Telemetry,
        TernaryAllReduce,
        TernGradStrategy,
        Traffic,
        advise,
    )
    from terngrad_tf.subspace import (
        SnapshotCheckpoint,
        Subspace,
        SubspaceBFGS,
        SubspaceModel,
        SubspaceSGD,
    )

_ORIGINS = {
    "AbsAdam": "terngrad_tf.distribute",
    "Checkpoint": "terngrad_tf.checkpoints",
    "ClusterOptions": "terngrad_tf.distribute",
    "DiLoCo": "terngrad_tf.distribute",
    "Quantization": "terngrad_tf.distribute",
    "SnapshotCheckpoint": "terngrad_tf.subspace",
    "Subspace": "terngrad_tf.subspace",
    "SubspaceBFGS": "terngrad_tf.subspace",
    "SubspaceModel": "terngrad_tf.subspace",
    "SubspaceSGD": "terngrad_tf.subspace",
    "Telemetry": "terngrad_tf.distribute",
    "TernGradStrategy": "terngrad_tf.distribute",
    "TernaryAllReduce": "terngrad_tf.distribute",
    "Traffic": "terngrad_tf.distribute",
    "advise": "terngrad_tf.distribute",
}
_SUBPACKAGES = ("checkpoints", "distribute", "models", "subspace", "ternary", "training")

__all__ = [*_ORIGINS, "__version__", *_SUBPACKAGES]  # pyright: ignore[reportUnsupportedDunderAll] (one list is enough)


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"terngrad_tf.{name}")
    if name in _ORIGINS:
        return getattr(importlib.import_module(_ORIGINS[name]), name)
    raise AttributeError(f"module 'terngrad_tf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
