"""One process of a cluster: trains in a subspace and writes the results to a file.

`cluster_test.py` sets TF_CONFIG and runs `python cluster_worker.py OUTPUT.npz JSON`.
"""

import os

import keras
import tensorflow as tf

from terngrad_tf.distribute import TernGradStrategy
from terngrad_tf.subspace import SnapshotCheckpoint, Subspace
from terngrad_tf.subspace.components.sharing import share_subspace
from tests.distribute import processes
from tests.subspace.samples import build_under, data, directions, flat, subspace_optimizer


def first_phase(config):
    """Trains in all weights; only the chief may write snapshots."""
    strategy = TernGradStrategy(1)
    model = build_under(strategy, lambda n: keras.optimizers.SGD(0.1))
    x, y = data()
    folder = os.path.join(config["folder"], f"pca{strategy.process_index}")
    model.fit(x, y, batch_size=32, epochs=2, verbose=0, callbacks=[SnapshotCheckpoint(folder)])
    return {"wrote": os.path.isdir(folder), "weights": flat(model)}


def second_phase(config):
    """Trains in a subspace with several options; the last training stops and resumes."""
    strategy = TernGradStrategy(config["num_local"], grad_bits=32)
    x, y = data()
    options = {"batch_size": 48, "shuffle": False, "verbose": 0}
    shared = share_subspace(strategy, lambda: Subspace(directions(1001, 3)), timeout=60)
    results = {"shared": shared.components}
    for number, changes in enumerate(config["variants"]):
        make = subspace_optimizer(sigma=0.9, **changes)
        model = build_under(strategy, make)
        history = model.fit(x, y, epochs=2, **options).history
        results[f"{number}_weights"] = flat(model)
        results[f"{number}_loss"] = history["loss"]
        for index, variable in enumerate(model.optimizer.variables):
            results[f"{number}_state{index}"] = variable.numpy()
    stopped = build_under(strategy, make)
    stopped.fit(x, y, epochs=1, **options)
    checkpoint = tf.train.Checkpoint(model=stopped, optimizer=stopped.optimizer)
    path = checkpoint.write(os.path.join(config["folder"], f"checkpoint{strategy.process_index}"))
    resumed = build_under(strategy, make)
    with strategy.scope():
        resumed.optimizer.build(resumed.trainable_variables)
        tf.train.Checkpoint(model=resumed, optimizer=resumed.optimizer).restore(path)
    resumed.fit(x, y, epochs=1, **options)
    results["resumed"] = flat(resumed)
    return results


if __name__ == "__main__":
    processes.main({"first_phase": first_phase, "second_phase": second_phase})
