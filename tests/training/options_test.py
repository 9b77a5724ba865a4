"""Options are checked at the door."""

import dataclasses
import math
import sys
import typing

import pytest
import tensorflow as tf

from terngrad_tf.training import EvalOptions, SubspaceOptions, TrainOptions, UserError


def train_options(**changes):
    return TrainOptions(**{"train_dir": "t", "data_dir": "d", "dataset_name": "digits", **changes})


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
            ("save_tower", 1),
            ("save_tower", -2),
            ("label_smoothing", 1),
            ("loss_scale", -1),
            ("use_encoding", False),
        ):
            with self.assertRaisesRegex(UserError, f"`{argument}` must be .*{argument}={value}"):
                train_options(**{argument: value})
        for argument in (
            "batch_size",
            "num_examples",
            "eval_interval_secs",
            "num_preprocess_threads",
            "input_queue_memory_factor",
        ):
            with self.assertRaisesRegex(UserError, f"`{argument}` must be .*{argument}=-1"):
                EvalOptions(checkpoint_dir="c", eval_dir="e", data_dir="d", **{argument: -1})

    def test_every_number_has_a_range_and_extremes_are_told_by_name_and_value(self):
        needed = {"train_dir": "t", "data_dir": "d", "dataset_name": "digits"}
        for kind, given in (
            (TrainOptions, needed),
            (EvalOptions, {"checkpoint_dir": "c", "eval_dir": "e", "data_dir": "d"}),
            (SubspaceOptions, {**needed, "pretrained_weight_path": "p"}),
        ):
            kind(**given)
            for name, hint in typing.get_type_hints(kind).items():
                if not {int, float} & {hint, *typing.get_args(hint)}:
                    continue
                for value in (math.inf, -math.inf, math.nan, 10**400, -(10**400), 1e300, "1", True):
                    with self.subTest(name, value=str(value)[:9]):
                        rule = f"^`{name}` must be .*\\. Received: {name}=.{{1,250}}$"
                        with self.assertRaisesRegex(UserError, rule):
                            kind(**{**given, name: value})

    def test_a_loss_scale_of_0_is_none(self):
        self.assertIsNone(train_options(loss_scale=0).loss_scale)
        self.assertEqual(train_options(loss_scale=1024).loss_scale, 1024)

    def test_fine_tuning_needs_weights_to_start_from(self):
        with self.assertRaisesRegex(UserError, "`fine_tune` must go with `pretrained_model_ch"):
            train_options(fine_tune=True)
        train_options(fine_tune=True, pretrained_model_checkpoint_path="p")

    def test_each_worker_needs_an_equal_share_of_the_batch(self):
        with self.assertRaisesRegex(UserError, "`num_nodes` .*num_nodes=33, batch_size=32"):
            train_options(num_nodes=33)
        with self.assertRaisesRegex(UserError, "`batch_size` .*batch_size=32, num_nodes=5"):
            train_options(num_nodes=5)

    def test_workers_default_to_the_gpus_asked_for_or_one(self):
        self.assertEqual(train_options().num_nodes, 1)
        self.assertEqual(train_options(num_gpus=2).num_nodes, 2)
        self.assertEqual(train_options(num_gpus=2, num_nodes=-1).num_nodes, 2)
        self.assertEqual(train_options(num_gpus=2, num_nodes=4).num_nodes, 4)
        self.assertEqual(train_options(num_gpus=0).num_nodes, 1)

    def test_identity_holds_what_changes_the_weights_and_nothing_else(self):
        identity = train_options().identity()
        for field in dataclasses.fields(TrainOptions):
            same_run = field.name in (
                "train_dir data_dir max_steps num_gpus save_iter save_interval_secs "
                "save_summaries_secs max_to_keep save_tower num_preprocess_threads "
                "skip_corrupt_records use_encoding snapshot_per_epoch snapshot_every_steps "
                "snapshot_start_epoch snapshot_keep_max epochs save_epochs"
            ).split(" ")
            self.assertEqual(field.name not in identity, same_run, msg=field.name)

    def test_epochs_become_steps_of_which_the_last_holds_what_is_left(self):
        options = train_options(batch_size=10, epochs=2, save_epochs=0.5).with_steps(26)
        self.assertEqual((options.max_steps, options.save_iter), (6, 2))
        options = train_options(batch_size=10, max_steps=7, save_iter=3).with_steps(26)
        self.assertEqual((options.max_steps, options.save_iter), (7, 3))

    def test_a_line_to_the_end_of_the_run_makes_its_length_part_of_it(self):
        linear = {"learning_rate_decay_type": "linear", "max_steps": 7}
        self.assertEqual(train_options(**linear).identity()["max_steps"], 7)
        self.assertNotIn("max_steps", train_options(decay_epochs=3.0, **linear).identity())

    def test_max_steps_is_part_of_the_run_where_the_learning_rate_depends_on_it(self):
        polynomial = {"learning_rate_decay_type": "polynomial", "max_steps": 7}
        self.assertEqual(train_options(**polynomial).identity()["max_steps"], 7)
        self.assertNotIn("max_steps", train_options(optimizer="adam", **polynomial).identity())


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
