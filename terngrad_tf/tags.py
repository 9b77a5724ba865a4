"""Names of all that is written for TensorBoard, which shows what stands before the first "/" as a
group, in the order of their names. It opens the first two, which are accuracies and losses.
"""

# The share of the examples whose class has the largest logit, of the five largest ones. Evaluations
# have the same tags as training, so that TensorBoard draws both into one chart.
PRECISION_AT_1 = "accuracy/precision_at_1"
RECALL_AT_5 = "accuracy/recall_at_5"
TOTAL_LOSS = "loss/total"
CROSS_ENTROPY = "loss/cross_entropy"
REGULARIZATION = "loss/regularization"
LEARNING_RATE = "optimizer/learning_rate"
EXAMPLES_PER_SECOND = "speed/examples_per_second"
# The first worker's own, of a cluster.
WORKER_EXAMPLES_PER_SECOND = "speed/worker_examples_per_second"

RECEIVED_BYTES = "traffic/received_bytes"
COMPRESSION_RATIO = "traffic/compression_ratio"
# A text.
WIRE_CHOICES = "traffic/wire_choices"
# Asynchronous training.
PUSHED_BYTES = "traffic/pushed_bytes"
PULLED_BYTES = "traffic/pulled_bytes"
STALENESS = "traffic/staleness"

# Training in a subspace.
TRIALS = "subspace/trials"
FAILED_SEARCHES = "subspace/failed"

# Tags of `Telemetry`, with the names that a `StepTelemetry` has for them.
TELEMETRY = {
    f"{group}/{name}": name
    for group, names in (
        ("traffic", ("sent_bytes", "received_bytes", "compression_ratio", "bits_per_element")),
        ("ternary", ("nonzero_share", "cosine", "relative_error")),
        (
            "speed",
            (
                "step_seconds",
                "scale_seconds",
                "encode_seconds",
                "exchange_seconds",
                "decode_seconds",
                "rest_seconds",
            ),
        ),
    )
    for name in names
}


def smoothed(tag: str) -> str:
    """The tag of a smoothed loss.

    Example:
        >>> smoothed(TOTAL_LOSS)
        'loss/total_smoothed'
    """
    return f"{tag}_smoothed"


def component(number: int) -> str:
    """The tag of a coordinate in a subspace; `number` counts from 1."""
    return f"subspace/component_{number}"


def weights(path: str) -> str:
    """The tag of a variable's histogram.

    Example:
        >>> weights("conv1/kernel")
        'weights/conv1/kernel'
    """
    return f"weights/{path}"


def ternary_sparsity(path: str) -> str:
    """The tag of the share of zeros in the codes of a variable's gradient."""
    return f"ternary/{path}/sparsity"


def ternary_gradients(path: str) -> str:
    """The tag of the histogram of a variable's ternary gradient."""
    return f"ternary/{path}/gradients"


def activations(layer: str) -> str:
    """The tag of the histogram of what a layer gives."""
    return f"outputs/{layer}/activations"


def activation_sparsity(layer: str) -> str:
    """The tag of the share of zeros in what a layer gives."""
    return f"outputs/{layer}/sparsity"


def wait_seconds(process: str) -> str:
    """The tag of how long a process of a cluster waits in a step."""
    return f"speed/wait_seconds/{process}"
