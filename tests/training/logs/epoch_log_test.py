"""Epoch lines count seen images and have the tutorial's format."""

import contextlib
import io
import re
import sys
import unittest

import pytest

from terngrad_tf.training.logs import epoch_log


class EpochLogTest(unittest.TestCase):
    def lines(self, steps, first_step, batch_size, num_examples):
        log = epoch_log.EpochLog(first_step, batch_size, num_examples, lambda logs: logs["bare"])
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            log.on_train_begin()
            for step in range(first_step, first_step + steps):
                log.on_train_batch_end(0, {"loss": 9.0, "bare": step + 1.25})
        return out.getvalue().splitlines()

    def test_a_line_comes_with_the_step_that_completes_an_epoch(self):
        # 2.5 steps an epoch.
        first, *lines = self.lines(6, 0, batch_size=10, num_examples=25)
        self.assertEqual(first, "============== Starting Training ==============")
        self.assertEqual(lines[0], "epoch: 1 step: 3, loss is 3.2500000")
        self.assertEqual(lines[2], "epoch: 2 step: 2, loss is 5.2500000")
        self.assertEqual(len(lines), 4)
        for line in (lines[1], lines[3]):
            self.assertRegex(line, r"^epoch time: \d+\.\d{3} ms, per step time: \d+\.\d{3} ms$")

    def test_a_resumed_epoch_counts_its_time_from_the_resumption(self):
        _, line, times = self.lines(1, 4, batch_size=10, num_examples=25)
        self.assertEqual(line, "epoch: 2 step: 2, loss is 5.2500000")
        epoch, step = map(float, re.findall(r"\d+\.\d+", times))
        self.assertEqual(epoch, step)

    def test_a_step_may_complete_several_epochs(self):
        _, line, _ = self.lines(1, 0, batch_size=10, num_examples=4)
        self.assertEqual(line, "epoch: 2 step: 0, loss is 1.2500000")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
