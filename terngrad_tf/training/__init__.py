"""Parts that all programs share: training, evaluation, run folders, optimizers, schedules.

Names are loaded at first use, so that programs that only print their help, which comes from the
configurations, do not load TensorFlow.
"""

import importlib
from typing import Any

_ORIGINS = {
    "CheckpointConfig": "run_config",
    "ClusterConfig": "run_config",
    "GradientConfig": "run_config",
    "RunConfig": "run_config",
    "SnapshotConfig": "run_config",
    "TrainConfig": "run_config",
    "TrainingDataConfig": "data_config",
    "ModelConfig": "model_config",
    "OptimizerConfig": "model_config",
    "EvalConfig": "eval_config",
    "EvalDataConfig": "eval_config",
    "BasisConfig": "subspace_config",
    "SubspaceConfig": "subspace_config",
    "SubspaceDataConfig": "subspace_config",
    "SubspaceGradientConfig": "subspace_config",
    "SubspaceOptimizerConfig": "subspace_config",
    "AverageConfig": "snapshot_average_config",
    "DivergedError": "errors",
    "UserError": "errors",
    "PreemptedError": "cluster",
    "as_user_error": "errors",
    "EvalResult": "evaluator",
    "evaluate": "evaluator",
    "SubspaceResult": "subspace_trainer",
    "train_in_subspace": "subspace_trainer",
    "average_run": "snapshot_average",
    "TrainResult": "trainer",
    "train": "trainer",
    "serve_parameters": "async_trainer",
    "train_async": "async_trainer",
}

__all__ = [*_ORIGINS]  # pyright: ignore[reportUnsupportedDunderAll] (one list is enough)


def __getattr__(name: str) -> Any:
    if name in _ORIGINS:
        return getattr(importlib.import_module(f"terngrad_tf.training.{_ORIGINS[name]}"), name)
    raise AttributeError(f"module 'terngrad_tf.training' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
