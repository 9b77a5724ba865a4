"""Counts correct predictions of a network."""

import dataclasses
import math
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.training.log import log

PROGRESS_FREQ = 100


@dataclasses.dataclass(frozen=True)
class Hits:
    """Correct predictions of a network.

    Args:
        at_1, at_5: numbers of examples whose class has the largest logit, or one of the five
            largest.
        loss: sum of cross-entropies, without weight decay or label smoothing; infinite if the
            network lacks a class.
        by_class: int64 array [classes, 2]: examples of each class, and those in `at_1`.
    """

    at_1: int
    at_5: int
    seen: int
    loss: float
    by_class: np.ndarray


def count_hits(
    model: keras.Model,
    examples: tf.data.Dataset,
    wanted: int,
    batch_size: int,
    look: Callable[[tf.Tensor], None],
) -> Hits:
    """Counts correctly classified examples and logs the progress.

    Args:
        model: returns logits, the prediction first.
        look: function called with the images of the first batch.
    """

    @tf.function
    def hits(images, labels):
        # Further outputs are for training.
        first = tf.nest.flatten(model(images, training=False))[0]
        logits = tf.cast(first, tf.float32)
        at_1, at_5 = (tf.math.in_top_k(labels, logits, k=k) for k in (1, 5))
        # Of equal logits, the first is the prediction, as for Keras' accuracy.
        at_1 &= tf.argmax(logits, axis=1, output_type=tf.int32) == labels
        at_1, at_5 = tf.cast(at_1, tf.int64), tf.cast(at_5, tf.int64)
        # A class without an output is never predicted.
        known = labels < logits.shape[1]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.where(known, labels, 0), logits)
        losses = tf.where(known, losses, math.inf)
        by_class = tf.math.unsorted_segment_sum(
            tf.stack([tf.ones_like(at_1), at_1], axis=1),
            tf.where(known, labels, -1),
            logits.shape[1],
        )
        sums = tf.reduce_sum(at_1), tf.reduce_sum(at_5), tf.reduce_sum(tf.cast(losses, tf.float64))
        return *sums, by_class

    # Traced once for any batch size: the last batch may be smaller.
    hits = hits.get_concrete_function(
        tf.TensorSpec([None, *model.input_shape[1:]], tf.float32), tf.TensorSpec([None], tf.int32)
    )
    num_batches = math.ceil(wanted / batch_size)
    at_1 = at_5 = seen = told = told_batch = 0
    loss, by_class = 0.0, 0
    since = time.perf_counter()
    for batch, (images, labels) in enumerate(examples.take(num_batches), start=1):
        left = wanted - seen
        if batch == 1:
            look(images[:left])
        one, five, losses, classes = hits(images[:left], labels[:left])
        at_1, at_5, loss = at_1 + int(one), at_5 + int(five), loss + float(losses)
        by_class += classes.numpy()
        seen += min(left, int(labels.shape[0]))
        if batch % PROGRESS_FREQ == 0 or batch == num_batches:
            seconds = time.perf_counter() - since
            log(
                f"[{batch} batches out of {num_batches}] "
                f"({(seen - told) / seconds:.1f} examples/sec; "
                f"{seconds / (batch - told_batch):.3f}sec/batch)"
            )
            since, told, told_batch = time.perf_counter(), seen, batch
    return Hits(at_1, at_5, seen, loss, np.asarray(by_class))
