"""The study of phase 2: phase 1 once for each seed, then every way to go on from its end."""

import tempfile
import time

import keras
import numpy as np
import tensorflow as tf

import terngrad_tf
from benchmarks import digits
from benchmarks.subspace_settings import BATCH_SIZE, LENGTHS, NETS, PHASE_TWO, SNAPSHOT_EVERY
from terngrad_tf import models
from terngrad_tf.subspace import snapshot_files

_NEVER = 1e9


class LinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A rate that falls in a line to 0 between two steps that may be set again and again.

    One compiled training function then serves every schedule of the study.
    """

    def __init__(self, rate):
        self._rate = rate
        self._start = tf.Variable(_NEVER)
        self._end = tf.Variable(2 * _NEVER)

    def fall(self, start=_NEVER, end=2 * _NEVER):
        """Sets the steps between which the rate falls; without any it is constant."""
        self._start.assign(start)
        self._end.assign(end)

    def __call__(self, step):
        """Rate at a step."""
        left = (self._end - tf.cast(step, tf.float32)) / (self._end - self._start)
        return self._rate * tf.clip_by_value(left, 0.0, 1.0)


def noisy_labels(labels, share, seed):
    """A copy with a share of the labels, chosen at random, replaced by another of the 10 classes.

    Args:
        labels: int32 array [n].
        share: part to replace, in [0, 1].
        seed: fixes the choice.
    """
    rng = np.random.default_rng(seed)
    wrong = rng.permutation(len(labels))[: round(share * len(labels))]
    noisy = labels.copy()
    noisy[wrong] = (noisy[wrong] + rng.integers(1, 10, len(wrong))) % 10
    return noisy


def values(variables):
    """Copies of variables' values, a list of arrays."""
    return [v.numpy() for v in variables]


def assign(variables, arrays):
    """Gives variables the values of arrays."""
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)


class Study:
    """A network and its compiled training, for any seeds and shares of wrong labels.

    Args:
        net: name in `subspace_settings.NETS`.
    """

    def __init__(self, net):
        self._net, self._settings = net, NETS[net]
        self._data = digits.load(self._settings.image_size)
        self._num_examples = len(self._data["train"][0])
        self._steps = self._num_examples // BATCH_SIZE
        self._network = self._build(seed=0)
        self._rate = LinearDecay(self._settings.learning_rate)
        # Two models of the same weights: compiling one leaves the other's functions in place.
        self._first = self._compiled(keras.optimizers.SGD(self._rate, momentum=0.9))
        self._state = [*self._network.variables, *self._first.optimizer.variables]
        self._optimizer_at_start = values(self._first.optimizer.variables)
        self._train_data, self._seed = self._data["train"], 0
        fit(self._first, self._batches(BATCH_SIZE).take(1), 1)  # builds the graph
        self._logits = tf.function(lambda images: self._network(images, training=False))

    def run(self, seed, noise):
        """Trains and tests in every way.

        Args:
            seed: fixes initial weights, order of the images and wrong labels.
            noise: share of training labels that are wrong.

        Yields:
            Dicts with "method", "epochs" after phase 1, "training_loss" (cross-entropy on the
            labels trained on), "test_loss", "test_accuracy", and "time", CPU seconds of training
            and of the components relative to those of an epoch of phase 1. Building graphs,
            re-estimating batch-norm statistics and testing do not count.
        """
        images, labels = self._data["train"]
        self._train_data = images, noisy_labels(labels, noise, seed)
        self._seed = seed
        start = values(self._build(seed).variables) + self._optimizer_at_start
        with tempfile.TemporaryDirectory() as directory:
            assign(self._state, start)
            seconds = self._train(self._settings.epochs, directory)
            self._epoch_seconds = seconds / self._settings.epochs
            self._snapshots = snapshot_files.find_snapshots(directory)
            self._end = values(self._state)
            if self._network.non_trainable_variables:
                yield self._measured("phase 1, moving statistics", 0, 0.0, as_they_are=True)
            yield self._measured("phase 1", 0, 0.0)
            yield from self._continued(directory)
            yield from self._decayed(start)
            yield from self._in_subspace()

    def _continued(self, directory):
        """At the rate of phase 1; and the mean of the last snapshots that this adds."""
        done, seconds = 0, 0.0
        for length in LENGTHS:
            seconds += self._train(length - done, directory)
            done = length
            yield self._measured("continued", length, seconds)
            here = values(self._state)
            subspace, more = self._subspace(snapshot_files.find_snapshots(directory)[-20:], 1)
            subspace.assign_mean(self._network)
            yield self._measured("continued, then mean of 20", length, seconds + more)
            assign(self._state, here)

    def _decayed(self, start):
        """With a rate that falls to 0 at the end, from the end of phase 1 or from the start on."""
        epochs = self._settings.epochs
        for length in LENGTHS:
            assign(self._state, self._end)
            self._rate.fall(epochs * self._steps, (epochs + length) * self._steps)
            seconds = self._train(length)
            yield self._measured("rate to 0", length, seconds)
            assign(self._state, start)
            self._rate.fall(0, (epochs + length) * self._steps)
            seconds = self._train(epochs + length) - epochs * self._epoch_seconds
            yield self._measured("rate to 0 from the start on", length, seconds)
        self._rate.fall()

    def _in_subspace(self):
        """The mean of the snapshots, and training in their subspace."""
        key = None
        for name, variant in PHASE_TWO.items():
            if key != (variant.num_snapshots, variant.num_components, variant.sgd):
                key = variant.num_snapshots, variant.num_components, variant.sgd
                subspace, fit_seconds = self._subspace(self._snapshots[-key[0] :], key[1])
                rate = LinearDecay(self._settings.subspace_rate)
                model = self._compiled(
                    terngrad_tf.SubspaceSGD(subspace, rate)
                    if variant.sgd
                    else terngrad_tf.SubspaceBFGS(subspace)
                )
                fresh = values(model.optimizer.variables)
                fit(model, self._batches(BATCH_SIZE).take(1), 1)  # builds the graph
            size = variant.batch_size or self._num_examples
            batches = self._batches(size)
            for length in LENGTHS:
                # Only P-SGD has a rate that depends on the length.
                if variant.sgd or length == LENGTHS[0]:
                    done, seconds = 0, fit_seconds
                    assign(model.optimizer.variables, fresh)
                    assign(self._state, self._end)
                    rate.fall(0, length * (self._num_examples // size))
                    if variant.from_mean:
                        subspace.assign_mean(self._network)
                        yield self._measured("mean of 20", 0, seconds)
                seconds += fit(model, batches, length - done)
                done = length
                yield self._measured(name, length, seconds)

    def _subspace(self, snapshots, num_components):
        """Components of snapshot files, and CPU seconds."""
        start = time.process_time()
        return terngrad_tf.Subspace.fit(snapshots, num_components), time.process_time() - start

    def _train(self, epochs, directory=None):
        """Trains as in phase 1, with snapshots where there is a folder; returns CPU seconds."""
        callbacks = directory and [
            terngrad_tf.SnapshotCheckpoint(directory, every_steps=SNAPSHOT_EVERY)
        ]
        return fit(self._first, self._batches(BATCH_SIZE), epochs, callbacks)

    def _batches(self, size):
        # All shapes are one to the compiled functions: sizes are not part of the type.
        return (
            tf.data.Dataset.from_tensor_slices(self._train_data)
            .shuffle(self._num_examples, seed=self._seed)
            .batch(size)
            .take(self._num_examples // size)
        )

    def _measured(self, method, epochs, seconds, as_they_are=False):
        """A result for the present weights.

        Args:
            method: name of the way.
            epochs: after phase 1.
            seconds: CPU seconds after phase 1.
            as_they_are: whether batch-norm statistics stay those that training left, which lag
                behind the weights. Otherwise they are re-estimated, for all ways alike.
        """
        if not as_they_are:
            # One pass: building its graph would take longer.
            tf.config.run_functions_eagerly(True)
            terngrad_tf.subspace.update_batch_norm(self._network, self._batches(self._num_examples))
            tf.config.run_functions_eagerly(False)
        training_loss, _ = self._test(*self._train_data)
        test_loss, accuracy = self._test(*self._data["test"])
        return {
            "method": method,
            "epochs": epochs,
            "training_loss": training_loss,
            "test_loss": test_loss,
            "test_accuracy": accuracy,
            "time": seconds / self._epoch_seconds,
        }

    def _test(self, images, labels):
        logits = self._logits(images)
        losses = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        right = np.argmax(logits, axis=-1) == labels
        return float(tf.reduce_mean(losses)), float(np.mean(right))

    def _build(self, seed):
        settings = self._settings
        return models.build(
            self._net,
            10,
            settings.image_size,
            channels=1,
            weight_decay=settings.weight_decay,
            seed=1000 * seed,  # layers count up from it
        )

    def _compiled(self, optimizer):
        """A model of the network's weights, with the optimizer's state created."""
        model = terngrad_tf.SubspaceModel(self._network.inputs, self._network.outputs)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, jit_compile=False)
        optimizer.build(model.trainable_variables)
        return model


def fit(model, batches, epochs, callbacks=None):
    """Trains without a word; returns CPU seconds, which other programs disturb the least."""
    start = time.process_time()
    model.fit(batches, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks)
    return time.process_time() - start
