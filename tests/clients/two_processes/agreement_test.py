"""Processes whose programs differ report it, or take the chief's values."""

import pathlib
import re
import signal
import sys
import tempfile

import pytest
import tensorflow as tf

from tests.distribute import processes

FOLDER = pathlib.Path(__file__).parent
TIMEOUT = 300
# Message of both processes for each case of `agreement_worker.refused`.
REFUSED = {
    "momentum": "optimizers differ: momentum is 0.9 on worker 0 but 0.5 on worker 1",
    "rate": "optimizers differ: learning_rate is 0.1 on worker 0 but 0.2 on worker 1",
    "schedule": "optimizers differ: learning_rate.decay_rate is 0.5 on worker 0"
    " but 0.25 on worker 1",
    "loss": 'losses differ: loss is "mse" on worker 0 but "mae" on worker 1',
    "lambda": r'losses differ: loss is "squares\.\S+ with constants \w+" on worker 0'
    r' but "squares\.\S+ with constants \w+" on worker 1',
    "metrics": r'metrics differ: metrics.1 is missing on worker 0 but "mse" on worker 1',
    "compile": "arguments of `compile` differ: steps_per_execution is 1 on worker 0"
    " but 2 on worker 1",
    "model": "models differ: layers.1.rate is 0.5 on worker 0 but 0.25 on worker 1",
    "callbacks": 'callbacks differ: EarlyStopping is "given" on worker 0 but missing on worker 1',
    "patience": "callbacks differ: EarlyStopping.patience is 3 on worker 0 but 2 on worker 1",
    "own callback": 'callbacks differ: Halve is missing on worker 0 but "given" on worker 1',
    "lambda callback": "callbacks differ: LearningRateScheduler.schedule is .* on worker 1",
    "epochs": "arguments of `fit` differ: epochs is 1 on worker 0 but 2 on worker 1",
    "batch": "arguments of `fit` differ: batch_size is 8 on worker 0 but 4 on worker 1",
    "class weight": "arguments of `fit` differ: class_weight.0 is 1.0 on worker 0"
    " but 2.0 on worker 1",
    "validation": 'arguments of `fit` differ: validation_data is "given" on worker 0'
    " but missing on worker 1",
    "evaluate": 'losses differ: loss is "mse" on worker 0 but "mae" on worker 1',
    "predict": "arguments of `predict` differ: batch_size is 8 on worker 0 but 4 on worker 1",
    "two optimizers": "optimizers differ: other.momentum is 0.9 on worker 0 but 0.5 on worker 1",
    "loss of a compile": 'losses differ: loss is "mse" on worker 0 but "mae" on worker 1',
    "loss of its own": "losses differ: own_loss.label_smoothing is 0.1 on worker 0"
    " but 0.2 on worker 1",
    "metric of its own": "metrics differ: own_metric.k is 1 on worker 0 but 2 on worker 1",
    "own loop": "optimizers differ: nesterov is true on worker 0 but false on worker 1",
    "gradients": r'models differ: gradient 0 is "float float32 \(4,\)" on worker 0'
    r' but "float float32 \(5,\)" on worker 1.*',
    "float steps": 'models differ: float_steps is "float from step 0, rounded from step 2" on'
    ' worker 0 but "float from step 0, rounded from step 3" on worker 1',
}
METHOD = (
    "the processes wait for each other at different places: worker 0 in `fit`,"
    " worker 1 in `evaluate`; all must take part in the same, in the same order"
)


class AgreementTest(tf.test.TestCase):
    def run_two(self, script, *arguments):
        """Runs a script on two processes; returns addresses, exit statuses and outputs."""
        addresses = [f"127.0.0.1:{port}" for port in processes.free_ports(2)]
        arguments = [*arguments, tempfile.mkdtemp(dir=self.get_temp_dir())]
        started = [
            processes.start(FOLDER / script, addresses, index, arguments) for index in range(2)
        ]
        outputs = processes.outputs(started, TIMEOUT)
        return addresses, [process.returncode for process in started], outputs

    @pytest.mark.slow
    def test_programs_are_compared_and_weights_come_from_the_chief(self):
        _, statuses, outputs = self.run_two("agreement_worker.py")
        self.assertEqual(statuses, [0, 0], outputs)
        lines = [output.splitlines() for output in outputs]
        for output in outputs:
            for case, reported in REFUSED.items():
                self.assertRegex(output, f"(?m)^{case}: the processes' {reported}$")
            self.assertIn(f"method: {METHOD}\n", output)
            logs = re.findall("^log: (.*)", output, re.MULTILINE)
            # Only the chief's changes of weights and rate, and a callback's, are logged.
            self.assertLen(logs, 2, output)
            for log in logs:
                self.assertRegex(log, "^variables were not those of worker 0, .* worker 1 .*bias")
        for what, rate in (
            ("callbacks of the chief", "0.01"),
            ("weights of the chief", "0.5"),
            ("weights that a callback disturbed", "0.5"),
            ("local steps", "0.001"),
            ("accumulated gradients", "0.01"),
            ("variables that a step made", "5.0"),
        ):
            reported = [next(line for line in own if line.startswith(f"{what}: ")) for own in lines]
            self.assertEqual(reported[0], reported[1])
            self.assertEqual(reported[0].split(": ")[2], rate)

    @pytest.mark.long
    def test_a_chief_may_save_alone_but_evaluating_alone_is_an_error(self):
        addresses, statuses, outputs = self.run_two("alone_worker.py", "evaluates")
        self.assertEqual(statuses, [3, 0], outputs)
        # The chief waits for the slow process.
        self.assertRegex(outputs[0], "(?ms)^saved.*: worker 1 is not there yet.*^trained")
        self.assertIn("trained\n", outputs[1])
        self.assertIn(
            f"error: lost worker 1 ({addresses[1]}: its program is over) while this process waits"
            " in `evaluate`, where all must take part\n",
            outputs[0],
        )

    @pytest.mark.long
    def test_stopping_training_alone_is_an_error(self):
        _, statuses, outputs = self.run_two("alone_worker.py", "stops")
        self.assertEqual(statuses, [3, 3], outputs)
        for output in outputs:
            self.assertIn(
                "error: the processes wait for each other at different places: worker 0 in a step"
                " of `fit`, worker 1 in a reduction, such as that of a metric;",
                output,
            )

    @pytest.mark.slow
    def test_ending_fit_alone_names_both_places(self):
        """TensorFlow says only that two exchanges of different kinds have one key."""
        _, statuses, outputs = self.run_two("alone_worker.py", "stops_after_an_epoch")
        self.assertEqual(statuses, [3, 3], outputs)
        for output in outputs:
            self.assertIn(
                "error: the processes wait for each other at different places: worker 0 in a"
                " reduction, such as that of a metric, worker 1 in the end of `fit`;",
                output,
            )

    @pytest.mark.slow
    def test_processes_may_save_to_one_path(self):
        _, statuses, outputs = self.run_two("alone_worker.py", "saves_to_one_path")
        self.assertEqual(statuses, [0, 0], outputs)
        for output in outputs:
            self.assertIn("left: all.h5 all.keras all.weights.h5\n", output)

    @pytest.mark.slow
    def test_evaluating_alone_in_a_callback_is_an_error(self):
        _, statuses, outputs = self.run_two("alone_worker.py", "evaluates_in_a_callback")
        self.assertEqual(statuses, [3, 3], outputs)
        for output in outputs:
            self.assertIn("epoch 0\n", output)
            self.assertIn(
                "error: the processes wait for each other at different places: worker 0 in a"
                " reduction, such as that of a metric, worker 1 in `evaluate` in a callback of"
                " `fit`;",
                output,
            )
        _, statuses, outputs = self.run_two("alone_worker.py", "predicts_otherwise_in_a_callback")
        self.assertEqual(statuses, [3, 3], outputs)
        different = REFUSED["predict"]
        for output in outputs:
            self.assertIn(f"error: the processes' {different}\n", output)

    @pytest.mark.long
    def test_a_chief_that_has_ended_or_a_process_that_fails_or_compares_is_named(self):
        addresses, statuses, outputs = self.run_two("alone_worker.py", "ends")
        self.assertEqual(statuses, [0, 3], outputs)
        over = f"error: lost worker 0 ({addresses[0]}: its program is over) while this process"
        self.assertIn(f"{over} waits in `fit`, where all must take part\n", outputs[1])
        addresses, statuses, outputs = self.run_two("alone_worker.py", "fails")
        self.assertEqual(statuses, [3, 1], outputs)
        self.assertIn(f"error: worker 1 ({addresses[1]}) ended: no file of data\n", outputs[0])
        _, statuses, outputs = self.run_two("alone_worker.py", "compares")
        self.assertEqual(statuses, [3, 3], outputs)
        for output in outputs:
            self.assertIn("worker 0 in `fit`, worker 1 in the exchange of flags;", output)

    @pytest.mark.slow
    def test_a_killed_process_is_noticed_before_its_heartbeats_are_missed(self):
        addresses, statuses, outputs = self.run_two("alone_worker.py", "is_killed")
        self.assertEqual(statuses, [3, -signal.SIGKILL], outputs)
        self.assertIn(f"error: lost worker 1 ({addresses[1]}: connection refused)\n", outputs[0])

    @pytest.mark.slow
    def test_different_places_in_functions_are_an_error(self):
        """Custom loops in functions and in Python."""
        for case, places in (
            ("takes_a_step_more", "`train_step` of `epoch`, worker 1 in `valid_step` of `epoch`"),
            ("validates_once_more", "`valid_step` of `epoch`, worker 1 in a reduction of `epoch`"),
            ("steps_while_the_other_fits", "`train_step` of `step`, worker 1 in `fit`"),
        ):
            _, statuses, outputs = self.run_two("alone_worker.py", case)
            self.assertEqual(statuses, [3, 3], outputs)
            for output in outputs:
                self.assertIn(
                    "trained\nerror: the processes wait for each other at different places: worker"
                    f" 0 in {places};",
                    re.sub("^[^a-z].*\n", "", output, flags=re.MULTILINE),
                )
        addresses, statuses, outputs = self.run_two(
            "alone_worker.py", "steps_after_the_other_ended"
        )
        self.assertEqual(statuses, [3, 0], outputs)
        self.assertIn(
            f"error: lost worker 1 ({addresses[1]}: its program is over) while this process waits"
            " in `train_step` of `step`, where all must take part\n",
            outputs[0],
        )


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
