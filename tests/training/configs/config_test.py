"""Options are checked when a configuration is made."""

import dataclasses
import functools
import math
import os
import re
import sys
import typing
from unittest import mock

import pytest
import tensorflow as tf

from terngrad_tf.bin.command import run_options
from terngrad_tf.distribute import WIRES
from terngrad_tf.phase_2 import SubspaceConfig
from terngrad_tf.training import EvalConfig, TrainConfig, UserError
from terngrad_tf.training.configs import config


def train_config(**changes):
    return TrainConfig.of(
        **{"train_dir": "t", "data_dir": "d", "dataset_name": "digits", **changes}
    )


class OptionsTest(tf.test.TestCase):
    def test_numbers_outside_their_range_are_refused_by_name_and_value(self):
        for argument, value in (
            ("num_nodes", 0),
            ("num_nodes", -2),
            ("num_gpus", -1),
            ("batch_size", 0),
            ("max_steps", 0),
            ("save_iter", 0),
            ("image_size", 0),
            ("size_to_binarize", 0),
            ("num_readers", 0),
            ("num_preprocess_threads", 0),
            ("input_queue_memory_factor", 0),
            ("floating_grad_epoch", -1),
            ("label_smoothing", 1),
            ("loss_scale", -1),
            ("decay_epochs", 0),
            ("grad_bits", 0),
            ("grad_bits", 9),
        ):
            with self.assertRaisesRegex(UserError, f"`{argument}` must be .*{argument}={value}"):
                train_config(**{argument: value})
        for argument in (
            "batch_size",
            "num_examples",
            "eval_interval_secs",
            "num_preprocess_threads",
            "input_queue_memory_factor",
        ):
            with self.assertRaisesRegex(UserError, f"`{argument}` must be .*{argument}=-1"):
                EvalConfig.of(checkpoint_dir="c", eval_dir="e", data_dir="d", **{argument: -1})

    def test_every_number_has_a_range_and_extremes_are_refused_by_name_and_value(self):
        needed = {"train_dir": "t", "data_dir": "d", "dataset_name": "digits"}
        for kind, given in (
            (TrainConfig, needed),
            (EvalConfig, {"checkpoint_dir": "c", "eval_dir": "e", "data_dir": "d"}),
            (SubspaceConfig, {**needed, "pretrained_weight_path": "p"}),
        ):
            kind.of(**given)
            for field in config.options(kind):
                if not {int, float} & {field.type, *typing.get_args(field.type)}:
                    continue
                name = config.name_of(field)
                for value in (math.inf, -math.inf, math.nan, 10**400, -(10**400), 1e300, "1", True):
                    with self.subTest(case=name, value=str(value)[:9]):
                        rule = f"^`{name}` must be .*\\. Received: {name}=.{{1,250}}$"
                        with self.assertRaisesRegex(UserError, rule):
                            kind.of(**{**given, name: value})

    def test_options_are_found_by_name_at_any_depth(self):
        config = train_config(optimizer="adam", size_to_binarize=9)
        self.assertEqual((config.optimizer.name, config.gradients.min_size), ("adam", 9))
        changed = config.changed(net="alexnet", seed=2)
        self.assertEqual(changed.values(), config.values() | {"net": "alexnet", "seed": 2})
        with self.assertRaisesRegex(TypeError, "no option 'sede'"):
            config.changed(sede=2)

    def test_a_path_may_begin_with_the_home_folder(self):
        with mock.patch.dict(os.environ, HOME="/home/me"):
            config = train_config(train_dir="~/run", data_dir="~/a ~")
            self.assertEqual(
                run_options.parser().parse_args(["--log-dir=~/x"]).log_dir, "/home/me/x"
            )
        self.assertEqual(config.train_dir, "/home/me/run")
        self.assertEqual(config.data.data_dir, "/home/me/a ~")
        with (
            mock.patch.dict(os.environ, HOME="/home/[me]"),
            self.assertRaisesRegex(UserError, r"`train_dir` must be .*'/home/\[me\]/run'"),
        ):
            train_config(train_dir="~/run", data_dir="data")

    def test_the_docstring_lists_every_option(self):
        for kind in (TrainConfig, EvalConfig, SubspaceConfig):
            for field in dataclasses.fields(kind):
                self.assertIn(f"    {field.name}: ", kind.__doc__)

    def test_the_help_of_wire_names_all_wires(self):
        (wire,) = (f for f in config.options(TrainConfig) if config.name_of(f) == "wire")
        words = re.findall(r"\w+", wire.metadata["help"])
        self.assertContainsSubset(WIRES, words)

    def test_a_loss_scale_of_0_is_none(self):
        self.assertIsNone(train_config(loss_scale=0).optimizer.loss_scale)
        self.assertEqual(train_config(loss_scale=1024).optimizer.loss_scale, 1024)

    def test_fine_tuning_needs_weights_to_start_from(self):
        with self.assertRaisesRegex(UserError, "`fine_tune` must go with `pretrained_model_ch"):
            train_config(fine_tune=True)
        train_config(fine_tune=True, pretrained_model_checkpoint_path="p")

    def test_evaluations_have_a_folder_of_their_own(self):
        for folder in ("run", "run/", os.path.abspath("run")):
            with self.assertRaisesRegex(UserError, "`eval_dir` must be another folder .*='run'"):
                EvalConfig.of(checkpoint_dir=folder, eval_dir="run", data_dir="d")
        EvalConfig.of(checkpoint_dir="run", eval_dir="run/eval", data_dir="d")

    def test_each_worker_needs_an_equal_share_of_the_batch(self):
        with self.assertRaisesRegex(UserError, "`num_nodes` .*num_nodes=33, batch_size=32"):
            train_config(num_nodes=33)
        with self.assertRaisesRegex(UserError, "`batch_size` .*batch_size=32, num_nodes=5"):
            train_config(num_nodes=5)

    def test_workers_default_to_the_gpus_asked_for_or_one(self):
        self.assertEqual(train_config().cluster.num_nodes, 1)
        self.assertEqual(train_config(num_gpus=2).cluster.num_nodes, 2)
        self.assertEqual(train_config(num_gpus=2, num_nodes=-1).cluster.num_nodes, 2)
        self.assertEqual(train_config(num_gpus=2, num_nodes=4).cluster.num_nodes, 4)
        self.assertEqual(train_config(num_gpus=0).cluster.num_nodes, 1)

    def test_local_steps_belong_to_a_run_that_takes_them(self):
        local = set(train_config().local_steps.values())
        self.assertTrue(local.isdisjoint(train_config().identity()))
        self.assertContainsSubset(local, train_config(sync_every=2, overlap=1).identity())
        self.assertNotIn("overlap_alpha", train_config(sync_every=2).identity())
        for options, momentum in (
            ({"sync_every": 8}, 0.0),
            ({"sync_every": 32}, 0.5),
            ({"sync_seconds": 2}, 0.5),
            ({"sync_every": 8, "outer_momentum": 0.9}, 0.9),
        ):
            self.assertEqual(train_config(**options).identity()["outer_momentum"], momentum)

    def test_options_of_local_steps_need_local_steps(self):
        for name, value in (
            ("outer_learning_rate", 0.5),
            ("outer_momentum", 0.0),
            ("fragments", 2),
            ("overlap", 1),
        ):
            with self.assertRaisesRegex(UserError, f"`{name}` must not .*sync_every.*={value}"):
                train_config(**{name: value})
        with self.assertRaisesRegex(UserError, "`overlap_alpha` must not .*--overlap .*=0.1"):
            train_config(sync_every=2, overlap_alpha=0.1)
        train_config(outer_learning_rate=0.5, outer_momentum=0.1, sync_seconds=1)

    def test_options_of_snapshots_need_snapshots(self):
        for name in ("snapshot_start_epoch", "snapshot_keep_max"):
            with self.assertRaisesRegex(UserError, f"`{name}` must not .*every_steps .*{name}=2"):
                train_config(**{name: 2})
            for period in ("snapshot_per_epoch", "snapshot_every_steps"):
                train_config(**{name: 2, period: 3})

    def test_snapshots_are_taken_by_epochs_or_by_steps(self):
        with self.assertRaisesRegex(UserError, "`snapshot_per_epoch` must not .*together.*=1.0"):
            train_config(snapshot_per_epoch=1.0, snapshot_every_steps=2)

    def test_a_warm_up_and_an_end_of_the_decay_need_a_linear_rate(self):
        for name in ("warmup_epochs", "decay_epochs"):
            for others in ({}, {"learning_rate_decay_type": "linear", "optimizer": "adam"}):
                with self.assertRaisesRegex(UserError, f"`{name}` must not .*=linear.* {name}=2"):
                    train_config(**{name: 2.0, **others})
            train_config(**{name: 2.0, "learning_rate_decay_type": "linear"})

    def test_rotation_has_scales_of_its_own(self):
        for kind, needed in (
            (TrainConfig, {"dataset_name": "digits"}),
            (SubspaceConfig, {"dataset_name": "digits", "pretrained_weight_path": "p"}),
        ):
            make = functools.partial(kind.of, train_dir="t", data_dir="d", rotate=True, **needed)
            quantization = make(grad_bits=2).gradients.quantization(3)
            self.assertTrue(quantization.rotate)
            self.assertIsNone(quantization.clip_factor)
            self.assertEqual(quantization.levels, 2)
            with self.assertRaisesRegex(UserError, "`clip_factor` must not be given .*=2.0"):
                make(clip_factor=2.0)
        self.assertFalse(train_config().gradients.quantization(3).rotate)

    def test_overlap_ends_before_the_next_exchange(self):
        with self.assertRaisesRegex(UserError, "`overlap` must be at most.* 2. Received: overl"):
            train_config(sync_every=4, fragments=2, overlap=3)

    def test_fragments_divide_the_steps_between_exchanges(self):
        with self.assertRaisesRegex(UserError, "`fragments` must divide `sync_every`, 4.*ments=3"):
            train_config(sync_every=4, fragments=3)

    def test_processes_may_differ_only_in_folders_and_devices(self):
        config = train_config()
        own = {"train_dir", "data_dir", "num_gpus", "num_preprocess_threads"}
        self.assertEqual(set(config.values()) - set(config.values("shared")), own)

    def test_epochs_are_converted_to_steps_rounding_up(self):
        options = train_config(batch_size=10, epochs=2, save_epochs=0.5).with_steps(26)
        self.assertEqual((options.max_steps, options.checkpoints.save_iter), (6, 2))
        options = train_config(batch_size=10, max_steps=7, save_iter=3).with_steps(26)
        self.assertEqual((options.max_steps, options.checkpoints.save_iter), (7, 3))
        # In floats, 1.1 * 50000 / 100 is above 550.
        options = train_config(batch_size=100, epochs=1.1, save_epochs=0.55).with_steps(50000)
        self.assertEqual((options.max_steps, options.checkpoints.save_iter), (550, 275))
        # Not a millionth, nor more than 300 or 600 steps by the float's error.
        options = train_config(batch_size=1, epochs=6e-7, save_epochs=3e-7).with_steps(10**9)
        self.assertEqual((options.max_steps, options.checkpoints.save_iter), (600, 300))

    def test_max_steps_identifies_runs_with_linear_decay_to_the_end(self):
        linear = {"learning_rate_decay_type": "linear", "max_steps": 7}
        self.assertEqual(train_config(**linear).identity()["max_steps"], 7)
        self.assertNotIn("max_steps", train_config(decay_epochs=3.0, **linear).identity())

    def test_max_steps_identifies_runs_whose_learning_rate_depends_on_it(self):
        polynomial = {"learning_rate_decay_type": "polynomial", "max_steps": 7}
        self.assertEqual(train_config(**polynomial).identity()["max_steps"], 7)
        self.assertNotIn("max_steps", train_config(optimizer="adam", **polynomial).identity())


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
