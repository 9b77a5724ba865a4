"""Tests of the chief's loop in asynchronous training, and of its waiting for servers."""

import contextlib
import io
import re
import sys
import threading
import types
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.common.preemption import PreemptedError
from terngrad_tf.distribute import PeerError
from terngrad_tf.parameter_server import loop, worker_log
from terngrad_tf.parameter_server.loop import AsyncRun, StepQueue
from terngrad_tf.training.configs.run_config import CheckpointConfig
from terngrad_tf.training.logs import triggers


class Cluster:
    """A fake `ParameterServerCluster` whose server does not answer."""

    def check_peers(self):
        raise PeerError("lost ps 0")


class StepQueueTest(tf.test.TestCase):
    @pytest.mark.slow
    def test_calls_to_a_lost_server_are_abandoned(self):
        with self.assertRaisesRegex(PeerError, "lost ps 0"):
            StepQueue(Cluster()).call(threading.Event().wait)

    def test_results_and_errors_of_calls_arrive(self):
        steps = StepQueue(Cluster())
        self.assertEqual(steps.call(lambda: 7), 7)
        self.assertIsNone(steps.call(lambda: None))
        with self.assertRaisesRegex(ValueError, "no number"):
            steps.call(lambda: int("no number"))


class _Steps:
    """A fake `StepQueue` of two workers, whose results come in the order of `numbers`."""

    def __init__(self, numbers, ended):
        self._numbers = list(numbers)
        self._ended = ended
        self.num_open = 0

    @property
    def is_full(self):
        return self.num_open >= 2

    def schedule(self, function):
        self.num_open += 1

    def next(self):
        assert self.num_open, "waits for ever"
        self.num_open -= 1
        step = self._numbers.pop(0)
        self._ended(step)
        return {"step": np.int64(step), "total_loss": np.float32(1)}


class AsyncRunTest(tf.test.TestCase):
    def _saved(
        self,
        numbers,
        save_iter,
        told_to_stop,
        tell_at=None,
        tell_after=None,
        step_ended=lambda goes_on=False: None,
    ):
        """Returns the steps at which a run of steps that end in an order saves.

        The signal comes during the save `tell_at`, or after the step `tell_after`.
        """
        saved = []
        steps = _Steps(numbers, lambda step: step == tell_after and told_to_stop.set())

        def save(run, step, steps):
            saved.append(step)
            run.manager.latest_checkpoint = f"model.ckpt-{step}"
            if step == tell_at:
                told_to_stop.set()

        own = CheckpointConfig(save_iter=save_iter, save_interval_secs=None)
        config = types.SimpleNamespace(
            max_steps=len(numbers), model=None, checkpoints=own, data=mock.Mock()
        )
        cluster, shard = mock.Mock(tasks=mock.Mock(names=["worker 0"])), mock.Mock(num_examples=8)
        manager = mock.Mock(latest_checkpoint=None)
        run = AsyncRun(config, cluster, shard, mock.Mock(), mock.Mock(), manager, mock.Mock())
        with (
            mock.patch.multiple(loop, worker_step=mock.DEFAULT, worker_log=mock.DEFAULT),
            mock.patch.multiple(loop, FloatEpochs=mock.DEFAULT, log_freq=mock.DEFAULT),
            mock.patch.object(loop, "StepQueue", lambda cluster: steps),
            mock.patch.object(AsyncRun, "_save", save),
        ):
            try:
                run._train(0, None, None, told_to_stop, step_ended)
            except PreemptedError as error:
                saved.append(str(error))
        return saved

    def test_the_last_steps_are_watched_until_the_end(self):
        told_to_stop, told = threading.Event(), []

        def ended(goes_on=False):
            told.append(goes_on)

        self._saved(range(1, 9), 100, told_to_stop, tell_after=2, step_ended=ended)
        self.assertEqual(told, [True, False, False])

    def test_a_signal_during_a_save_ends_the_run(self):
        saved = self._saved(range(1, 9), 4, threading.Event(), tell_at=5)
        self.assertEqual(saved[0], 5)
        self.assertIn("stopped at step 5, which is saved", saved[1])

    def test_a_signal_before_the_first_step_ends_the_run(self):
        told_to_stop = threading.Event()
        told_to_stop.set()
        self.assertIn("stopped at step 0", self._saved([1, 2], 2, told_to_stop)[-1])

    def test_steps_that_end_in_another_order_are_saved_as_often(self):
        saved = self._saved([1, 3, 2, 4, 5, 7, 6, 8], 2, threading.Event())
        self.assertEqual(saved, [3, 5, 7, 8])

    def test_the_first_and_the_last_step_have_a_line(self):
        traffic = mock.Mock(float32_bytes=8)
        told = worker_log.AsyncLog(
            4, 3, triggers.never, mock.Mock(), float, traffic, last_step=5, screen=None
        )
        names = "worker", "pushed_bytes", "pulled", "entropy_loss", "total_loss", "precision_at_1"
        with contextlib.redirect_stdout(io.StringIO()) as out:
            for step in range(1, 6):
                told.add({"step": step, **dict.fromkeys(names, 0)})
        steps = [int(step) for step in re.findall(r": step (\d+), loss", out.getvalue())]
        self.assertEqual(steps, [0, 3, 5])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
