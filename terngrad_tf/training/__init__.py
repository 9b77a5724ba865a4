"""What every program shares: training, evaluation, run folders, optimizers, schedules."""

from terngrad_tf.training.async_trainer import serve_parameters, train_async
from terngrad_tf.training.errors import DivergedError, UserError, as_user_error
from terngrad_tf.training.eval_options import EvalOptions
from terngrad_tf.training.evaluator import EvalResult, evaluate
from terngrad_tf.training.subspace_options import SubspaceOptions
from terngrad_tf.training.subspace_trainer import SubspaceResult, train_in_subspace
from terngrad_tf.training.train_options import TrainOptions
from terngrad_tf.training.trainer import TrainResult, train

__all__ = [
    "DivergedError",
    "EvalOptions",
    "EvalResult",
    "SubspaceOptions",
    "SubspaceResult",
    "TrainOptions",
    "TrainResult",
    "UserError",
    "as_user_error",
    "evaluate",
    "serve_parameters",
    "train",
    "train_async",
    "train_in_subspace",
]
