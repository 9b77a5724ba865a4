"""Every flag of training and evaluation changes something: a flag without a case here fails."""

import dataclasses
import re
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from absl import flags as absl_flags

import slim_data
from terngrad_tf import training
from terngrad_tf.bin import mnist_eval, mnist_train
from terngrad_tf.bin.common import flags
from terngrad_tf.training.input import inputs
from tests import runs
from tests.bin import samples

TERNARY = ("--grad_bits", 1, "--clip_factor", 2.5)
TWO_WORKERS = (*TERNARY, "--num_nodes", 2)
LOCAL_STEPS = ("--num_nodes", 2, "--sync_every", 1)
TWO_LOCAL_STEPS = ("--num_nodes", 2, "--sync_every", 2)
OVERLAPPING_STEPS = (*TWO_LOCAL_STEPS, "--overlap", 1, "--max_steps", 3)
DROPOUT = ("--net", "alexnet", "--image_size", 57, "--batch_size", 2, "--max_steps", 1)
DAMAGED = ("--data_dir", "{root}/damaged")
START = "--pretrained_model_checkpoint_path"


@dataclasses.dataclass(frozen=True)
class Case:
    """A flag's effect: a run with `base` and `changed` differs from a run with `base`.

    Args:
        see: name of the test's method that returns the observed property of a run.
        changed: arguments that set the flag.
        base: arguments of both runs.
    """

    see: str
    changed: tuple
    base: tuple = ()


def weights(*changed, base=()):
    return Case("weights", changed, base)


def refused(*changed, base=()):
    return Case("error", changed, base)


TRAINING = {
    "batch_size": weights("--batch_size", 16),
    "benchmark_mode": weights("--benchmark_mode"),
    "bits_per_element": weights("--bits_per_element", 0.05, base=TERNARY),
    "clip_factor": weights("--clip_factor", 1.0, base=TERNARY),
    "communication": refused("--communication", "nccl"),
    "data_dir": weights("--data_dir", "{root}/other"),
    "dataset_name": weights("--dataset_name", "cifar10", base=("--benchmark_mode",)),
    "dropout_keep_prob": weights("--dropout_keep_prob", 0.9, base=DROPOUT),
    "fine_tune": weights("--fine_tune", base=("--max_steps", 3, START, "{root}/start")),
    "floating_grad_epoch": weights("--floating_grad_epoch", 1, base=TERNARY),
    "grad_bits": weights("--grad_bits", 1),
    "fragments": weights("--fragments", 2, base=TWO_LOCAL_STEPS),
    "overlap": weights("--overlap", 1, base=(*TWO_LOCAL_STEPS, "--max_steps", 3)),
    "overlap_alpha": weights("--overlap_alpha", 0.25, base=OVERLAPPING_STEPS),
    "image_size": weights("--image_size", 20),
    "initial_learning_rate": weights("--initial_learning_rate", 0.1),
    "input_queue_memory_factor": weights("--input_queue_memory_factor", 2),
    "label_smoothing": weights("--label_smoothing", 0.1),
    "learning_rate_decay_factor": weights(
        "--learning_rate_decay_factor", 0.5, base=("--num_epochs_per_decay", 0.006)
    ),
    "learning_rate_decay_type": weights("--learning_rate_decay_type", "polynomial"),
    "log_device_placement": Case("devices_logged", ("--log_device_placement",)),
    "max_steps": Case("files", ("--max_steps", 1)),
    "max_to_keep": Case("files", ("--max_to_keep", 1), ("--save_iter", 1)),
    "momentum": weights("--momentum", 0.5),
    "net": weights("--net", "cifar10_alexnet"),
    "decay_epochs": weights(*("--decay_epochs", 2), base=("--learning_rate_decay_type", "linear")),
    "mixed_precision": weights("--mixed_precision"),
    "loss_scale": weights("--loss_scale", 3),
    "num_classes": weights("--num_classes", 12),
    "num_epochs_per_decay": weights("--num_epochs_per_decay", 0.006),
    "num_gpus": weights("--num_gpus", 2, base=TERNARY),
    "num_nodes": weights("--num_nodes", 2, base=TERNARY),
    "num_preprocess_threads": Case("pipeline", ("--num_preprocess_threads", 7)),
    "num_readers": weights("--num_readers", 1),
    "optimizer": weights("--optimizer", "adam"),
    "pretrained_model_checkpoint_path": weights(
        START, "{root}/start", base=("--max_steps", 3, "--seed", 2)
    ),
    "quantize_logits": weights("--quantize_logits", base=TERNARY),
    "outer_learning_rate": weights("--outer_learning_rate", 0.5, base=LOCAL_STEPS),
    "outer_momentum": weights("--outer_momentum", 0.9, base=LOCAL_STEPS),
    "rotate": weights("--rotate", base=("--grad_bits", 1)),
    "rounding": weights("--rounding", "independent", base=TWO_WORKERS),
    "save_iter": Case("files", ("--save_iter", 1)),
    "save_tower": refused("--save_tower", 1),
    "seed": weights("--seed", 2),
    "size_to_binarize": weights("--size_to_binarize", 100000, base=TERNARY),
    "skip_corrupt_records": Case("status", ("--skip_corrupt_records",), DAMAGED),
    "snapshot_every_steps": Case("snapshots", ("--snapshot_every_steps", 1)),
    "snapshot_keep_max": Case(
        "snapshots", ("--snapshot_keep_max", 1), ("--snapshot_every_steps", 1)
    ),
    "snapshot_per_epoch": Case("snapshots", ("--snapshot_per_epoch", 180)),
    "snapshot_start_epoch": Case(
        "snapshots", ("--snapshot_start_epoch", 1), ("--snapshot_per_epoch", 180)
    ),
    "subset": weights("--subset", "test"),
    "log_freq": Case("lines", ("--log_freq", 1)),
    "telemetry_freq": Case("files", ("--telemetry_freq", 1)),
    "train_dir": Case("files", ("--train_dir", "{root}/elsewhere")),
    "use_encoding": refused("--use_encoding", "False"),
    "warmup_epochs": weights(
        *("--warmup_epochs", 0.01), base=("--learning_rate_decay_type", "linear")
    ),
    "weight_decay": weights("--weight_decay", 0.1),
    "sync_every": weights("--sync_every", 1, base=("--num_nodes", 2)),
    "sync_seconds": weights("--sync_seconds", 1, base=("--num_nodes", 2)),
    "wire": weights("--wire", "bidirectional", base=TWO_WORKERS),
}


def result(*changed, base=("--run_once",)):
    return Case("result", changed, base)


# The run has no such step, so evaluation keeps waiting for it.
WAITING = ("--max_steps", 100)

EVALUATION = {
    "batch_size": Case("output", ("--batch_size", 3), ("--run_once",)),
    "checkpoint_dir": result("--checkpoint_dir", "{root}/start"),
    "data_dir": result("--data_dir", "{root}/few"),
    "dataset_name": refused("--dataset_name", "cifar10", base=("--run_once",)),
    "device": refused("--device", "shoe:0:0", base=("--run_once",)),
    "dropout_keep_prob": refused("--dropout_keep_prob", 0.9, base=("--run_once",)),
    "eval_dir": Case("files", ("--eval_dir", "{root}/elsewhere"), ("--run_once",)),
    "eval_interval_secs": Case("pause", ("--eval_interval_secs", 7), WAITING),
    "image_size": refused("--image_size", 20, base=("--run_once",)),
    "input_queue_memory_factor": refused("--input_queue_memory_factor", 0, base=("--run_once",)),
    "max_steps": Case("output", ("--max_steps", 100), ("--run_once",)),
    "net": refused("--net", "alexnet", base=("--run_once",)),
    "num_examples": result("--num_examples", 100),
    "num_preprocess_threads": refused("--num_preprocess_threads", 0, base=("--run_once",)),
    "num_readers": refused("--num_readers", 0, base=("--run_once",)),
    "restore_avg_var": result("--restore_avg_var", "False"),
    "run_once": Case("pause", ("--run_once",), WAITING),
    "seed": refused("--seed", 2, base=("--run_once",)),
    "size_to_binarize": refused("--size_to_binarize", 2, base=("--run_once",)),
    "skip_corrupt_records": Case("status", ("--skip_corrupt_records",), (*DAMAGED, "--run_once")),
    "subset": result("--subset", "train"),
    "tower": refused("--tower", 1, base=("--run_once",)),
    "weight_decay": refused("--weight_decay", 0.1, base=("--run_once",)),
}


def flags_of(module):
    """Returns the names of a program's flags."""
    values = absl_flags.FlagValues()
    module.define_flags(values)
    return set(values)


class Paused(BaseException):
    """Ends a waiting evaluation."""


class FlagsTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = runs.class_folder(cls)
        cls.seen = {}
        cls.num_runs = 0
        slim_data.convert("digits", str(cls.root / "data"), shard=True, train_shards=5)
        slim_data.convert("digits", str(cls.root / "other"), shard=True, train_shards=2)
        test = cls.root / "data" / "test-00000-of-00001"
        records = list(tf.data.TFRecordDataset(str(test)).as_numpy_iterator())
        for name, content in (("few", records[:9]), ("damaged", [*records[:9], b"no example"])):
            (cls.root / name).mkdir()
            for split in ("train", "test"):
                path = cls.root / name / f"{split}-00000-of-00001"
                with tf.io.TFRecordWriter(str(path)) as writer:
                    for record in content:
                        writer.write(record)
        for name, steps in (("start", 2), ("run", 12)):
            cls.train("--train_dir", cls.root / name, "--max_steps", steps)

    @classmethod
    def train(cls, *arguments):
        """Trains briefly; returns (exit status, standard output, folder, standard error)."""
        cls.num_runs += 1
        train_dir = cls.root / f"train-{cls.num_runs}"
        status, out, err = samples.call(
            mnist_train.main,
            "mnist_train",
            *("--dataset_name", "digits", "--data_dir", cls.root / "data"),
            *("--train_dir", train_dir, "--batch_size", 8, "--max_steps", 2),
            *("--input_queue_memory_factor", 1),
            *cls.filled(arguments),
        )
        return status, out, train_dir, err

    @classmethod
    def evaluate(cls, *arguments):
        """Evaluates; returns (exit status, standard output, folder, standard error)."""
        cls.num_runs += 1
        eval_dir = cls.root / f"eval-{cls.num_runs}"
        status, out, err = samples.call(
            mnist_eval.main,
            "mnist_eval",
            *("--data_dir", cls.root / "data", "--checkpoint_dir", cls.root / "run"),
            *("--eval_dir", eval_dir),
            *cls.filled(arguments),
        )
        return status, out, eval_dir, err

    @classmethod
    def filled(cls, arguments):
        return [str(argument).replace("{root}", str(cls.root)) for argument in arguments]

    # Observed properties of a run: `call` trains or evaluates.

    def weights(self, call, arguments):
        status, _, train_dir, _ = call(*arguments)
        self.assertEqual(status, 0)
        arrays = runs.saved(tf.train.latest_checkpoint(train_dir))
        # Compares the state of local steps as bytes.
        return {name: np.asarray(array).tobytes() for name, array in arrays.items()}

    def status(self, call, arguments):
        return call(*arguments)[0]

    def error(self, call, arguments):
        return call(*arguments)[3]

    def output(self, call, arguments):
        # Drops times and speeds.
        return re.sub(
            r"\d\d:\d\d:\d\d\.\d+|\d+\.\d+ ?examples/sec|\d\.\d{3} ?sec", "", call(*arguments)[1]
        )

    def lines(self, call, arguments):
        return re.findall(r": step (\d+), ", call(*arguments)[1])

    def result(self, call, arguments):
        return re.search(r"precision @ 1 = .*", call(*arguments)[1])[0]

    def files(self, call, arguments):
        return sorted(path.name.split("tfevents")[0] for path in call(*arguments)[2].glob("*"))

    def snapshots(self, call, arguments):
        return sorted(path.name for path in call(*arguments)[2].glob("checkpoint_pca/*"))

    def pause(self, call, arguments):
        """Returns how often evaluation looks for checkpoints in 100 mocked seconds."""
        slept, looks = [], "ended"

        def sleep(seconds):
            nonlocal looks
            slept.append(seconds)
            if sum(slept) >= 100:
                looks = sys.stdout.getvalue().count("already evaluated")
                raise Paused

        with mock.patch("time.sleep", sleep), mock.patch("time.monotonic", lambda: sum(slept)):
            try:
                call(*arguments)
            except Paused:
                pass
        return looks

    def pipeline(self, call, arguments):
        values = absl_flags.FlagValues()
        mnist_train.define_flags(values)
        values(
            [
                "x",
                "--dataset_name",
                "digits",
                "--data_dir",
                *map(str, [self.root / "data", *arguments]),
            ]
        )
        values.train_dir = "unused"
        options = flags.config_of(values, training.TrainConfig).changed(image_size=28)
        examples = inputs.batches(options, 0)
        graph = tf.raw_ops.DatasetToGraphV2(input_dataset=tf.data.experimental.to_variant(examples))
        nodes = tf.compat.v1.GraphDef.FromString(graph.numpy()).node
        return sorted(
            int(tf.make_ndarray(node.attr["value"].tensor))
            for node in nodes
            if node.op == "Const"
            and node.attr["dtype"].type == tf.int64
            and not node.attr["value"].tensor.tensor_shape.dim
        )

    def devices_logged(self, call, arguments):
        run = subprocess.run(
            samples.command(
                "mnist_train",
                *("--benchmark_mode", "--max_steps", 1, "--batch_size", 2),
                *("--train_dir", self.root / f"devices-{len(arguments)}", *arguments),
            ),
            capture_output=True,
            text=True,
            check=True,
        )
        return "device:CPU:0" in run.stdout + run.stderr

    def test_every_flag_has_a_case(self):
        self.assertEqual(flags_of(mnist_train), set(TRAINING))
        self.assertEqual(flags_of(mnist_eval), set(EVALUATION))

    def check(self, call, cases):
        for flag, case in cases.items():
            with self.subTest(flag=flag):
                self.assertTrue(any(str(a).startswith(f"--{flag}") for a in case.changed), flag)
                see = getattr(self, case.see)
                key = call.__name__, case.see, case.base
                if key not in self.seen:
                    self.seen[key] = see(call, case.base)
                seen = see(call, (*case.base, *case.changed))
                self.assertNotEqual(seen, self.seen[key])
                if case.see == "error":
                    self.assertIn(f"`{flag}` must", seen)

    @pytest.mark.long
    def test_every_flag_of_training_changes_something(self):
        self.check(self.train, TRAINING)

    @pytest.mark.long
    def test_every_flag_of_evaluation_changes_something(self):
        self.check(self.evaluate, EVALUATION)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
