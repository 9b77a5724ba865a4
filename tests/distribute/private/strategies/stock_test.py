"""Methods of `tf.distribute` give the same under the strategy and `MirroredStrategy`."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.distribute import TernGradStrategy

NUMBERS = np.array([1.0, 2.0], np.float32)
SUM, MEAN = tf.VariableAggregation.SUM, tf.VariableAggregation.MEAN
FIRST = tf.VariableAggregation.ONLY_FIRST_REPLICA
ON_READ = tf.VariableSynchronization.ON_READ


def values(strategy, function):
    return strategy.experimental_distribute_values_from_function(
        lambda context: function(context.replica_id_in_sync_group)
    )


def number(strategy):
    return values(strategy, lambda i: tf.constant(float(i)))


def run(strategy, function):
    """Each replica's result inside a `tf.function`."""
    result = tf.function(lambda: strategy.run(function))()
    return strategy.experimental_local_results(result)


def replica():
    return tf.distribute.get_replica_context()


def own():
    return tf.cast(replica().replica_id_in_sync_group, tf.float32) + 1.0


def all_reduce(op):
    return lambda s: run(s, lambda: replica().all_reduce(op, {"a": own(), "b": [own() * NUMBERS]}))


def written(method, **options):
    """A variable after each replica wrote its own number to it."""

    def case(strategy):
        with strategy.scope():
            variable = tf.Variable(1.0, **options)
        run(strategy, lambda: getattr(variable, method)(own()))
        return variable.numpy()

    return case


def updated(strategy):
    with strategy.scope():
        variable = tf.Variable(1.0)
    strategy.extended.update(variable, lambda v, x: v.assign_add(x), args=(2.0,))
    return variable.numpy()


CASES = {
    "all_reduce sum": all_reduce("SUM"),
    "all_reduce mean": all_reduce("MEAN"),
    "all_reduce max": lambda s: run(s, lambda: replica().all_reduce("MAX", own())),
    "all_gather": lambda s: run(s, lambda: replica().all_gather(own() * NUMBERS, 0)),
    "all_gather axis": lambda s: run(
        s, lambda: replica().all_gather(tf.reshape(own(), [1, 1]), -1)
    ),
    "merge_call": lambda s: run(
        s, lambda: replica().merge_call(lambda t, x: t.reduce("SUM", x, axis=None), args=(own(),))
    ),
    "run in run": lambda s: run(s, lambda: s.run(own)),
    "reduce in run": lambda s: run(s, lambda: s.reduce("SUM", own(), axis=None)),
    "reduce sum": lambda s: s.reduce("SUM", number(s), axis=None),
    "reduce mean": lambda s: s.reduce("MEAN", number(s), axis=None),
    "reduce rows": lambda s: s.reduce("MEAN", values(s, lambda i: tf.range(1.0 + i)), axis=0),
    "reduce axes": lambda s: s.reduce("SUM", values(s, lambda i: tf.ones([2, 1 + i])), (0, 1)),
    "reduce a tensor": lambda s: s.reduce("SUM", tf.constant(NUMBERS), axis=None),
    "reduce mean of a tensor": lambda s: s.reduce("MEAN", tf.constant(NUMBERS), axis=None),
    "reduce unknown": lambda s: s.reduce("MEDIAN", number(s), axis=None),
    "reduce a structure": lambda s: s.reduce("SUM", {"a": number(s)}, axis=None),
    "gather": lambda s: s.gather(values(s, lambda i: tf.ones([1 + i, 2])), axis=0),
    "python results": lambda s: [s.run(lambda: None), s.run(lambda: "a"), s.run(lambda: 3)],
    "local results": lambda s: s.experimental_local_results(number(s)),
    "assign_add sum": written("assign_add", aggregation=SUM),
    "assign mean": written("assign", aggregation=MEAN),
    "assign first": written("assign", aggregation=FIRST),
    "read sum": written("assign_add", synchronization=ON_READ, aggregation=SUM),
    "read mean": written("assign_add", synchronization=ON_READ, aggregation=MEAN),
    "read first": written("assign_add", synchronization=ON_READ, aggregation=FIRST),
    "update": updated,
    "devices": lambda s: [len(s.extended.worker_devices), len(s.extended.parameter_devices)],
}
# The stock strategy refuses these.
REFUSED = {"all_reduce max", "run in run", "reduce in run", "reduce a tensor", "reduce unknown"}


def outcome(case, strategy):
    """The numbers of a case, or the class of its error."""
    try:
        return tf.nest.map_structure(np.asarray, case(strategy))
    except Exception as error:
        return type(error).__name__


class StockTest(tf.test.TestCase):
    def test_every_case_ends_as_under_mirrored_strategy(self):
        stock = tf.distribute.MirroredStrategy(
            ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice()
        )
        for name, case in CASES.items():
            with self.subTest(name=name):
                expected = outcome(case, stock)
                self.assertEqual(isinstance(expected, str), name in REFUSED)
                got = outcome(case, TernGradStrategy(2))
                tf.nest.map_structure(np.testing.assert_array_equal, expected, got)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
