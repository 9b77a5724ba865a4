"""Tests of what users see on standard error if a cluster fails."""

import pathlib
import signal
import subprocess
import sys

import pytest
import tensorflow as tf

from terngrad_tf.distribute import PeerError, peer_errors
from terngrad_tf.distribute.communication import peers
from tests.distribute import processes

WORKER = pathlib.Path(__file__).with_name("exits_worker.py")


class ExitsTest(tf.test.TestCase):
    def run_cluster(self, num_started, start_timeout):
        addresses = [f"127.0.0.1:{port}" for port in processes.free_ports(2)]
        started = [
            processes.start(WORKER, addresses, index, [str(start_timeout)])
            for index in range(num_started)
        ]
        outputs = processes.outputs(started, 300)
        return addresses, [process.returncode for process in started], outputs

    @pytest.mark.slow
    def test_the_others_report_the_error_of_one_process(self):
        addresses, statuses, outputs = self.run_cluster(2, 200)
        self.assertEqual(statuses, [3, 1], outputs)
        self.assertNotIn("Traceback", outputs[0])
        self.assertEqual(
            outputs[0].splitlines()[-1],
            f"exits_worker: error: worker 1 ({addresses[1]}) ended: no data on this process"
            " [terngrad explain E13]",
        )
        self.assertIn("Traceback", outputs[1])
        self.assertIn("ValueError: no data on this process", outputs[1])

    def test_a_missing_process_gives_one_line(self):
        addresses, statuses, outputs = self.run_cluster(1, 1)
        self.assertEqual(statuses, [3], outputs)
        self.assertNotIn("Traceback", outputs[0])
        self.assertEqual(
            outputs[0].splitlines()[-1],
            "exits_worker: error: not all processes started in time; missing:"
            f" worker 1 ({addresses[1]}: connection refused)"
            "; if it was started, TF_CONFIG may not be set there [terngrad explain E21]",
        )

    def test_an_interrupt_within_the_context_gives_one_line(self):
        status, error = self.interrupted("exit_on_peer_error()")
        self.assertEqual((status, error.splitlines()[-1]), (130, "-c: error: interrupted"))
        self.assertNotIn("Traceback", error)

    @pytest.mark.slow
    def test_an_interrupt_outside_the_context_gives_a_short_traceback(self):
        status, error = self.interrupted("contextlib.nullcontext()")
        self.assertEqual((status, error.splitlines()[-1]), (-signal.SIGINT, "KeyboardInterrupt"))
        _, _, traceback = error.partition("Traceback")
        self.assertLess(traceback.count("\n"), 30, traceback)
        self.assertNotIn("Traceback", traceback)

    def interrupted(self, context):
        """Status and standard error of a program interrupted in a step inside `context`."""
        source = f"""if True:
            import contextlib, os, signal
            import keras, numpy as np
            from terngrad_tf.distribute import TernGradStrategy, exit_on_peer_error

            class Interrupted(keras.Sequential):
                def train_step(self, data):
                    os.kill(os.getpid(), signal.SIGINT)  # while the step is traced
                    return super().train_step(data)

            with {context}:
                strategy = TernGradStrategy(2)
                with strategy.scope():
                    model = Interrupted([keras.Input([2]), keras.layers.Dense(1)])
                    model.compile("sgd", "mse")
                model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
        """
        ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
        return ended.returncode, ended.stderr

    def test_messages_to_other_processes_are_short_and_printable(self):
        tasks = peers.Tasks(("worker 0", "worker 1"), ("a:1", "b:1"), 1)
        for error in (ValueError("x" * 10**5), ValueError("\x7f\n" * 10**5)):
            line = peers.ended(tasks, error)
            self.assertTrue(line.isprintable())
            self.assertLess(len(line), 1100)
        self.assertEqual(
            peers.ended(tasks, KeyboardInterrupt()),
            "worker 1 (b:1) ended: interrupted (Ctrl-C)",
        )

    def test_peer_errors_raise_the_line_without_tensorflows_message(self):
        addresses = tuple(f"127.0.0.1:{port}" for port in processes.free_ports(2))
        tasks = peers.Tasks(("worker 0", "worker 1"), addresses, 0)
        lost = f"lost worker 1 ({addresses[1]}: connection refused)"
        for message, expected in (
            ("Collective ops is aborted by: /job:worker/replica:0/task:1 is gone\nlong", lost),
            (
                "in user code:\n\n    PeerError: the processes' models differ",
                "the processes' models differ",
            ),
        ):
            with self.assertRaises(PeerError) as caught, peer_errors(tasks):
                try:
                    raise PeerError("the processes' models differ")
                except PeerError as error:
                    raise RuntimeError(message) from error
            self.assertEqual(str(caught.exception), expected)
            self.assertTrue(caught.exception.__suppress_context__)
            self.assertIsNone(caught.exception.__cause__)
        with self.assertRaisesRegex(ValueError, "my own"), peer_errors(tasks):
            raise ValueError("my own")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
