"""Parts that all programs share: training, evaluation, run folders, optimizers, schedules.

Names load at first use: programs that only print their help do not load TensorFlow.
"""

import importlib
from typing import Any

_ORIGINS = {
    "CheckpointConfig": "configs.run_config",
    "ClusterConfig": "configs.run_config",
    "GradientConfig": "configs.run_config",
    "RunConfig": "configs.run_config",
    "SnapshotConfig": "configs.run_config",
    "TrainConfig": "configs.run_config",
    "TrainingDataConfig": "configs.data_config",
    "ModelConfig": "configs.model_config",
    "OptimizerConfig": "configs.model_config",
    "EvalConfig": "configs.eval_config",
    "EvalDataConfig": "configs.eval_config",
    "DivergedError": "errors",
    "UserError": "errors",
    "PreemptedError": "runs.cluster",
    "as_user_error": "errors",
    "EvalResult": "evaluation.evaluator",
    "evaluate": "evaluation.evaluator",
    "TrainResult": "runs.trainer",
    "train": "runs.trainer",
}

__all__ = [*_ORIGINS]  # pyright: ignore[reportUnsupportedDunderAll] (one list is enough)


def __getattr__(name: str) -> Any:
    if name in _ORIGINS:
        return getattr(importlib.import_module(f"terngrad_tf.training.{_ORIGINS[name]}"), name)
    raise AttributeError(f"module 'terngrad_tf.training' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
