"""Every use of TensorFlow's and Keras' private modules, each with the reason.

Nothing else in the package may import `tensorflow.python.*` or `keras.src.*` (a test enforces it).
`tests/distribute/private_test.py` pins each name used here, so that a release that moves one fails
there, with its name, and not inside a training step.

What is needed, and why no public way exists:

* Strategies for local and clustered devices: `tf.distribute` has no public base class to build on.
* Collectives beyond all-reduce sum (max, all-gather of equal shapes, all-to-all) have no public op.
* Keras optimizers reduce gradients in a private method; it is the only place where gradients can be
  told from metrics, losses and batch-norm moments, which use the same `all_reduce`.
* Gaps of Keras 3 under `tf.distribute`: see `install_keras_hooks`.
"""

from terngrad_tf.distribute.private.cross_device_ops import ExactCrossDeviceOps, gradient_ops
from terngrad_tf.distribute.private.devices import (
    cluster_is_joined,
    devices_are_initialized,
    in_xla_context,
    is_distributed,
    local_tensors,
    mirrored,
    stop_tuning_device_datasets,
)
from terngrad_tf.distribute.private.keras_hooks import (
    in_keras_step,
    install_keras_hooks,
    keras_step,
    unscale_loss,
)
from terngrad_tf.distribute.private.keras_optimizers import (
    mask_gradients,
    padded_replica,
    padding_of_replica,
    replica_is_empty,
    sum_gradients,
)
from terngrad_tf.distribute.private.process_group import (
    ProcessGroup,
    communication_options,
    publish,
    published,
    report_error,
)
from terngrad_tf.distribute.private.scopes import scope_entered, watch_scope
from terngrad_tf.distribute.private.strategies import (
    TernGradClusterExtended,
    TernGradLocalExtended,
)

__all__ = [
    "ExactCrossDeviceOps",
    "ProcessGroup",
    "TernGradClusterExtended",
    "TernGradLocalExtended",
    "cluster_is_joined",
    "communication_options",
    "devices_are_initialized",
    "gradient_ops",
    "in_keras_step",
    "in_xla_context",
    "install_keras_hooks",
    "is_distributed",
    "keras_step",
    "local_tensors",
    "mask_gradients",
    "mirrored",
    "padded_replica",
    "padding_of_replica",
    "publish",
    "published",
    "replica_is_empty",
    "report_error",
    "scope_entered",
    "stop_tuning_device_datasets",
    "sum_gradients",
    "watch_scope",
    "unscale_loss",
]
