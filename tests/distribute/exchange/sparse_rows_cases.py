"""Sparse gradients that tests exchange in one process or, as a program, in a cluster."""

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.distribute import Quantization, TernGradStrategy
from tests.distribute import processes

ROWS, WIDTH = 200, 16


def positions_of(replica):
    """Positions of a replica's rows; some repeat, and their number depends on the replica."""
    return np.random.default_rng(replica).integers(0, 40, 5 + 6 * replica)


def rows_of(replica):
    return (
        np.random.default_rng(100 + replica)
        .normal(size=(len(positions_of(replica)), WIDTH))
        .astype(np.float32)
    )


def sums(num_replicas, rows=ROWS):
    """The sum of all replicas' rows."""
    total = np.zeros([rows, WIDTH])
    for replica in range(num_replicas):
        np.add.at(total, positions_of(replica), rows_of(replica))
    return total


def take_steps(strategy, count=1, rows=ROWS, optimizer=None, start=0, change=lambda rows: rows):
    """Takes steps of SGD with rate 1, or of the optimizer that a function makes.

    Returns:
        The change of the table in each step, and the table.
    """
    with strategy.scope():
        table = keras.Variable(tf.zeros([rows, WIDTH]))
        optimizer = optimizer() if optimizer else keras.optimizers.SGD(1.0)
        optimizer.build([table])
    optimizer.iterations.assign(start)
    num_replicas = strategy.num_replicas_in_sync
    positions = tf.ragged.constant([positions_of(k).tolist() for k in range(num_replicas)])
    values = tf.ragged.constant(
        [change(rows_of(k)).tolist() for k in range(num_replicas)], ragged_rank=1
    )

    @tf.function
    def step():
        def replica():
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            shape = tf.constant([rows, WIDTH], tf.int64)
            slices = tf.IndexedSlices(values[number], tf.cast(positions[number], tf.int64), shape)
            optimizer.apply([slices], [table])

        strategy.run(replica)

    changes = []
    for _ in range(count):
        table.assign(tf.zeros([rows, WIDTH]))
        step()
        changes.append(-table.numpy())
    return changes, table


def work(config):
    """Results of a process: rows, finer codes, floats, and float steps before ternary ones."""
    results = {}
    for name, options in (
        ("rows", {}),
        ("finer", {"grad_bits": 8}),
        ("float", {"grad_bits": 32}),
        ("steps", {"quantization": Quantization(float_steps=lambda step: step < 1)}),
    ):
        strategy = TernGradStrategy(2, **options)
        changes, _ = take_steps(strategy, 2)
        results[name] = np.stack(changes)
        traffic = strategy.traffic
        results[f"{name}/bytes"] = np.array([traffic.received_bytes, traffic.float32_bytes])
    strategy = TernGradStrategy(2)
    results["whole"] = np.stack(take_steps(strategy, 1, rows=40)[0])
    results["whole/bytes"] = np.array(strategy.traffic.received_bytes)
    return results


if __name__ == "__main__":
    processes.main({"work": work})
