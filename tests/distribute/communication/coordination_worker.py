"""One process of a cluster that shares values and variables, and saves what it received.

Run by `coordination_test.py` with TF_CONFIG set: `python coordination_worker.py OUTPUT.npz JSON`.
"""

import contextlib
import json
import sys
import time

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.distribute import (
    StepAgreement,
    TernGradStrategy,
    all_gather_object,
    broadcast_variables,
    equalize_variables,
    run_on_all,
    run_on_chief,
)
from terngrad_tf.distribute.consistency import broadcast
from terngrad_tf.distribute.private.replicas import accumulators

DTYPES = ("float32", "float64", "float16", "int64", "int32", "bool")
# TensorFlow makes no variables of these types in a cluster's scope.
PLAIN_DTYPES = ("bfloat16", "uint8", "uint32")


def fail():
    raise ValueError("too small")


def outcome(call, *arguments):
    """The error of a call as text, or "none"."""
    try:
        call(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def agreed_steps(strategy):
    """Steps at which processes of different speeds act on requests, and who asked."""
    index, found = strategy.process_index, []
    with StepAgreement(strategy, first_step=10) as agreement:
        for step in range(11, 1000):
            time.sleep(0.01 if index else 0.03)
            if step == 13:
                agreement.ask("save")
                if index:
                    agreement.ask("stop")
            found += [[step, *item] for item in agreement.reached(step).items()]
            if "stop" in [what for _, what, _ in found]:
                break
    return json.dumps(found)


def steps_after_others_ended(strategy):
    """Answers to a process that asks after the other's steps ended with an error."""
    found = {}
    with contextlib.suppress(ZeroDivisionError), StepAgreement(strategy, first_step=0) as agreement:
        if strategy.process_index:
            raise ZeroDivisionError
        all_gather_object(strategy, "end of steps", 0)
        agreement.ask("save")
        for step in range(1, 500):
            time.sleep(0.01)
            found |= agreement.reached(step)
            if found:
                break
    if strategy.process_index:
        all_gather_object(strategy, "end of steps", 1)
        # The process answers until it exits.
    all_gather_object(strategy, "end", 0)
    return json.dumps(found)


def send_equal_values(strategy):
    """Sends values equal on the chief or on all; returns the number of words, and the values."""
    index = strategy.process_index
    variables = [tf.Variable(tf.ones([5000]))]
    variables += [tf.Variable(tf.fill(shape, float(index))) for shape in ([1000], [10, 100])]
    group, words = strategy.extended.process_group, []
    stock = group.all_reduce_sum

    def note(tensor):
        words.append(tensor.shape.num_elements())
        return stock(tensor)

    group.all_reduce_sum = note
    broadcast_variables(strategy, variables)
    del group.all_reduce_sum
    return sum(words), np.concatenate([np.ravel(v.numpy()) for v in variables])


def total_of_float64(strategy):
    """The sum of sums of replicas, which the first process holds."""
    with strategy.scope(), strategy.extended.sums_of_replicas(lambda: True):
        variable = tf.Variable(tf.zeros([2], tf.float64))
    for copy in strategy.experimental_local_results(variable):
        copy.assign([1 / 3, 1e300])
    accumulators.gather_totals(strategy, [variable])
    return variable.numpy()


def of_nothing(strategy):
    """Shapes of results of exchanges without elements."""

    @tf.function
    def reduced(count):
        def replica():
            rows = tf.IndexedSlices(tf.ones([count, 4]), tf.range(count), tf.constant([5, 4]))
            return tf.distribute.get_replica_context().all_reduce("SUM", rows).values

        return strategy.run(replica)

    broadcast_variables(strategy, [])
    rows = strategy.run(lambda: tf.zeros([0, 3]))
    counts = (tf.constant(count) for count in (1, 0))
    of_rows = [strategy.experimental_local_results(reduced(c))[0].shape for c in counts]
    return json.dumps([s.as_list() for s in (strategy.gather(rows, 0).shape, *of_rows)])


def main(output, config):
    strategy = TernGradStrategy(config["num_local"])
    index = strategy.process_index
    results = {
        "shared": all_gather_object(strategy, "numbers", [index, index + 1]),
        "of_chief": run_on_chief(strategy, "name", lambda: strategy.tasks.names[index]),
        "failed/each": outcome(run_on_all, strategy, "size", fail if index == 1 else lambda: None),
        "failed/chief": outcome(run_on_chief, strategy, "size", fail),
    }
    results["total"] = total_of_float64(strategy)
    results["nothing"] = of_nothing(strategy)
    results["agreed_steps"] = agreed_steps(strategy)
    results["asked_late"] = steps_after_others_ended(strategy)
    generator = np.random.default_rng(index)
    variables = {dtype: tf.Variable(tf.zeros([3, 5], dtype)) for dtype in PLAIN_DTYPES}
    with strategy.scope():
        for dtype in DTYPES:
            # Odd sizes, so that not all fill whole words.
            variables[dtype] = tf.Variable(tf.zeros([3, 5], dtype))
        # Each worker has its own copy.
        variables["seeds"] = keras.random.SeedGenerator(1).state.value
    for variable in variables.values():
        values = tf.cast(generator.integers(0, 2**31, variable.shape), variable.dtype)
        for copy in strategy.experimental_local_results(variable):
            copy.assign(values)
    results["before"] = np.frombuffer(variables["float32"].numpy().tobytes(), np.uint8)
    # One variable per message, as with millions of elements.
    broadcast._MAX_WORDS = 8
    broadcast_variables(strategy, (variable for variable in variables.values()))
    results["sent_words"], results["sent"] = send_equal_values(strategy)
    with strategy.scope():
        weights = [keras.Variable(np.zeros(shape), name=f"w{shape}") for shape in (1, 2, 3)]
    if index == 1:
        weights[1].assign([0.0, -0.0])  # equal, but not the same bits
        strategy.experimental_local_results(weights[2].value)[1].assign([1, 2, 3])
    found = [equalize_variables(strategy, weights) for _ in range(2)]
    results["found"] = json.dumps(found)
    results["equalized"] = np.concatenate(
        [c.numpy() for w in weights for c in strategy.experimental_local_results(w.value)]
    ).tobytes()
    for dtype, variable in variables.items():
        for place, copy in enumerate(strategy.experimental_local_results(variable)):
            # np.savez knows no bfloat16.
            results[f"variable/{dtype}/{place}"] = np.frombuffer(copy.numpy().tobytes(), np.uint8)
    np.savez(output, **results)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
