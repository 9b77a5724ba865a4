"""Tags for TensorBoard, which groups them by the part before the first "/", in alphabetical order,
and opens the first two groups, accuracies and losses.
"""

# Shares of examples whose class has the largest, or one of the five largest logits. Evaluations and
# training share the tags, so that TensorBoard draws both into one chart.
PRECISION_AT_1 = "accuracy/precision_at_1"
RECALL_AT_5 = "accuracy/recall_at_5"
TOTAL_LOSS = "loss/total"
CROSS_ENTROPY = "loss/cross_entropy"
REGULARIZATION = "loss/regularization"
LEARNING_RATE = "optimizer/learning_rate"
EXAMPLES_PER_SECOND = "speed/examples_per_second"
# The first worker's speed.
WORKER_EXAMPLES_PER_SECOND = "speed/worker_examples_per_second"

RECEIVED_BYTES = "traffic/received_bytes"
COMPRESSION_RATIO = "traffic/compression_ratio"
# A text summary.
WIRE_CHOICES = "traffic/wire_choices"
# Asynchronous training.
PUSHED_BYTES = "traffic/pushed_bytes"
PULLED_BYTES = "traffic/pulled_bytes"
STALENESS = "traffic/staleness"

# Training in a subspace.
TRIALS = "subspace/trials"
FAILED_SEARCHES = "subspace/failed"

# Tags of `Telemetry`, and names of `StepTelemetry`.
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
    """Returns the tag of a smoothed loss.

    Example:
        >>> smoothed(TOTAL_LOSS)
        'loss/total_smoothed'
    """
    return f"{tag}_smoothed"


def component(number: int) -> str:
    """Returns the tag of a coordinate in a subspace, counted from 1."""
    return f"subspace/component_{number}"


def weights(path: str) -> str:
    """Returns the tag of a variable's histogram.

    Example:
        >>> weights("conv1/kernel")
        'weights/conv1/kernel'
    """
    return f"weights/{path}"


def ternary_sparsity(path: str) -> str:
    """Returns the tag of the share of zeros in a gradient's codes."""
    return f"ternary/{path}/sparsity"


def ternary_gradients(path: str) -> str:
    """Returns the tag of a ternary gradient's histogram."""
    return f"ternary/{path}/gradients"


def activations(layer: str) -> str:
    """Returns the tag of the histogram of a layer's output."""
    return f"outputs/{layer}/activations"


def activation_sparsity(layer: str) -> str:
    """Returns the tag of the share of zeros in a layer's output."""
    return f"outputs/{layer}/sparsity"


def wait_seconds(process: str) -> str:
    """Returns the tag of a process's waits per step."""
    return f"speed/wait_seconds/{process}"
