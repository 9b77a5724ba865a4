"""One process of a cluster that trains with states, sparse rows and accumulated gradients.

`state_cluster_test.py` runs it with TF_CONFIG set.
"""

import warnings

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.distribute import TernGradStrategy
from tests.clients.state import accumulation_cases, sparse_rows_cases, state_cases
from tests.distribute import processes


def make():
    return TernGradStrategy(2, grad_bits=32)


def states(config):
    """Returns the variables of each layer after training, and the error for a refused layer."""
    strategy, results = make(), {}
    for name, layer in state_cases.EQUAL.items():
        for count in config["counts"]:
            for variable, value in state_cases.train(strategy, layer, count).items():
                results[f"{name}/{count}/{variable}"] = value
    for layer in state_cases.FIRST:
        for variable, value in state_cases.train(strategy, layer).items():
            results[f"first/{layer.__name__}/{variable}"] = value
    try:
        state_cases.train(strategy, state_cases.Queue)
    except ValueError as error:
        results["refused"] = np.array(str(error))
    results["assigned"] = np.array(assigned(strategy))
    return results


def assigned(strategy):
    """Assigns a value that differs between processes; returns the error and the weight."""
    with strategy.scope():
        weight = tf.Variable([2.0, 3.0])

    @tf.function
    def step():
        strategy.run(lambda: weight.assign(weight + float(strategy.process_index)))

    try:
        step()
    except ValueError as error:
        return [str(error), str(weight.numpy())]


def rows(config):
    """Returns the weights after training on sparse inputs."""
    programs = (
        sparse_rows_cases.dense_layer_of_sparse_inputs,
        sparse_rows_cases.weighted_means_of_embeddings,
        sparse_rows_cases.embeddings_of_positions_in_texts,
    )
    results = {}
    for program in programs:
        results |= numbered(program.__name__, keras.tree.flatten(program(make())))
    return results


def accumulation(config):
    """Returns weights with and without a pause, and warnings about incomplete files."""
    strategy, results = make(), {}
    results |= numbered("train", accumulation_cases.train(strategy))
    state = accumulation_cases.optimizer_state(strategy)
    # The chief holds the sums of all processes.
    results |= numbered("state", state) if strategy.is_chief else {}
    model = accumulation_cases.make(strategy)
    accumulation_cases.fit(model, 0, accumulation_cases.BEFORE)
    if strategy.is_chief:
        for way in accumulation_cases.WAYS:
            accumulation_cases.save(model, way, config["folder"])
    for way in accumulation_cases.WAYS:
        # All processes wait for the chief's files.
        strategy.extended.process_group.all_reduce_max(tf.constant([0.0]))
        got = accumulation_cases.go_on(strategy, way, config["folder"])
        results |= numbered(f"from/{way}", got)
        got = accumulation_cases.go_on(strategy, way, config["single"])
        results |= numbered(f"from_single/{way}", got)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.optimizer.variables[-1].numpy()
        whole = len(caught)
        model.train_on_batch(np.ones([8, 3], np.float32), np.ones([8, 1], np.float32))
        [variable.numpy() for variable in model.optimizer.variables]
    results["warnings"] = np.array([whole, *(str(w.message) for w in caught)])
    return results


def numbered(name, arrays):
    return {f"{name}/{position}": array for position, array in enumerate(arrays)}


if __name__ == "__main__":
    processes.main({"states": states, "rows": rows, "accumulation": accumulation})
