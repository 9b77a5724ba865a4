"""Contains every use of TensorFlow's and Keras' private modules, each with its reason.

Nothing else in the package may import `tensorflow.python.*` or `keras.src.*` (a test enforces it).
If a release moves a name, `tests/distribute/private/private_test.py` fails instead of a training
step.

No public way exists for these:

* Strategies for local and clustered devices: `tf.distribute` has no public base class.
* Collectives beyond all-reduce sum (max, all-gather of equal shapes, all-to-all).
* Replaced functions of Keras and TensorFlow: see `patches`.
"""

# Imported for its entries in the manifest of patches.
from terngrad_tf.distribute.private import saved_files  # noqa: F401
from terngrad_tf.distribute.private.collectives.local_weights import LocalWeights
from terngrad_tf.distribute.private.collectives.process_group import (
    ProcessGroup,
    communication_options,
    publish,
    published,
    report_error,
)
from terngrad_tf.distribute.private.collectives.stamps import stamped
from terngrad_tf.distribute.private.data.agreed_seeds import seed_alike, unseeded_generators
from terngrad_tf.distribute.private.holders import held_by, layers_in_order, layers_of, parts_of
from terngrad_tf.distribute.private.keras import (  # noqa: F401
    callback_lists,
    single_batches,
    trained_factors,
)
from terngrad_tf.distribute.private.keras.keras_calls import agreed_variables, compiled_with
from terngrad_tf.distribute.private.keras.keras_optimizers import sum_gradients, sum_of_replicas
from terngrad_tf.distribute.private.keras.keras_training import (
    in_keras_step,
    keras_step,
)
from terngrad_tf.distribute.private.keras.losses import unscale_loss
from terngrad_tf.distribute.private.keras.resuming import (
    exit_after_fit,
    forget_resumed,
    optimizers_used_by,
    positions_of_trained,
    resume_fit,
)
from terngrad_tf.distribute.private.keras.rounding_noise import noise_variables
from terngrad_tf.distribute.private.keras.scopes import watch_scope
from terngrad_tf.distribute.private.keras.step_results import losses_as_parts
from terngrad_tf.distribute.private.patches import install_patches, uninstall_patches
from terngrad_tf.distribute.private.replicas import padded_reductions  # noqa: F401
from terngrad_tf.distribute.private.replicas.accumulators import (
    accumulators_of,
    updating_optimizers,
)
from terngrad_tf.distribute.private.replicas.devices import (
    cluster_is_joined,
    counts_once,
    devices_are_initialized,
    devices_are_unknown,
    devices_of_replicas,
    local_tensors,
    mirrored,
    per_replica,
    variable_paths,
)
from terngrad_tf.distribute.private.replicas.merging import merge
from terngrad_tf.distribute.private.replicas.padding import (
    NO_PADDING,
    current_padding,
    mask_gradients,
    padded_replica,
)
from terngrad_tf.distribute.private.replicas.replicas import merges_in_xla_context
from terngrad_tf.distribute.private.replicas.step_checks import assert_on_host
from terngrad_tf.distribute.private.strategies import (  # noqa: F401
    device_buffers,
    keras_variables,
)
from terngrad_tf.distribute.private.strategies.cluster_strategy import TernGradClusterExtended
from terngrad_tf.distribute.private.strategies.cross_device_ops import (
    ExactCrossDeviceOps,
    gradient_ops,
)
from terngrad_tf.distribute.private.strategies.strategies import TernGradLocalExtended, is_own

__all__ = [
    "NO_PADDING",
    "ExactCrossDeviceOps",
    "LocalWeights",
    "ProcessGroup",
    "TernGradClusterExtended",
    "TernGradLocalExtended",
    "accumulators_of",
    "agreed_variables",
    "assert_on_host",
    "cluster_is_joined",
    "communication_options",
    "compiled_with",
    "counts_once",
    "current_padding",
    "devices_are_initialized",
    "devices_are_unknown",
    "devices_of_replicas",
    "exit_after_fit",
    "forget_resumed",
    "gradient_ops",
    "in_keras_step",
    "install_patches",
    "is_own",
    "keras_step",
    "held_by",
    "layers_in_order",
    "layers_of",
    "parts_of",
    "local_tensors",
    "losses_as_parts",
    "mask_gradients",
    "merge",
    "merges_in_xla_context",
    "mirrored",
    "noise_variables",
    "optimizers_used_by",
    "padded_replica",
    "per_replica",
    "positions_of_trained",
    "publish",
    "published",
    "report_error",
    "resume_fit",
    "seed_alike",
    "stamped",
    "sum_gradients",
    "sum_of_replicas",
    "uninstall_patches",
    "unscale_loss",
    "unseeded_generators",
    "updating_optimizers",
    "variable_paths",
    "watch_scope",
]
