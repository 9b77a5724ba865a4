"""Log lines show the means of the steps since the last line, TensorBoard those since its last."""

import contextlib
import io
import math
import re
import sys
import types
import unittest
from unittest import mock

import keras
import numpy as np
import pytest

from terngrad_tf.common import tags
from terngrad_tf.training.configs.run_config import CheckpointConfig
from terngrad_tf.training.runs.training_log import TrainingLog


class Model:
    """Metrics of a model: means since the last reset."""

    optimizer = keras.optimizers.SGD()

    def __init__(self):
        self.reset_metrics()

    def reset_metrics(self):
        self.values = []


class TrainingLogTest(unittest.TestCase):
    def lines(self, losses, first_step, line_freq, board=None):
        """Returns {step: loss of its line}."""
        model, out = Model(), io.StringIO()
        run = types.SimpleNamespace(
            first_step=first_step,
            board=board,
            strategy=types.SimpleNamespace(tasks=None, is_chief=False),
            config=types.SimpleNamespace(
                data=types.SimpleNamespace(batch_size=4),
                checkpoints=CheckpointConfig(),
                model=types.SimpleNamespace(net="lenet"),
                max_steps=len(losses),
                train_dir="run",
            ),
        )
        told = TrainingLog(
            run,
            learning_rate=None,
            traffic=lambda step: None,
            freq=math.gcd(10, line_freq),
            line_freq=line_freq,
        )
        told.set_model(model)
        with contextlib.redirect_stdout(out):
            told.on_train_begin()
            for loss in losses[first_step:]:
                model.values.append(loss)
                names = "loss", "entropy_loss", "precision_at_1"
                told.on_train_batch_end(0, dict.fromkeys(names, np.mean(model.values)))
        found = re.findall(r"step (\d+), .*total_loss = (\S+)", out.getvalue())
        return {int(step): float(loss) for step, loss in found}

    def test_lines_are_means_since_the_last_line(self):
        losses = np.random.default_rng(0).uniform(0, 100, 60)
        for first_step, line_freq in ((0, 10), (0, 7), (0, 20), (15, 20), (0, 4)):
            lines = self.lines(losses, first_step, line_freq)
            begin = first_step
            self.assertEqual(lines.pop(begin), round(losses[begin], 2))
            first_line = line_freq * (begin // line_freq + 1)
            self.assertEqual(list(lines), sorted({*range(first_line, 60, line_freq), 60}))
            for step, loss in lines.items():
                self.assertAlmostEqual(loss, losses[begin:step].mean(), delta=0.0051)
                begin = step

    def test_tensorboard_has_an_entry_of_the_first_step_if_one_is_due(self):
        losses, board = np.random.default_rng(0).uniform(0, 100, 20), mock.Mock()
        for first_step in (0, 5):
            board.reset_mock()
            # Entries for each step, so that the lines' means are right.
            self.lines(losses, first_step, 7, board)
            told = {step: scalars for (scalars, step), _ in board.scalars.call_args_list}
            self.assertEqual(list(told), list(range(first_step + 1, 21)))
            for step, scalars in told.items():
                self.assertAlmostEqual(scalars[tags.TOTAL_LOSS], losses[step - 1])

    def test_the_last_step_has_a_line_and_an_entry(self):
        losses, board = np.random.default_rng(0).uniform(0, 100, 13), mock.Mock()
        for first_step, num_steps in ((0, 13), (0, 3), (11, 13)):
            board.reset_mock()
            lines = self.lines(losses[:num_steps], first_step, 10, board)
            (scalars, step), _ = board.scalars.call_args
            begin = max(first_step, num_steps // 10 * 10)
            mean = losses[begin:num_steps].mean()
            self.assertEqual(step, num_steps)
            self.assertAlmostEqual(scalars[tags.TOTAL_LOSS], mean)
            self.assertAlmostEqual(lines[num_steps], mean, delta=0.0051)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
