"""The study of phase 2: phase 1 once per seed, then every way to continue from its end."""

import tempfile
import time

import keras
import numpy as np
import tensorflow as tf

import terngrad_tf
from benchmarks.lib import digits, evaluation, fashion
from benchmarks.lib.weights import MovingAverage, assign, values
from benchmarks.subspace.settings import NUM_COMPONENTS, NUM_SNAPSHOTS, PHASE_TWO
from terngrad_tf import models
from terngrad_tf.subspace.weights import snapshot_files

_NEVER = 1e9
_NUM_TRAINING_IMAGES = 5000  # for the training loss


class LinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate that falls linearly to 0 between two steps, which can be set again.

    One compiled training function thus serves every schedule.
    """

    def __init__(self, rate):
        self._rate = rate
        self._start = tf.Variable(_NEVER)
        self._end = tf.Variable(2 * _NEVER)

    def fall(self, start=_NEVER, end=2 * _NEVER):
        """Sets the steps between which the rate falls; without arguments the rate is constant."""
        self._start.assign(start)
        self._end.assign(end)

    def __call__(self, step):
        """Returns the rate at a step."""
        left = (self._end - tf.cast(step, tf.float32)) / (self._end - self._start)
        return self._rate * tf.clip_by_value(left, 0.0, 1.0)


def noisy_labels(labels, share, seed):
    """Returns a copy of int32 labels [n] with a share in [0, 1] replaced by other classes."""
    rng = np.random.default_rng(seed)
    wrong = rng.permutation(len(labels))[: round(share * len(labels))]
    noisy = labels.copy()
    noisy[wrong] = (noisy[wrong] + rng.integers(1, 10, len(wrong))) % 10
    return noisy


class Study:
    """A task and its compiled training, for any seeds and shares of wrong labels."""

    def __init__(self, task, raw_dir):
        self._task = task
        if task.num_examples is None:
            self._data = digits.load(task.image_size)
        else:
            self._data = fashion.load(raw_dir, task.num_examples)
        self._num_examples = len(self._data["train"][0])
        self._steps = self._num_examples // task.batch_size
        self._network = self._build(seed=0)
        self._rate = LinearDecay(task.learning_rate)
        # Two models with the same weights: compiling one keeps the other's functions.
        self._first = self._compiled(keras.optimizers.SGD(self._rate, momentum=0.9))
        self._average = MovingAverage(self._network.trainable_variables)
        self._state = [
            *self._network.variables,
            *self._first.optimizer.variables,
            *self._average.state,
        ]
        self._optimizer_at_start = values(self._first.optimizer.variables)
        self._train_data, self._seed = self._data["train"], 0
        fit(self._first, self._batches(task.batch_size).take(1), 1)  # builds the graph
        self._logits = tf.function(
            lambda images: self._network(images, training=False), reduce_retracing=True
        )

    def run(self, seed, noise):
        """Trains and tests in every way.

        Args:
            seed: fixes initial weights, order of the images and wrong labels.
            noise: share of wrong training labels.

        Yields:
            Dicts with "method", "weights" ("last", "moving average", or "mean of 20" snapshots),
            "epochs" after phase 1, "training_loss" on the training labels, "test_loss",
            "test_accuracy", and "time", CPU seconds of training and components relative to an epoch
            of phase 1.
        """
        images, labels = self._data["train"]
        self._train_data = images, noisy_labels(labels, noise, seed)
        self._seed = seed
        variables = [*values(self._build(seed).variables), *self._optimizer_at_start]
        with tempfile.TemporaryDirectory() as directory:
            assign(self._state[: len(variables)], variables)
            self._average.begin()
            seconds = self._train(self._task.epochs, directory)
            self._epoch_seconds = seconds / self._task.epochs
            self._snapshots = snapshot_files.find_snapshots(directory)
            self._end = values(self._state)
            yield from self._measured("phase 1", 0, 0.0)
            subspace, more = self._subspace(self._snapshots[-NUM_SNAPSHOTS:], 1)
            subspace.assign_mean(self._network)
            yield self._tested("phase 1", "mean of 20", 0, more)
            assign(self._state, self._end)
            yield from self._continued(directory)
            yield from self._decayed()
            yield from self._in_subspace()

    def _continued(self, directory):
        """Continues at the rate of phase 1; also yields the mean of the new last snapshots."""
        done, seconds = 0, 0.0
        for length in self._task.lengths:
            seconds += self._train(length - done, directory)
            done = length
            yield from self._measured("continued", length, seconds)
            here = values(self._state)
            snapshots = snapshot_files.find_snapshots(directory)[-NUM_SNAPSHOTS:]
            subspace, more = self._subspace(snapshots, 1)
            subspace.assign_mean(self._network)
            yield self._tested("continued", "mean of 20", length, seconds + more)
            assign(self._state, here)

    def _decayed(self):
        """Continues at a rate that falls to 0 at the end."""
        epochs = self._task.epochs
        for length in self._task.lengths:
            assign(self._state, self._end)
            self._rate.fall(epochs * self._steps, (epochs + length) * self._steps)
            yield from self._measured("rate to 0", length, self._train(length))
        self._rate.fall()

    def _in_subspace(self):
        """Trains in the subspace of the snapshots, with a separate moving average."""
        snapshots = self._snapshots[-NUM_SNAPSHOTS:]
        subspace, fit_seconds = self._subspace(snapshots, NUM_COMPONENTS)
        for sgd in (False, True):
            rate = LinearDecay(self._task.learning_rate)
            model = self._compiled(
                terngrad_tf.SubspaceSGD(subspace, rate)
                if sgd
                else terngrad_tf.SubspaceBFGS(subspace)
            )
            fresh = values(model.optimizer.variables)
            fit(model, self._batches(self._task.batch_size).take(1), 1)  # builds the graph
            for name in self._task.phase_two:
                variant = PHASE_TWO[name]
                if variant.sgd == sgd:
                    for length, seconds in self._moved(model, variant, rate, fresh):
                        yield from self._measured(name, length, fit_seconds + seconds)

    def _moved(self, model, variant, rate, fresh):
        """Trains in the subspace; yields each length and the CPU seconds up to it.

        Args:
            rate: `LinearDecay` of P-SGD.
            fresh: initial state of the model's optimizer.
        """
        size = variant.batch_size or self._num_examples
        done, seconds = 0, 0.0
        for length in self._task.lengths:
            # Only P-SGD's rate depends on the length.
            if variant.sgd or done == 0:
                done, seconds = 0, 0.0
                assign(model.optimizer.variables, fresh)
                assign(self._state, self._end)
                rate.fall(0, length * (self._num_examples // size))
                if variant.from_average:
                    self._average.assign_to_weights()
                self._average.begin()
            seconds += fit(model, self._batches(size), length - done, [self._average])
            done = length
            yield length, seconds

    def _subspace(self, snapshots, num_components):
        """Returns the components of snapshot files, and the CPU seconds."""
        start = time.process_time()
        return terngrad_tf.Subspace.fit(snapshots, num_components), time.process_time() - start

    def _train(self, epochs, directory=None):
        """Trains as in phase 1, with snapshots if there is a folder; returns CPU seconds."""
        callbacks = [self._average]
        if directory:
            every = self._task.snapshot_every
            callbacks.append(terngrad_tf.SnapshotCheckpoint(directory, every_steps=every))
        return fit(self._first, self._batches(self._task.batch_size), epochs, callbacks)

    def _batches(self, size):
        # Batch sizes are not part of the type: compiled functions have one signature.
        return (
            tf.data.Dataset.from_tensor_slices(self._train_data)
            .shuffle(self._num_examples, seed=self._seed)
            .batch(size)
            .take(self._num_examples // size)
        )

    def _measured(self, method, epochs, seconds):
        """Yields results of the current weights and of their moving average; keeps the weights."""
        yield self._tested(method, "last", epochs, seconds)
        here = values(self._state)
        self._average.assign_to_weights()
        yield self._tested(method, "moving average", epochs, seconds)
        assign(self._state, here)

    def _tested(self, method, weights, epochs, seconds):
        """Returns a result of the network's current weights, with their batch-norm statistics.

        Args:
            epochs: epochs after phase 1.
            seconds: CPU seconds after phase 1.
        """
        # Eager: building a graph takes longer than this pass.
        tf.config.run_functions_eagerly(True)
        terngrad_tf.subspace.update_batch_norm(self._network, self._batches(self._num_examples))
        tf.config.run_functions_eagerly(False)
        first = (array[:_NUM_TRAINING_IMAGES] for array in self._train_data)
        training_loss, _ = evaluation.loss_and_accuracy(self._logits, *first)
        test_loss, accuracy = evaluation.loss_and_accuracy(self._logits, *self._data["test"])
        return {
            "method": method,
            "weights": weights,
            "epochs": epochs,
            "training_loss": training_loss,
            "test_loss": test_loss,
            "test_accuracy": accuracy,
            "time": seconds / self._epoch_seconds,
        }

    def _build(self, seed):
        task = self._task
        return models.build(
            task.net,
            10,
            task.image_size,
            channels=1,
            weight_decay=task.weight_decay,
            seed=1000 * seed,  # layers count up from this seed
        )

    def _compiled(self, optimizer):
        """Returns a model of the network's weights, with the optimizer's state created."""
        model = terngrad_tf.SubspaceModel(self._network.inputs, self._network.outputs)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, jit_compile=False)
        optimizer.build(model.trainable_variables)
        return model


def fit(model, batches, epochs, callbacks=None):
    """Trains silently; returns CPU seconds, which depend least on other programs."""
    start = time.process_time()
    model.fit(batches, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks)
    return time.process_time() - start
