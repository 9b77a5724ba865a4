"""One of two processes that train with `fit` on data as users write them.

`cluster_data_test.py` sets TF_CONFIG and runs `python cluster_data_worker.py OUTPUT.npz JSON`.
"""

import random

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.distribute import PeerError, TernGradStrategy
from tests.clients.losses import masked_cases
from tests.clients.two_processes.cluster_data_cases import (
    BATCH_SIZE,
    IDS,
    KINDS,
    NUM_EXAMPLES,
    Batches,
    X,
    Y,
    train,
    use_single_batches,
)
from tests.distribute import processes
from tests.distribute.samples import aligned

# A cluster's strategy must be made before any other use of TensorFlow.
STRATEGY = TernGradStrategy(grad_bits=32)
RANK = STRATEGY.process_index
OFF = tf.data.experimental.AutoShardPolicy.OFF


def counting_model(batch_size=BATCH_SIZE, strategy=STRATEGY, **options):
    """Returns a model whose weights count how often `fit` used each example."""
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input([NUM_EXAMPLES]),
                keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros"),
            ]
        )
        optimizer = keras.optimizers.SGD(-float(batch_size))
        model.compile(optimizer, lambda y_true, y_pred: y_pred, **options)
    return model


def counts(model, *data, epochs=1, **options):
    """Trains; returns how often each example was used."""
    model.fit(*data, epochs=epochs, verbose=0, **options)
    return model.get_weights()[0][:, 0]


def data_set(ids=IDS, batch_size=BATCH_SIZE, policy=None):
    dataset = tf.data.Dataset.from_tensor_slices((X[ids], Y[ids])).batch(batch_size)
    if policy is None:
        return dataset
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def drift():
    """Draws random numbers on the chief only."""
    if STRATEGY.is_chief:
        random.random(), np.random.random(), tf.random.normal([3])


def draws(config):
    """Returns numbers from unseeded generators."""
    numbers = tf.data.Dataset.random().take(3)
    shuffled = tf.data.Dataset.range(9).shuffle(9)
    return {
        "python": random.random(),
        "numpy": np.random.random(3),
        "data set": list(numbers.as_numpy_iterator()),
        "shuffled": list(shuffled.as_numpy_iterator()),
    }


def orders(config):
    """Counts examples under various kinds of shuffling; each is used once in every epoch."""
    results = {}

    def count(name, *data, **options):
        if name in config.get("only", [name]):
            results[name] = counts(counting_model(), *data, epochs=3, **options)

    shuffled = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(NUM_EXAMPLES)
    count("arrays", X, Y, batch_size=BATCH_SIZE)
    count("a shuffled data set", shuffled.batch(BATCH_SIZE))
    count("numpy orders", Batches(order=True))
    drift()
    count("arrays after a drift", X, Y, batch_size=BATCH_SIZE)
    count("within batches", X, Y, batch_size=BATCH_SIZE, shuffle="batch")
    count("a PyDataset after a drift", Batches())
    count("a PyDataset of several threads", Batches(workers=2))
    count("validation_split", X, Y, batch_size=BATCH_SIZE, validation_split=0.2)
    count("sparse arrays", tf.sparse.from_dense(X), Y, batch_size=BATCH_SIZE)

    def generator():
        for _ in range(3):
            for ids in IDS.reshape(-1, BATCH_SIZE):
                yield X[ids], Y[ids]

    count("a generator", generator(), steps_per_epoch=NUM_EXAMPLES // BATCH_SIZE)
    noisy = data_set().map(lambda x, y: (x + tf.random.normal(tf.shape(x), 0, 1e-6), y))
    count("images distorted by each", noisy)
    keras.utils.set_random_seed(RANK)
    count("arrays seeded by rank", X, Y, batch_size=BATCH_SIZE)
    count("a PyDataset seeded by rank", Batches())
    return results


def seeded(config):
    return {
        f"{kind}/{name}": value for kind in KINDS for name, value in train(STRATEGY, kind).items()
    }


def single_batches(config):
    return use_single_batches(STRATEGY, IDS[:12] if RANK == 0 else IDS[12:])


def own(config):
    """Each process feeds different examples: 12 on the chief, 8 on worker 1."""
    results = {}

    def count(name, data, strategy=STRATEGY, compiled=None, **options):
        if name in config.get("only", [name]):
            model = counting_model(strategy=strategy, **(compiled or {}))
            results[name] = counts(model, data, **options)

    mine = IDS[:12] if RANK == 0 else IDS[12:]

    def generator(ids=mine, times=1):
        for _ in range(times):
            for part in np.split(ids, range(2, len(ids), 2)):
                yield X[part], Y[part]

    class Own(keras.utils.PyDataset):
        def __len__(self):
            return len(mine) // 2

        def __getitem__(self, index):
            return X[mine[2 * index : 2 * index + 2]], Y[mine[2 * index : 2 * index + 2]]

    policy = data_set(mine, policy=OFF)
    count("a generator", generator())
    count("policy", policy)
    count("a PyDataset", Own(), shuffle=False)
    count("a function", STRATEGY.distribute_datasets_from_function(lambda _: data_set(mine, 2)))
    count("several steps at once", policy, compiled={"steps_per_execution": 4})
    count("infinite on one", policy.repeat(1 if RANK == 0 else -1), steps_per_epoch=6)
    count("more steps than data", policy, epochs=2, steps_per_epoch=20)
    count("two replicas", generator(), TernGradStrategy(2, grad_bits=32))
    if "only" in config:
        return results
    model = counting_model(metrics=["mae"])
    model.fit(X, Y, batch_size=BATCH_SIZE, validation_data=policy, epochs=2, verbose=0)
    results["evaluated"] = np.array(
        [
            model.evaluate(X, Y, batch_size=BATCH_SIZE, verbose=0),
            model.evaluate(policy, verbose=0),
            model.evaluate(generator(), verbose=0),
        ]
    )
    results["predicted"] = np.stack(
        [np.sort(model.predict(data, verbose=0)[:, 0]) for data in (X, policy, generator())]
    )
    return results


def kept(config):
    """Returns by how much `evaluate` and `fit` change the array of which batches are views."""
    x = aligned(np.random.default_rng(0).random((64, 16)))
    before = x.copy()

    class Views(keras.utils.PyDataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            rows = x[16 * index : 16 * index + 16]
            return rows, rows[:, :1]

    with STRATEGY.scope():
        model = keras.Sequential(
            [keras.Input([16]), keras.layers.Rescaling(2.0, 1.0), keras.layers.Dense(1)]
        )
        model.compile("sgd", "mse")
    results = {}
    for run in (model.evaluate, model.fit):
        run(Views(), verbose=0)
        results[run.__name__] = np.max(np.abs(x - before))
    return results


def masked(config):
    strategy = TernGradStrategy(2, grad_bits=32)
    return {
        f"{kind}/{number}": value
        for kind in masked_cases.KINDS
        for number, value in enumerate(keras.tree.flatten(masked_cases.train(strategy, kind)))
    }


def refused(config):
    """Returns the errors for data that differ between processes without a declaration."""
    keras.utils.set_random_seed(3)
    ids = IDS[::-1] if RANK == 0 else IDS
    model = counting_model()
    dataset = data_set(ids)
    by_rank = tf.data.Dataset.from_generator(
        lambda: iter(X[ids]), output_signature=tf.TensorSpec([NUM_EXAMPLES])
    )
    peeked = data_set().shuffle(4)
    if STRATEGY.is_chief:
        next(iter(peeked))
    programs = {
        "arrays": lambda: model.fit(X[ids], Y[ids], verbose=0),
        "fewer": lambda: model.fit(X[: 12 + RANK], Y[: 12 + RANK], verbose=0),
        "evaluate": lambda: model.evaluate(X[ids], Y[ids], verbose=0),
        "predict": lambda: model.predict(X[ids], verbose=0),
        "data set": lambda: model.fit(dataset, verbose=0),
        "by rank": lambda: STRATEGY.experimental_distribute_dataset(by_rank.batch(4)),
        "peeked": lambda: model.fit(peeked, verbose=0),
        "seeds": lambda: model.fit(data_set().shuffle(4, seed=RANK), verbose=0),
        "lengths": lambda: model.fit(data_set(IDS[: 20 - 4 * RANK]), verbose=0),
        "policy": lambda: model.fit(data_set(policy=OFF if RANK else None), verbose=0),
        "kinds": lambda: model.predict(X if RANK else dataset, verbose=0),
    }
    results = {}
    for name, program in programs.items():
        try:
            program()
            results[name] = "nothing"
        except PeerError as error:
            results[name] = str(error)
    return results


if __name__ == "__main__":
    processes.main(
        {
            "draws": draws,
            "orders": orders,
            "seeded": seeded,
            "single_batches": single_batches,
            "own": own,
            "kept": kept,
            "masked": masked,
            "refused": refused,
        }
    )
