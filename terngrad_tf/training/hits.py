"""How often a network is right."""

import math
import time

import tensorflow as tf

from terngrad_tf.training.log import log

PROGRESS_FREQ = 100


def count_hits(model, examples, wanted, batch_size, look):
    """Counts the examples whose class a network tells, and logs how far it is.

    Args:
        model: `keras.Model` that gives logits, the predictions first.
        examples: `tf.data.Dataset` of batches of images and labels.
        wanted: examples to look at, at most.
        batch_size: examples a batch.
        look: called with the images of the first batch.

    Returns:
        (hits at 1, hits at 5, examples seen).
    """

    @tf.function
    def hits(images, labels):
        # A network may have further outputs, for training.
        first = tf.nest.flatten(model(images, training=False))[0]
        logits = tf.cast(first, tf.float32)
        return [
            tf.math.count_nonzero(tf.math.in_top_k(labels, logits, k=k), dtype=tf.int64)
            for k in (1, 5)
        ]

    # Traced once, with the batch size left open: the last batch may be smaller.
    hits = hits.get_concrete_function(
        tf.TensorSpec([None, *model.input_shape[1:]], tf.float32), tf.TensorSpec([None], tf.int32)
    )
    num_batches = math.ceil(wanted / batch_size)
    at_1 = at_5 = seen = told = 0
    since = time.perf_counter()
    for batch, (images, labels) in enumerate(examples.take(num_batches), start=1):
        left = wanted - seen
        if batch == 1:
            look(images[:left])
        batch_at_1, batch_at_5 = hits(images[:left], labels[:left])
        at_1, at_5 = at_1 + int(batch_at_1), at_5 + int(batch_at_5)
        seen += min(left, int(labels.shape[0]))
        if batch % PROGRESS_FREQ == 0 or batch == num_batches:
            seconds = (time.perf_counter() - since) / (batch - told)
            log(
                f"[{batch} batches out of {num_batches}] "
                f"({batch_size / seconds:.1f} examples/sec; {seconds:.3f}sec/batch)"
            )
            since, told = time.perf_counter(), batch
    return at_1, at_5, seen
