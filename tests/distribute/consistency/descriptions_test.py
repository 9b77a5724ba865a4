"""Tests that equal objects have equal descriptions on all processes, and others differ."""

import functools
import importlib
import inspect
import pkgutil
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf import checkpoints, distribute, subspace
from terngrad_tf.distribute.consistency import settings
from terngrad_tf.distribute.consistency.callback_settings import callback_settings
from terngrad_tf.distribute.consistency.descriptions import (
    describe,
    describe_model,
    digest,
    flatten,
)

RATE = 0.5


class Stop(keras.callbacks.Callback):
    """Stops training, in a nested function."""

    def __init__(self, patience=3, rank=0):
        super().__init__()
        self.patience = patience
        self.rank = rank

    def on_epoch_end(self, epoch, logs=None):
        def stop():
            self.model.stop_training = True

        stop()


class Assign(keras.callbacks.Callback):
    """Assigns to the learning rate's variable."""

    def on_epoch_end(self, epoch, logs=None):
        self.model.optimizer.learning_rate.assign(0.1)


class Read(keras.callbacks.Callback):
    """Only reads the learning rate."""

    def on_epoch_end(self, epoch, logs=None):
        print(self.model.optimizer.learning_rate)


class Wrapped(keras.Model):
    """A model without a configuration."""

    def __init__(self, units, *, name=None):
        super().__init__(name=name)
        self.inner = keras.Sequential([keras.layers.Dense(units)])
        self.function = lambda x: x

    def call(self, x):
        return self.inner(x)


def sequential(rate=0.5, policy="float32", name=None):
    layers = [keras.layers.Dense(4, dtype=policy, name=name), keras.layers.Dropout(rate)]
    return keras.Sequential([*layers, keras.layers.Lambda(lambda x: 2 * x)])


def branches(of_one):
    inputs = keras.Input([4])
    one, two = keras.layers.Dense(4), keras.layers.Dense(4)
    first = one(inputs)
    return keras.Model(inputs, keras.layers.Add()([first, two(inputs if of_one else first)]))


class DescriptionsTest(tf.test.TestCase):
    def assert_alike(self, *values):
        first, *others = [digest(describe(value)) for value in values]
        for other, value in zip(others, values[1:], strict=True):
            self.assertEqual(other, first, describe(value))

    def test_models_made_alike_are_described_alike_whatever_their_names(self):
        built = sequential(name="another")
        built.build([3, 7])  # on this process's part of a batch
        first = describe_model(sequential())
        self.assertEqual(describe_model(sequential()), first)
        self.assertEqual(describe_model(built), first)
        for make in (lambda: branches(True), lambda: Wrapped(3)):
            self.assertEqual(describe_model(make()), describe_model(make()))
        for one, two in (
            (sequential(), sequential(rate=0.25)),
            (sequential(), sequential(policy="mixed_float16")),
            (branches(True), branches(False)),
            (Wrapped(3), Wrapped(4)),
        ):
            self.assertNotEqual(describe_model(one), describe_model(two))

    def test_functions_differ_by_constants(self):
        def scaled(scale):
            return lambda x: scale * x

        self.assert_alike(scaled(0.5), scaled(0.5))
        functions = [
            scaled(0.5),
            scaled(0.25),
            lambda x: x + 1.5,
            lambda x: RATE * x,
            lambda x: "mean",
            functools.partial(np.sum, axis=1),
            functools.partial(np.sum, axis=0),
        ]
        described = [str(describe(function)) for function in functions]
        self.assertLen(set(described), len(functions))

    def test_anything_is_described_and_rates_as_they_were_given(self):
        class Broken:
            def get_config(self):
                raise KeyError

        rate = keras.optimizers.SGD(0.1).get_config()["learning_rate"]
        self.assertEqual(describe([rate, 1e300, float("nan")]), [0.1, 1e300, "nan"])
        self.assertEqual(describe("/data/host_1/words.txt"), "a path")
        cyclic = []
        cyclic.append(cyclic)
        nothing = {"class_name": 3, "config": {}}
        for value in (Broken(), cyclic, nothing, np.array([object()]), {1: {2}}, len, object):
            digest(describe(value))
        self.assertEqual(
            flatten({"a": {"b": [1, 2], "c": {}}}), {"a.b.0": 1, "a.b.1": 2, "a.c": {}}
        )

    def test_callbacks_that_change_training_are_found_and_others_are_not(self):
        callbacks = keras.callbacks
        for changing in (
            callbacks.EarlyStopping(),
            callbacks.TerminateOnNaN(),
            callbacks.ReduceLROnPlateau(),
            callbacks.LearningRateScheduler(abs),
            callbacks.BackupAndRestore("here"),
            callbacks.LambdaCallback(on_epoch_end=lambda *_: setattr(self, "stop_training", 1)),
            Stop(),
            Assign(),
        ):
            self.assertIn(type(changing).__name__, callback_settings(changing))
        others = [
            callbacks.CSVLogger("log.csv"),
            callbacks.ModelCheckpoint("best.keras"),
            callbacks.TensorBoard("board"),
            callbacks.LambdaCallback(on_epoch_end=print),
            Read(),
        ]
        self.assertEqual(callback_settings(others), {})
        self.assertEqual(callback_settings(None), {})
        self.assertEqual(
            callback_settings([Stop(), *others, Stop(4, rank=1)]),
            {
                "Stop": "given",
                "Stop.patience": 3,
                "another Stop": "given",
                "another Stop.patience": 4,
            },
        )

    def test_all_arguments_of_our_callbacks_that_wait_for_each_other_are_compared(self):
        arguments = {
            "Checkpoint": ["here"],
            "StragglerMonitor": [],
            "TakeInWorkers": [None, None],
        }
        # Places, and functions that one process may have alone.
        left_out = {"folder", "membership", "report", "strategy", "write"}
        classes = {c.__name__: c for c in our_callbacks() if hasattr(c, "runs_on_all_processes")}
        self.assertEqual(classes.keys(), arguments.keys())
        for name, cls in classes.items():
            compared = {f"{name}.{a}" for a in inspect.signature(cls).parameters} - {
                f"{name}.{argument}" for argument in left_out
            }
            found = callback_settings(cls(*arguments[name]))
            self.assertEqual(found.keys(), compared | {name})


def our_callbacks():
    for package in (checkpoints, distribute, subspace):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    return [
        cls
        for cls in keras.callbacks.Callback.__subclasses__()
        if cls.__module__.startswith("terngrad_tf.")
    ]


class Shared:
    """Has a file that only this process knows."""

    def get_config(self):
        raise ValueError("no file")

    def shared_config(self):
        return {"rho": 0.5}


class DifferencesTest(tf.test.TestCase):
    def test_objects_with_files_are_described_without_them(self):
        self.assertEqual(describe(Shared()), {"class": "Shared", "rho": 0.5})

    def test_objects_that_only_one_process_can_describe_differ(self):
        known = {"optimizers": flatten({"class": "SGD", "rate": 0.5})}
        (line,) = settings.differences(
            [known, {"optimizers": flatten("SGD")}], ["chief", "worker 1"]
        )
        self.assertRegex(line, 'optimizers differ: .*missing on chief but "SGD" on worker 1')


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
