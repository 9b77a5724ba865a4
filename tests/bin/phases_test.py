"""Programs of both phases: flags, their defaults, and the file that sets some of them."""

import contextlib
import io
import json
import os
import pathlib
import sys
from unittest import mock

import pytest
import tensorflow as tf
from absl import flags as absl_flags

import slim_data
from terngrad_tf import distribute, phase_2, training
from terngrad_tf.bin import resnet50_imagenet_stage_1, subspace_train
from terngrad_tf.bin.common import flags, tf1_flags
from terngrad_tf.training.evaluation import final_evaluation
from tests.bin import samples


def parse(module, *arguments):
    """Returns the parsed flags of a program."""
    values = absl_flags.FlagValues()
    module.define_flags(values)
    values(["program", *arguments])
    return values


class StageOneTest(tf.test.TestCase):
    def test_defaults_are_the_tutorials_settings(self):
        options = flags.config_of(parse(resnet50_imagenet_stage_1), training.TrainConfig)
        expected = {"net": "resnet_50", "dataset_name": "imagenet", "batch_size": 2048}
        expected |= {"initial_learning_rate": 0.8, "learning_rate_decay_type": "linear"}
        expected |= {"warmup_epochs": 5, "decay_epochs": 90, "momentum": 0.9, "weight_decay": 1e-4}
        expected |= {"label_smoothing": 0.1, "mixed_precision": True, "optimizer": "momentum"}
        expected |= {"loss_scale": 1024, "epochs": 70, "save_epochs": 10}
        expected |= {"snapshot_per_epoch": 1, "snapshot_keep_max": 40, "snapshot_start_epoch": 0}
        self.assertEqual({name: options.values()[name] for name in expected}, expected)

    def test_defaults_give_way_to_flags_that_exclude_them(self):
        def options(*arguments):
            values = parse(resnet50_imagenet_stage_1, *arguments)
            return tf1_flags.train_config(values).values()

        found = options("--snapshot_every_steps=3")
        self.assertEqual((found["snapshot_every_steps"], found["snapshot_per_epoch"]), (3, None))
        for given in ("--learning_rate_decay_type=fixed", "--optimizer=adam"):
            found = options(given)
            self.assertEqual((found["warmup_epochs"], found["decay_epochs"]), (0, None))
            with self.assertRaisesRegex(training.UserError, "`warmup_epochs` must not .*=3"):
                options(given, "--warmup_epochs=3")
        both = "--snapshot_every_steps=3", "--snapshot_per_epoch=2"
        with self.assertRaisesRegex(training.UserError, "`snapshot_per_epoch` must not .*=2"):
            options(*both)

    def test_epochs_must_be_positive(self):
        for name in ("epochs", "save_epochs"):
            status, _, err = samples.call(
                resnet50_imagenet_stage_1.main, "stage_1", f"--{name}", 0, "--data_dir", "/nowhere"
            )
            self.assertEqual(status, 2)
            self.assertIn(
                f"`{name}` must be a number above 0 and at most 1000000. Received: {name}=0.0", err
            )

    def test_synthetic_images_need_no_data_also_at_the_end(self):
        folder = pathlib.Path(self.get_temp_dir())
        lenet = ("--dataset_name=mnist", "--net=lenet", "--nomixed_precision", "--batch_size=8")
        length = ("--epochs=0.0002", "--learning_rate_decay_type=fixed")
        where = ("--data_dir=/nowhere", f"--train_dir={folder / 'run'}")
        main = resnet50_imagenet_stage_1.main
        arguments = ("stage_1", "--benchmark_mode", *lenet, *length, *where)
        status, out, err = samples.call(main, *arguments)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("finished at step 2", out)
        self.assertNotIn("Testing", out)
        # The command that resumes the run keeps as many checkpoints.
        self.assertIn("--max_to_keep=10", (folder / "run" / "report.html").read_text("utf-8"))

    def test_only_records_that_are_there_are_evaluated_at_the_end(self):
        folder = pathlib.Path(self.get_temp_dir())
        (folder / "test-digits.tfrecord").write_bytes(b"record")

        def find(data_dir, subset=None, resolver=None):
            data = training.TrainingDataConfig(data_dir=str(data_dir), dataset_name="digits")
            return final_evaluation.find_subset(data, subset, resolver)

        self.assertEqual((find(folder), find(folder, "test")), ("test", "test"))
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertIsNone(find(folder / "none"))
        self.assertIn("no evaluation at the end: No test files of digits", out.getvalue())
        with self.assertRaisesRegex(slim_data.DataError, "No test files of digits"):
            find(folder / "none", "test")
        # Only the chief evaluates.
        hosts = "a:2222,b:2222"
        other = distribute.cluster_from_hosts(worker_hosts=hosts, task_id=1)
        self.assertIsNone(find(folder / "none", "test", other))
        chief = distribute.cluster_from_hosts(worker_hosts=hosts)
        self.assertEqual(find(folder, None, chief), "test")


class SubspaceTrainTest(tf.test.TestCase):
    def call(self, *arguments):
        status, _, err = samples.call(subspace_train.main, "subspace_train", *arguments)
        self.assertEqual((status, err.count("\n")), (2, 1), err)
        return err

    def test_every_flag_is_an_option_with_the_same_default(self):
        values = parse(subspace_train)
        others = {"boost_config", "boost_level", "eval_subset", "worker_hosts", "task_id"}
        others |= {"rank_table_file", "rank_id", "slurm", "port", "start_timeout", "max_restarts"}
        others |= {"token_file"}
        given = {"train_dir": "t", "data_dir": "d", "pretrained_weight_path": "p"}
        options = phase_2.SubspaceConfig.of(**given).values()
        self.assertContainsSubset(set(values) - others, set(options))
        for name in set(values) - others - set(given):
            # The number of workers defaults to the number of GPUs.
            default = -1 if name == "num_nodes" else options[name]
            self.assertEqual(values[name].value, default, name)

    def test_the_file_sets_options_and_the_command_line_overrides_it(self):
        path = pathlib.Path(self.get_temp_dir()) / "boost.json"
        config = {"boost": {"dim_reduce": True}, "dim_reduce": {"timeout": -1}}
        path.write_text(json.dumps(config))
        arguments = ("--boost_config", path, "--pretrained_weight_path", "/nowhere")
        self.assertIn(
            "`timeout` must be a number of at least 0 and at most 1000000000. Received: timeout=-1",
            self.call(*arguments),
        )
        self.assertIn("Received: pretrained_weight_path", self.call(*arguments, "--timeout", 5))
        with mock.patch.dict(os.environ, HOME=str(path.parent)):
            home = ("--boost_config=~/boost.json", *arguments[2:])
            self.assertIn("`timeout` must be", self.call(*home))

    def test_wrong_options_are_one_line(self):
        self.assertIn("`pretrained_weight_path` must be", self.call())
        wrong = ("--pretrained_weight_path", "x", "--optimizer", "bgfs")
        self.assertIn("`optimizer` must be one of bfgs, sgd. Received", self.call(*wrong))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
