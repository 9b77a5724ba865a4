"""Models whose batches use only some rows of a weight."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from tests.clients.comparison import fit, numbers, weights

BATCH = 8
WORDS = np.random.default_rng(0).integers(0, 12, (16, 4))


def optimizers():
    return {
        "adam": keras.optimizers.Adam(0.05, global_clipnorm=0.02),
        "adagrad": keras.optimizers.Adagrad(0.05, clipvalue=0.02),
    }


def words(seed=0):
    """Returns a `tf.SparseTensor` of 16 examples with 3 to 5 of 12 words; examples share words."""
    rng = np.random.default_rng(seed)
    rows = [sorted(rng.choice(12, rng.integers(3, 6), replace=False)) for _ in range(16)]
    indices = [(row, word) for row, of_row in enumerate(rows) for word in of_row]
    return tf.SparseTensor(np.int64(indices), numbers(len(indices), seed=seed), [16, 12])


def train(strategy, make, *inputs, has_known_batches=False):
    """Trains `make()` with each optimizer on batches of 8 of 16 examples."""
    results = {}
    for name in optimizers():
        keras.utils.clear_session()
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = make()
            model.compile(optimizers()[name], "mse")
        x = inputs[0] if len(inputs) == 1 else inputs
        data = tf.data.Dataset.from_tensor_slices((x, numbers(16, 1)))
        data = data.batch(BATCH, drop_remainder=has_known_batches)
        results[name] = fit(model, data, batch_size=None)
    return results


def dense_layer_of_sparse_inputs(strategy):
    def make():
        x = layers.Input((12,), sparse=True)
        return keras.Model(x, layers.Dense(1)(layers.Dense(3, "tanh")(x)))

    return train(strategy, make, words())


def two_sparse_inputs_of_one_layer(strategy):
    def make():
        inputs = [layers.Input((12,), sparse=True) for _ in range(2)]
        shared = layers.Dense(3, "tanh")
        return keras.Model(inputs, layers.Dense(1)(layers.Add()([shared(x) for x in inputs])))

    return train(strategy, make, words(), words(1))


def sparse_inputs_and_synchronized_batch_norm(strategy):
    """Computes gradients after reductions."""

    def make():
        x, kernel = layers.Input((12,), sparse=True), layers.Dense(3, use_bias=False)
        normalized = layers.BatchNormalization(synchronized=True)(kernel(x))
        return keras.Model(x, layers.Dense(1)(normalized))

    return train(strategy, make, words())


def embeddings_of_words_that_repeat(strategy):
    """Keras squares and clips one row for each occurrence of a word."""

    def make():
        x = layers.Input((4,), dtype="int32")
        embedded = layers.GlobalAveragePooling1D()(layers.Embedding(12, 3)(x))
        return keras.Model(x, layers.Dense(1)(embedded))

    return train(strategy, make, WORDS)


def embeddings_of_words_that_repeat_in_other_examples(strategy):
    """In some batches the rows are distinct within each replica, but not in the whole batch."""

    def make():
        x = layers.Input((1,), dtype="int32")
        return keras.Model(x, layers.Dense(1)(layers.Flatten()(layers.Embedding(12, 3)(x))))

    return train(strategy, make, np.int32([[0], [1], [2], [3], [0], [1], [2], [4]] * 2))


class _Embedded(layers.Layer):
    """Embeds ids that `ids`, a function of the inputs, returns; the first axis may be 1."""

    def __init__(self, ids):
        super().__init__()
        self.ids = ids
        self.embedding = layers.Embedding(12, 3)

    def call(self, x):
        return sum(
            keras.ops.mean(self.embedding(ids), axis=1, keepdims=True) for ids in self.ids(x)
        )


def _model_of_ids(ids, length=4):
    def make():
        x = layers.Input((length,), dtype="int32")
        scale = keras.ops.mean(keras.ops.cast(x, "float32"), axis=1, keepdims=True)
        embedded = layers.Multiply()([_Embedded(ids)(x)[:, 0], scale])
        return keras.Model(x, layers.Dense(1)(embedded))

    return make


def embeddings_of_positions(strategy):
    """All examples have the same rows, as in vision transformers; one row repeats."""
    positions = np.int32([[0, 1, 2, 2, 3]])
    make = _model_of_ids(lambda x: [keras.ops.arange(4)[None], tf.constant(positions)])
    return train(strategy, make, WORDS)


def embeddings_of_positions_in_texts(strategy):
    """As of positions, in texts of unknown length."""

    def ids(x):
        positions = keras.ops.arange(keras.ops.shape(x)[-1])
        return [positions[None], keras.ops.flip(positions)[None], x]

    return train(strategy, _model_of_ids(ids, length=None), WORDS)


def embeddings_of_words_and_positions(strategy):
    return train(strategy, _model_of_ids(lambda x: [x, keras.ops.arange(4)[None], x]), WORDS)


def embeddings_of_positions_of_each_example(strategy):
    """Each example has rows of its own, although their ids are constants."""

    def ids(x):
        return [keras.ops.tile(keras.ops.arange(4)[None], (keras.ops.shape(x)[0], 1))]

    return train(strategy, _model_of_ids(ids), WORDS, has_known_batches=True)


def loop(strategy, optimizer, make, call):
    """Trains in a custom loop; `call` is a function of the model and a batch of words."""
    with strategy.scope():
        model, optimizer = make(), optimizer()
        optimizer.build(model.trainable_variables)

    def replica(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(call(model, x) - y)) / BATCH
        optimizer.apply(tape.gradient(loss, model.trainable_variables))

    step = tf.function(lambda *batch: strategy.run(replica, args=batch))
    data = tf.data.Dataset.from_tensor_slices((words(), numbers(16, 1))).batch(BATCH)
    for batch in strategy.experimental_distribute_dataset(data.repeat(2)):
        step(*batch)
    return weights(model)


def loop_with_accumulation(strategy):
    def make():
        return keras.Sequential(
            [layers.Input((12,), sparse=True), layers.Dense(3), layers.Dense(1)]
        )

    def optimizer():
        return keras.optimizers.Adam(0.05, gradient_accumulation_steps=2)

    return loop(strategy, optimizer, make, lambda model, x: model(x))


def weighted_means_of_embeddings(strategy):
    def make():
        return keras.Sequential([layers.Input((1,)), layers.Embedding(12, 3), layers.Dense(1)])

    def call(model, x):
        embedding, dense = model.layers
        ids = tf.SparseTensor(x.indices, x.indices[:, 1], x.dense_shape)
        x = tf.SparseTensor(x.indices, tf.abs(x.values), x.dense_shape)
        table = embedding.embeddings.value
        means = tf.nn.embedding_lookup_sparse(table, ids, x, combiner="mean")
        return dense(means + tf.nn.embedding_lookup_sparse(table, ids, None, combiner="sqrtn"))

    return loop(strategy, lambda: keras.optimizers.Adam(0.05), make, call)


PROGRAMS = [
    dense_layer_of_sparse_inputs,
    two_sparse_inputs_of_one_layer,
    sparse_inputs_and_synchronized_batch_norm,
    embeddings_of_words_that_repeat,
    embeddings_of_words_that_repeat_in_other_examples,
    embeddings_of_positions,
    embeddings_of_positions_in_texts,
    embeddings_of_words_and_positions,
    embeddings_of_positions_of_each_example,
    loop_with_accumulation,
    weighted_means_of_embeddings,
]
