"""MindSpore's boost_config_dict sets options; unknown keys are refused."""

import json
import pathlib
import sys

import pytest
import tensorflow as tf

from terngrad_tf.phase_2 import SubspaceConfig, boost_config
from terngrad_tf.training import UserError

BOOST = {"mode": "manual", "dim_reduce": True}
FEATURES = ("less_bn", "grad_freeze", "adasum", "grad_accumulation", "loss_scale_group")
# MindSpore's tutorial, with "" as --pca_mat_path.
TUTORIAL = {
    "boost": {"mode": "manual", "dim_reduce": True},
    "common": {"device_num": 8},
    "dim_reduce": {
        "rho": 0.55,
        "gamma": 0.9,
        "alpha": 0.001,
        "sigma": 0.4,
        "n_component": 32,
        "pca_mat_path": "",
        "weight_load_dir": "./checkpoint_stage_1/checkpoint_pca",
        "timeout": 1200,
    },
}


class BoostConfigTest(tf.test.TestCase):
    def read(self, config):
        path = pathlib.Path(self.get_temp_dir()) / "boost.json"
        path.write_text(config if isinstance(config, str) else json.dumps(config))
        return boost_config.read_boost_config(path)

    def test_each_known_key_sets_its_option(self):
        dim_reduce = {"rho": 0.5, "gamma": 0.8, "alpha": 0.01, "sigma": 0.3, "n_components": 8}
        dim_reduce |= {"pca_mat_path": "p.npy", "weight_load_dir": "w", "timeout": 1200}
        common = {"device_number": 8}
        found = self.read({"boost": BOOST, "common": common, "dim_reduce": dim_reduce})
        self.assertEqual(found.options, dim_reduce | {"num_nodes": 8})
        self.assertEqual(found.notices, [])
        SubspaceConfig.of(train_dir="t", data_dir="d", pretrained_weight_path="p", **found.options)

    def test_the_tutorials_dictionary_is_accepted_and_its_names_are_reported(self):
        found = self.read(TUTORIAL)
        expected = {"rho": 0.55, "gamma": 0.9, "alpha": 0.001, "sigma": 0.4, "n_components": 32}
        expected |= {"weight_load_dir": "./checkpoint_stage_1/checkpoint_pca", "timeout": 1200}
        expected |= {"pca_mat_path": "", "num_nodes": 8}
        self.assertEqual(found.options, expected)
        for notice, words in zip(
            found.notices,
            (
                "common.device_num is taken as common.device_number",
                "dim_reduce.n_component is taken as dim_reduce.n_components",
            ),
            strict=True,
        ):
            self.assertIn(words, notice)

    def test_a_key_by_both_its_names_is_refused(self):
        for keys in (("n_component", "n_components"), ("n_components", "n_component")):
            with self.assertRaisesRegex(UserError, "must have dim_reduce.n_components once"):
                self.read({"boost": BOOST, "dim_reduce": dict.fromkeys(keys, 8)})

    def test_the_whole_schema_is_accepted_if_other_features_are_off(self):
        config = {
            "boost": BOOST | dict.fromkeys(FEATURES, False),
            "common": {"gradient_split_groups": [50, 100], "device_number": 8},
            "less_bn": {"fn_flag": True, "gc_flag": True},
            "grad_freeze": dict.fromkeys(
                ("param_groups", "freeze_type", "freeze_p", "total_steps"), 1
            ),
            "grad_accumulation": {"grad_accumulation_step": 1},
            "dim_reduce": {"n_components": 32, "pca_mat_path": None, "timeout": 1800},
        }
        found = self.read(config)
        self.assertEqual(found.options, {"num_nodes": 8, "n_components": 32, "timeout": 1800})
        self.assertLen(found.notices, 1)
        self.assertIn("common.gradient_split_groups has no effect", found.notices[0])
        for feature in FEATURES:
            with self.assertRaisesRegex(UserError, f"boost.{feature}=false.* Received: true"):
                self.read({**config, "boost": BOOST | {feature: True}})

    def test_levels_at_which_dimensions_are_not_reduced_are_refused(self):
        for level in boost_config.LEVELS:
            boost_config.check_level(level)
        with self.assertRaisesRegex(UserError, "`boost_level` must be O1 or O2, .*'O0'"):
            boost_config.check_level("O0")

    def test_keys_without_effect_are_refused(self):
        for config, pattern in (
            ({"dim_reduce": {"rho": 0.5}}, "boost.dim_reduce=true.* Received: null"),
            ({"boost": {"dim_reduce": False}}, "boost.dim_reduce=true.* Received: false"),
            ({"boost": {**BOOST, "mode": "auto"}}, 'boost.mode="manual".* Received: "auto"'),
            ({"boost": BOOST, "common": {"fusion": [1]}}, "no other keys than device_number"),
            ({"boost": BOOST, "dim_reduse": {}}, "'dim_reduse' .did you mean 'dim_reduce'"),
            ({"boost": BOOST, "dim_reduce": {"rho": "x"}}, 'a number as dim_reduce.rho.*"x"'),
            ({"boost": BOOST, "dim_reduce": {"n_components": 2.5}}, "an integer as .*2.5"),
            ({"boost": 3}, "an object as boost.* Received: 3"),
            ("[]", r"an object as its whole.* Received: \[\]"),
            ("{", "must be JSON"),
        ):
            with self.assertRaisesRegex(UserError, pattern):
                self.read(config)
        with self.assertRaisesRegex(UserError, "cannot be read: /nowhere: No such file"):
            boost_config.read_boost_config("/nowhere")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
