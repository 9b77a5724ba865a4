"""Programs that train with `model.fit`, compared with training without a strategy."""

import os
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tests.clients.comparison import ClientTest, fit, numbers, weights


def classes(count, num_examples=16, seed=1):
    return np.random.default_rng(seed).integers(0, count, num_examples).astype(np.int32)


def dense(strategy, optimizer=keras.optimizers.Adam, loss="mse", units=1, **options):
    with strategy.scope():
        model = keras.Sequential(
            [layers.Input((3,)), layers.Dense(4, "tanh", name="hidden"), layers.Dense(units)]
        )
        model.compile(optimizer(), loss, **options)
    return model


def several_inputs_and_outputs(strategy):
    with strategy.scope():
        a, b = layers.Input((3,), name="a"), layers.Input((2,), name="b")
        shared = layers.Dense(4, "relu")(layers.Concatenate()([a, b]))
        price = layers.Dense(1, name="price")(shared)
        kind = layers.Dense(3, "softmax", name="kind")(shared)
        model = keras.Model({"a": a, "b": b}, {"price": price, "kind": kind})
        model.compile(
            keras.optimizers.SGD(0.1, momentum=0.9),
            loss={"price": "mse", "kind": "sparse_categorical_crossentropy"},
            loss_weights={"price": 2.0, "kind": 0.5},
            metrics={"price": ["mae"], "kind": ["accuracy"]},
            weighted_metrics={"price": ["mse"], "kind": ["accuracy"]},
        )
    x = {"a": numbers(16, 3), "b": numbers(16, 2, seed=1)}
    y = {"price": numbers(16, 1, seed=2), "kind": classes(3)}
    sample_weight = {"price": numbers(16, seed=3) ** 2, "kind": numbers(16, seed=4) ** 2}
    results = fit(model, x, y, sample_weight=sample_weight, validation_data=(x, y))
    return {
        "fit": results,
        "evaluated": model.evaluate(x, y, sample_weight=sample_weight, batch_size=8, verbose=0),
        "predicted": model.predict(x, batch_size=8, verbose=0),
    }


def class_weights_and_validation_split(strategy):
    model = dense(
        strategy,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        units=3,
        metrics=["accuracy"],
    )
    # 24 examples for training, 8 for validation.
    data = numbers(32, 3), classes(3, 32)
    return fit(model, *data, class_weight={0: 1.0, 1: 3.0, 2: 0.5}, validation_split=0.25)


def many_metrics(strategy):
    with strategy.scope():
        metrics = [
            keras.metrics.AUC(from_logits=True, num_thresholds=20),
            keras.metrics.Precision(thresholds=0.0),
            keras.metrics.BinaryAccuracy(threshold=0.0),
            keras.metrics.R2Score(),
            keras.metrics.RootMeanSquaredError(),
        ]
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model = dense(strategy, loss=loss, metrics=metrics)
    return fit(model, numbers(16, 3), classes(2).astype(np.float32)[:, np.newaxis])


def recurrent_with_embeddings(strategy):
    with strategy.scope():
        model = keras.Sequential(
            [
                layers.Embedding(12, 4, mask_zero=True),
                layers.Bidirectional(layers.LSTM(3)),
                layers.Dense(1),
            ]
        )
        model.compile("adam", "mse")
    words = np.random.default_rng(0).integers(1, 12, (16, 6))
    words[::3, 4:] = 0
    return fit(model, words, numbers(16, 1))


def strings_and_ragged_words(strategy):
    texts = np.array(["the cat sat", "a dog", "the dog ran far", "cat"] * 4)
    vectorize = layers.TextVectorization(max_tokens=10, ragged=True)
    vectorize.adapt(texts)
    with strategy.scope():
        words = layers.Input((None,), dtype="int64")
        x = layers.Embedding(10, 3)(words)
        model = keras.Model(words, layers.Dense(1)(layers.GlobalAveragePooling1D()(x)))
        model.compile("adam", "mse")
    batches = (
        tf.data.Dataset.from_tensor_slices((texts, numbers(16, 1)))
        .batch(8)
        .map(lambda text, y: (vectorize(text), y))
        .map(lambda ragged, y: (ragged.to_tensor(shape=[None, 4]), y))
    )
    return fit(model, batches, batch_size=None)


def transfer_learning(strategy):
    with strategy.scope():
        base = keras.Sequential(
            [
                layers.Input((3,)),
                layers.Dense(4, use_bias=False),
                layers.BatchNormalization(synchronized=True),
                layers.ReLU(),
            ]
        )
        base.trainable = False
        inputs = layers.Input((3,))
        model = keras.Model(inputs, layers.Dense(1)(base(inputs, training=False)))
        model.compile(keras.optimizers.Adam(0.01), "mse")
    data = numbers(16, 3), numbers(16, 1, seed=1)
    frozen = fit(model, *data)
    with strategy.scope():
        base.trainable = True
        model.compile(keras.optimizers.Adam(0.001), "mse")
    return {"frozen": frozen, "fine": fit(model, *data)}


def search_over_models(strategy):
    results = []
    for units in (1, 2):
        keras.utils.clear_session()
        model = dense(strategy, units=units)
        results.append(fit(model, numbers(16, 3), numbers(16, units), epochs=1))
        results.append(model.evaluate(numbers(16, 3), numbers(16, units), 8, verbose=0))
    return results


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        rows = slice(8 * index, 8 * index + 8)
        return numbers(16, 3)[rows], numbers(16, 1, seed=1)[rows], numbers(16, seed=2)[rows] ** 2


def python_datasets(strategy):
    model = dense(strategy, weighted_metrics=["mae"])
    results = fit(model, Batches(workers=1), batch_size=None, validation_data=Batches(workers=1))
    return results, model.evaluate(Batches(workers=1), verbose=0)


class DrawnBatches(keras.utils.PyDataset):
    def __init__(self, seed):
        super().__init__()
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return 2

    def __getitem__(self, index):
        x = self.rng.uniform(-1, 1, (8, 3)).astype(np.float32)
        return x, x.sum(1, keepdims=True) ** 2


def python_datasets_that_draw(strategy):
    with strategy.scope():
        unbuilt = keras.Sequential([keras.layers.Dense(1)])
        unbuilt.compile("sgd", "mse", metrics=["mae"])
    options = dict(batch_size=None, validation_data=DrawnBatches(1))
    return [fit(model, DrawnBatches(0), **options) for model in (dense(strategy), unbuilt)]


def shuffled_arrays(strategy):
    return [
        dense(strategy).fit(numbers(16, 3), numbers(16, 1, seed=1), 8, epochs=2, verbose=0).history
    ]


def generators_and_steps(strategy):
    def generate():
        while True:
            yield numbers(8, 3), numbers(8, 1, seed=1)

    model = dense(strategy, steps_per_execution=2)
    history = model.fit(generate(), steps_per_epoch=4, epochs=2, verbose=0).history
    repeated = tf.data.Dataset.from_tensor_slices((numbers(16, 3), numbers(16, 1))).batch(8)
    more = model.fit(repeated.repeat(), steps_per_epoch=2, epochs=3, initial_epoch=1, verbose=0)
    return history, more.history, weights(model)


def single_batches(strategy):
    model = dense(strategy, metrics=["mae"])
    x, y = numbers(8, 3), numbers(8, 1, seed=1)
    return [
        [model.train_on_batch(x, y) for _ in range(3)],
        model.train_on_batch(x, y, sample_weight=y[:, 0] ** 2, return_dict=True),
        model.test_on_batch(x, y),
        model.predict_on_batch(x),
        model.predict_on_batch(x[:3]),
        weights(model),
    ]


def regularizers_and_added_losses(strategy):
    class Activity(layers.Layer):
        def call(self, x):
            self.add_loss(keras.ops.mean(keras.ops.square(x)))
            return x

    with strategy.scope():
        model = keras.Sequential(
            [
                layers.Input((3,)),
                layers.Dense(4, kernel_regularizer="l2", bias_regularizer="l1"),
                Activity(),
                layers.Dense(1, activity_regularizer=keras.regularizers.L2(0.1)),
            ]
        )
        model.compile("sgd", "mse")
    return fit(model, numbers(16, 3), numbers(16, 1, seed=1))


def schedules_and_callbacks(strategy):
    rate = keras.optimizers.schedules.CosineDecay(0.1, 8)
    data = numbers(16, 3), numbers(16, 1)
    scheduled = fit(dense(strategy, lambda: keras.optimizers.SGD(rate)), *data)
    model = dense(strategy, lambda: keras.optimizers.SGD(2.0))
    callbacks = [
        keras.callbacks.ReduceLROnPlateau("loss", patience=1, factor=0.1),
        keras.callbacks.EarlyStopping("loss", patience=3, restore_best_weights=True),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.9 * rate),
    ]
    return scheduled, fit(model, *data, epochs=4, callbacks=callbacks)


def low_rank_adapters(strategy):
    model = dense(strategy)
    with strategy.scope():
        model.get_layer("hidden").enable_lora(2)
        model.compile(keras.optimizers.Adam(0.05), "mse")
    assert len(model.trainable_weights) == 5
    return fit(model, numbers(16, 3), numbers(16, 1))


def quantized_adapters(strategy):
    model = dense(strategy)
    data = numbers(16, 3), numbers(16, 1)
    trained = fit(model, *data)
    model.quantize("int8")
    predicted = model.predict(data[0], batch_size=8, verbose=0)
    with strategy.scope():
        model.get_layer("hidden").enable_lora(2)
        model.compile(keras.optimizers.Adam(0.05), "mse")
    return trained["history"], predicted, fit(model, *data)["history"]


def saved_and_exported(strategy):
    model = dense(strategy)
    x = numbers(16, 3)
    fit(model, x, numbers(16, 1))
    folder = os.path.join(tf.compat.v1.test.get_temp_dir(), f"of_{strategy.num_replicas_in_sync}")
    model.export(os.path.join(folder, "exported"), verbose=False)
    exported = tf.saved_model.load(os.path.join(folder, "exported"))
    model.save(os.path.join(folder, "model.keras"))
    model.save_weights(os.path.join(folder, "a.weights.h5"))
    plain = keras.models.load_model(os.path.join(folder, "model.keras"))
    with strategy.scope():
        loaded = keras.models.load_model(os.path.join(folder, "model.keras"))
        other = dense(strategy)
        other.load_weights(os.path.join(folder, "a.weights.h5"))
    return {
        "served": exported.serve(x),
        "plain": plain.predict(x, verbose=0),
        "loaded": fit(loaded, x, numbers(16, 1)),
        "plain, trained on": fit(plain, x, numbers(16, 1)),
        "weights only": other.predict(x, batch_size=8, verbose=0),
    }


PROGRAMS = [
    several_inputs_and_outputs,
    class_weights_and_validation_split,
    many_metrics,
    recurrent_with_embeddings,
    strings_and_ragged_words,
    transfer_learning,
    search_over_models,
    python_datasets,
    python_datasets_that_draw,
    shuffled_arrays,
    generators_and_steps,
    single_batches,
    regularizers_and_added_losses,
    schedules_and_callbacks,
    low_rank_adapters,
    quantized_adapters,
    saved_and_exported,
]


class FitTest(ClientTest):
    num_replicas = (4,)

    @pytest.mark.slow
    def test_some_programs_compute_the_same_on_four_replicas(self):
        self.assert_same_without_strategy(
            [several_inputs_and_outputs, recurrent_with_embeddings, low_rank_adapters]
        )


@pytest.mark.long
class AllFitTest(ClientTest):
    num_replicas = (1, 4)

    def test_all_programs_compute_the_same(self):
        self.assert_same_without_strategy(PROGRAMS)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
