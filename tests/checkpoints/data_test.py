"""Resumed training reads the batches that uninterrupted training reads, of many kinds of data."""

import pathlib
import shutil
import sys

import pytest
import tensorflow as tf

from terngrad_tf.checkpoints import Checkpoint, files
from terngrad_tf.distribute import TernGradStrategy, private
from tests.checkpoints import programs

# Of 20 or more steps: in the first, second and third epoch, and before the last.
STOPS = (3, 7, 12, 15)


class ResumedDataTest(tf.test.TestCase):
    def assert_resumes(
        self, data, stops=STOPS, strategy=None, initial_epoch=0, resumed=None, **options
    ):
        """Compares a whole run with runs that resume from its checkpoints.

        Args:
            initial_epoch: argument of `fit`.
            resumed: options of the resumed runs' `compile`. Default: those of the whole run.
            **options: arguments of `compile`.
        """
        root = pathlib.Path(self.get_temp_dir()) / f"{self.id()}-{data}"

        def train(name, options=options):
            model = programs.make(strategy, "adam", is_plain=True, **options)
            callbacks = [Checkpoint(root / name, 1, keep=99)]
            return programs.fit(model, data, callbacks, initial_epoch=initial_epoch)

        strategy = strategy or tf.distribute.get_strategy()
        whole = train("whole")
        for stop in stops:
            (root / str(stop)).mkdir()
            for path in files.find(root / "whole"):
                if files.describe(path).position.step <= stop:
                    shutil.copy(path, root / str(stop))
            got = train(str(stop), options if resumed is None else resumed)
            self.assertLen(got, len(whole))
            for one, other in zip(whole, got, strict=True):
                if resumed is None:
                    self.assertAllEqual(one, other, (data, stop))
                else:  # Other loops may sum in another order.
                    self.assertAllClose(one, other, 1e-5, 1e-5, (data, stop))

    def test_orders_of_a_py_dataset(self):
        self.assert_resumes("batches", (7, 12))

    def test_orders_of_a_py_dataset_that_threads_read(self):
        self.assert_resumes("batches of two threads", (12,))

    def test_shuffled_data_of_unknown_length(self):
        self.assert_resumes("filtered", (12,))

    def test_training_that_began_at_a_later_epoch(self):
        self.assert_resumes("shuffled", (3, 7), initial_epoch=1)

    @pytest.mark.slow
    def test_another_number_of_batches_at_once(self):
        self.assert_resumes("shuffled", (7,), resumed={"steps_per_execution": 3})
        # Without a strategy, Keras takes a step after the last batch, by one batch at a time alone.
        strategy = TernGradStrategy(num_nodes=2)
        self.assert_resumes("filtered", (4,), strategy, resumed={"steps_per_execution": 3})

    def test_another_number_of_batches_at_once_that_would_move_steps_is_refused(self):
        rule = "`steps_per_execution` must be 1, as when .* Received: steps_per_execution="
        for stop, count in ((7, 2), (3, 3), (4, 3)):
            with self.assertRaisesRegex(ValueError, f"{rule}{count}"):
                self.assert_resumes("repeated", (stop,), resumed={"steps_per_execution": count})

    @pytest.mark.slow
    def test_steps_that_read_past_the_end_of_an_epoch(self):
        self.assert_resumes("repeated", (4, 7), steps_per_execution=3)

    def test_without_a_strategy_or_optimizer_of_this_package(self):
        private.uninstall_patches()
        self.addCleanup(private.install_patches)
        self.assert_resumes("shuffled", (7,))

    @pytest.mark.slow
    def test_further_data(self):
        for data in programs.DATA:
            with self.subTest(data=data):
                self.assert_resumes(data, (7, 15))

    @pytest.mark.slow
    def test_several_steps_at_once(self):
        for data in ("batches", "filtered", "filtered, in parts"):
            with self.subTest(data=data):
                self.assert_resumes(data, (8, 14), steps_per_execution=2)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
