"""Training on batches that do not divide evenly, or are smaller than the number of replicas."""

import keras
import numpy as np
import tensorflow as tf

SIZES = (8, 5, 2, 1, 3)
VOCABULARY = 7


def examples():
    """Word numbers `[19, 3]` and targets `[19, 2]`."""
    rng = np.random.default_rng(0)
    total = sum(SIZES)
    words = rng.integers(0, VOCABULARY, (total, 3)).astype(np.int32)
    return words, rng.normal(size=(total, 2)).astype(np.float32)


def _batches(sample_weight=False):
    words, targets = examples()
    weights = (np.arange(len(words)) % 3 + 0.5).astype(np.float32)
    parts = (words, targets, weights) if sample_weight else (words, targets)
    bounds = np.cumsum((0, *SIZES))
    rows = tf.data.Dataset.from_tensor_slices((bounds[:-1], bounds[1:]))
    options = tf.data.Options()
    # Every process divides the same batches.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    batches = rows.map(lambda first, last: tuple(tf.constant(p)[first:last] for p in parts))
    return batches.with_options(options)


def _model(strategy, *, loss="mse", optimizer=None, batch_norm=False, run_eagerly=False):
    with strategy.scope():
        keras.utils.set_random_seed(1)
        layers = [
            keras.layers.Input((3,), dtype="int32"),
            keras.layers.Embedding(VOCABULARY, 4),
            keras.layers.Flatten(),
            keras.layers.Dense(2, kernel_regularizer=keras.regularizers.L2(0.01)),
        ]
        if batch_norm:
            layers.insert(3, keras.layers.BatchNormalization(momentum=0.5))
        model = keras.Sequential(layers)
        model.compile(
            optimizer or keras.optimizers.SGD(0.1, momentum=0.9),
            loss,
            metrics=["mae"],
            weighted_metrics=["mse"],
            run_eagerly=run_eagerly,
        )
    return model


def train(strategy, run_eagerly=False):
    """Weights, losses and metrics of several models.

    Args:
        strategy: `tf.distribute.Strategy` to train under.
        run_eagerly: whether steps run without a graph.

    Returns:
        `{name: array}`.
    """
    results = {}
    cases = {
        "mean": {},
        "weights": {"sample_weight": True},
        "sum": {"loss": keras.losses.MeanSquaredError(reduction="sum")},
        "accumulation": {"gradient_accumulation_steps": 2},
    }
    for name, case in cases.items():
        options = {k: v for k, v in case.items() if k == "loss"}
        with strategy.scope():
            accumulation = case.get("gradient_accumulation_steps")
            optimizer = keras.optimizers.SGD(0.05, gradient_accumulation_steps=accumulation)
            model = _model(strategy, optimizer=optimizer, run_eagerly=run_eagerly, **options)
        data = _batches(case.get("sample_weight", False))
        history = model.fit(data, epochs=2, verbose=0).history
        results |= {f"{name}/{key}": value for key, value in history.items()}
        for i, weight in enumerate(model.get_weights()):
            results[f"{name}/weight {i}"] = weight
        results[f"{name}/evaluated"] = model.evaluate(data, verbose=0)
        results[f"{name}/predicted"] = model.predict(data, verbose=0)
    results["batch norm/mean"] = _moving_mean(strategy, run_eagerly)
    results["none/sums"] = _sums_beside_none(strategy)
    return results | predicted(strategy, run_eagerly)


class Averages(keras.layers.Layer):
    """Averages its inputs over a batch, also in `predict`."""

    def build(self, shape):
        """Makes two variables, which hold exponential averages."""
        how = {"shape": (), "initializer": "zeros", "trainable": False}
        self.averages = [self.add_weight(**how), self.add_weight(**how, aggregation="mean")]

    def call(self, inputs):
        """Returns the batch's mean for each example."""
        mean = tf.reduce_mean(inputs)
        for average in self.averages:
            average.assign(0.5 * average + mean)
        replica_context = tf.distribute.get_replica_context()
        if tf.distribute.has_strategy() and replica_context is not None:
            mean = replica_context.all_reduce("MEAN", mean)
        return tf.zeros_like(inputs) + mean


def predicted(strategy, run_eagerly=False):
    """Results of `predict` on models that average over a batch, and their averages, as `train`."""
    results = {}
    # With and without an empty replica.
    for size in (11, 14):
        with strategy.scope():
            layer = Averages()
            model = keras.Sequential([keras.Input([1]), layer])
            model.compile(run_eagerly=run_eagerly, jit_compile=False)
        x = np.arange(size, dtype=np.float32)[:, np.newaxis]
        results[f"averages/{size}"] = model.predict(x, batch_size=8, verbose=0)
        for name, average in zip(("", "mean"), layer.averages, strict=True):
            results[f"averages/{size} {name}"] = average.numpy()
    return results


def _sums_beside_none(strategy):
    """Sums of batches that also hold None, read in a function."""

    @tf.function
    def step(iterator):
        batch = iterator.get_next_as_optional().get_value()
        sums = strategy.run(lambda targets, none: tf.reduce_sum(targets), args=batch)
        return strategy.reduce("SUM", sums, axis=None)

    data = strategy.experimental_distribute_dataset(_batches().map(lambda _, y: (y, None)))
    iterator = iter(data)
    return [float(step(iterator)) for _ in SIZES]


def _moving_mean(strategy, run_eagerly):
    """The moving mean of constant inputs; each replica normalizes by its own variance."""
    with strategy.scope():
        optimizer = keras.optimizers.SGD(0.0)
    model = _model(strategy, batch_norm=True, optimizer=optimizer, run_eagerly=run_eagerly)
    model.fit(_batches(), verbose=0)
    return model.layers[2].moving_mean.numpy()
