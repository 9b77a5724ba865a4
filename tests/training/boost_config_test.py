"""MindSpore's boost_config_dict sets options, and what is not known in it is refused."""

import json
import pathlib
import sys

import pytest
import tensorflow as tf

from terngrad_tf.training import SubspaceOptions, UserError, boost_config

BOOST = {"mode": "manual", "dim_reduce": True}


class BoostConfigTest(tf.test.TestCase):
    def read(self, config):
        path = pathlib.Path(self.get_temp_dir()) / "boost.json"
        path.write_text(config if isinstance(config, str) else json.dumps(config))
        return boost_config.read(path)

    def test_each_known_key_sets_its_option(self):
        dim_reduce = {"rho": 0.5, "gamma": 0.8, "alpha": 0.01, "sigma": 0.3, "n_components": 8}
        dim_reduce |= {"pca_mat_path": "p.npy", "weight_load_dir": "w", "timeout": 1200}
        common = {"device_number": 8}
        found = self.read({"boost": BOOST, "common": common, "dim_reduce": dim_reduce})
        self.assertEqual(found, dim_reduce | {"num_nodes": 8})
        SubspaceOptions(train_dir="t", data_dir="d", pretrained_weight_path="p", **found)

    def test_the_misspelt_keys_of_the_tutorial_are_named_with_the_right_ones(self):
        for section, key, right in (
            ("common", "device_num", "device_number"),
            ("dim_reduce", "n_component", "n_components"),
        ):
            with self.assertRaisesRegex(
                UserError, f"'{section}.{key}' .did you mean '{section}.{right}'"
            ):
                self.read({"boost": BOOST, section: {key: 8}})

    def test_what_would_have_no_effect_is_refused(self):
        for config, pattern in (
            ({"dim_reduce": {"rho": 0.5}}, "boost.dim_reduce=true.* Received: null"),
            ({"boost": {"dim_reduce": False}}, "boost.dim_reduce=true.* Received: false"),
            ({"boost": {**BOOST, "less_bn": True}}, "boost.less_bn=false.* Received: true"),
            ({"boost": {**BOOST, "mode": "auto"}}, 'boost.mode="manual".* Received: "auto"'),
            ({"boost": BOOST, "common": {"gradient_split_groups": [1]}}, "no other keys than"),
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
            boost_config.read("/nowhere")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
