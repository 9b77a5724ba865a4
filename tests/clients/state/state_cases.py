"""Layers whose calls in training write a state, as users write them."""

import keras
import tensorflow as tf
from keras import ops

from tests.clients.comparison import numbers


def gathered(x):
    """Returns the rows of all replicas, in the order of the batch."""
    context = tf.distribute.get_replica_context()
    return context.all_gather(x, axis=0) if context.num_replicas_in_sync > 1 else x


class Stateful(keras.layers.Layer):
    """Returns its input unchanged; `update` writes the state."""

    shapes = {"state": ()}
    dtypes = {}
    options = {}
    initializer = "zeros"

    def build(self, shape):
        for name, size in self.shapes.items():
            variable = self.add_weight(
                name=name,
                shape=size,
                dtype=self.dtypes.get(name),
                trainable=False,
                initializer=self.initializer,
                **self.options,
            )
            setattr(self, name, variable)

    def call(self, x, training=False):
        if training:
            self.update(x)
        return x


class Count(Stateful):
    def update(self, x):
        self.state.assign_add(ops.cast(ops.shape(x)[0], self.state.dtype))


class CountOfWholeNumbers(Count):
    dtypes = {"state": "int32"}


class SumOfAll(Stateful):
    def update(self, x):
        self.state.assign_sub(ops.sum(x))


class LastSum(Stateful):
    def update(self, x):
        self.state.assign(ops.sum(x))


class Maximum(Stateful):
    def update(self, x):
        self.state.assign(ops.maximum(self.state, ops.max(x)))


class GatheredMaximum(Stateful):
    def update(self, x):
        self.state.assign(ops.maximum(self.state, ops.max(gathered(x))))


class Range(Stateful):
    """Range of a quantization-aware layer."""

    shapes = {"low": (), "high": ()}

    def update(self, x):
        self.low.assign(0.9 * self.low + 0.1 * ops.min(x))
        self.high.assign(0.9 * self.high + 0.1 * ops.max(x))


class MiddleOfRange(Stateful):
    def update(self, x):
        self.state.assign(ops.mean(ops.stack([ops.min(x), ops.max(x)])))


class GatheredRange(Range):
    def update(self, x):
        super().update(gathered(x))


def unit(x):
    return x / ops.sqrt(ops.sum(ops.square(x), axis=-1, keepdims=True))


class Queue(Stateful):
    """MoCo's queue of the last keys."""

    shapes = {"queue": (12, 3)}

    def update(self, x):
        self.queue.assign(ops.concatenate([unit(x), self.queue], axis=0)[:12])


class HalfQueue(Queue):
    dtypes = {"queue": "float16"}

    def update(self, x):
        super().update(ops.cast(x, "float16"))


class GatheredQueue(Queue):
    def update(self, x):
        super().update(gathered(x))


class QueueOfPooledFeatures(Queue):
    """Stores means, but not means over examples."""

    def update(self, x):
        super().update(ops.mean(ops.stack([x, 2 * x], axis=1), axis=1))


class QueueOfMeanViews(Queue):
    """Stores the mean of two views of each example."""

    def update(self, x):
        super().update(ops.mean(ops.stack([x, 2 * x]), axis=0))


class QueueWithPointer(Stateful):
    shapes = {"queue": (16, 3), "pointer": (1,)}
    dtypes = {"pointer": "int32"}

    def update(self, x):
        keys = unit(gathered(x))
        place = (self.pointer + ops.arange(ops.shape(keys)[0])) % 16
        self.queue.assign(ops.scatter_update(self.queue, place[:, None], keys))
        self.pointer.assign((self.pointer + ops.shape(keys)[0]) % 16)


class Codebook(Stateful):
    """Vector quantization whose codes are moving averages of the assigned vectors."""

    shapes = {"sizes": (3,), "sums": (3, 3), "codes": (3, 3)}
    initializer = "ones"

    def update(self, x):
        nearest = ops.one_hot(ops.argmax(x, axis=-1), 3)
        self.sizes.assign(0.9 * self.sizes + 0.1 * self.total(ops.sum(nearest, axis=0)))
        self.sums.assign(0.9 * self.sums + 0.1 * self.total(ops.transpose(nearest) @ x))
        self.codes.assign(self.sums / self.sizes[:, None])

    def total(self, x):
        return x


class ReducedCodebook(Codebook):
    def total(self, x):
        return tf.distribute.get_replica_context().all_reduce("SUM", x)


class Normalizing(Stateful):
    """Batch norm with different names, whose averages are written in several ways."""

    shapes = {"mu": (3,), "square": (3,), "bias": (3,), "deviation": (3,)}

    def update(self, x):
        mean = ops.mean(x, axis=0)
        self.mu.assign(0.9 * self.mu + 0.1 * mean)
        self.square.assign_sub((self.square - tf.reduce_mean(x * x, 0)) * 0.1)
        self.bias.assign_add(0.1 * (mean - self.bias))
        self.deviation.assign(ops.mean(ops.abs(x), axis=(0,)))


class MaskedMean(Stateful):
    shapes = {"state": (3,)}

    def update(self, x):
        mask = ops.ones_like(x[:, :1])
        mean = ops.sum(x * mask, axis=0) / (ops.sum(mask, axis=0) + 1e-6)
        self.state.assign(0.9 * self.state + 0.1 * mean)


class Steps(Stateful):
    shapes = {"state": (), "whole": (), "started": ()}
    dtypes = {"whole": "int64", "started": "bool"}

    def update(self, x):
        self.state.assign_add(1.0)
        self.whole.assign_add(1)
        self.started.assign(True)


class Teacher(keras.layers.Layer):
    """Adds a dense layer and a copy with the moving average of its weights."""

    def build(self, shape):
        self.student = keras.layers.Dense(3)
        self.teacher = keras.layers.Dense(3, trainable=False)
        for layer in (self.student, self.teacher):
            layer.build(shape)

    def call(self, x, training=False):
        if training:
            for old, new in zip(self.teacher.variables, self.student.variables, strict=True):
                old.assign(0.9 * old + 0.1 * new)
        return self.student(x) + self.teacher(x)


def train(strategy, layer, count=24, **options):
    """Trains on `count` examples in batches of 8; returns the layer's variables."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    examples = numbers(24, 3) + 0.1
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((3,)), layer(), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse", **options)
    data = (examples, numbers(24, 1, seed=1))
    data = tf.data.Dataset.from_tensor_slices(data).take(count).batch(8)
    model.fit(data, verbose=0)
    return {v.path.split("/", 2)[2]: v.numpy() for v in model.layers[0].variables}


def stated(layer, aggregation):
    """Returns a subclass of the layer whose variables have this aggregation."""
    return type(layer.__name__, (layer,), {"options": {"aggregation": aggregation}})


# Layers that compute the same on all replicas as without a strategy.
EQUAL = {
    "count": stated(Count, "sum"),
    "count of whole numbers": stated(CountOfWholeNumbers, "sum"),
    "sum of all": stated(SumOfAll, "sum"),
    "last sum": stated(LastSum, "sum"),
    "means": stated(Normalizing, "mean"),
    "masked mean": stated(MaskedMean, "mean"),
    "gathered maximum": GatheredMaximum,
    "gathered range": GatheredRange,
    "reduced codebook": ReducedCodebook,
    "means that are seen": Normalizing,
    "masked mean that is seen": MaskedMean,
    "steps": Steps,
    "steps of the first replica": stated(Steps, "only_first_replica"),
    "teacher": Teacher,
}
# Equal to one replica if each process's replicas have neighboring parts of the batch.
IN_ORDER = {"gathered queue": GatheredQueue, "queue with a pointer": QueueWithPointer}
REFUSED = (
    Count,
    CountOfWholeNumbers,
    SumOfAll,
    LastSum,
    Maximum,
    Range,
    MiddleOfRange,
    Queue,
    QueueOfPooledFeatures,
    QueueOfMeanViews,
    Codebook,
)
# The state of the first replica is right for its part, but not for the batch.
FIRST = tuple(
    stated(layer, "only_first_replica") for layer in (Queue, HalfQueue, Count, CountOfWholeNumbers)
)
