"""Every option that makes a run a different one is refused at resume; the others are harmless."""

import importlib
import json
import pathlib
import sys
import typing

import pytest
import tensorflow as tf
from absl import flags
from absl.testing import parameterized

from terngrad_tf.phase_2 import SubspaceConfig
from terngrad_tf.phase_2.snapshot_average_config import AverageConfig
from terngrad_tf.training import TrainConfig, UserError
from terngrad_tf.training.configs import config
from terngrad_tf.training.storage.run_folder import RunFolder

# run.json from when options were in one flat class.
_RUN_BEFORE = """{
  "dataset_name": "digits", "subset": "train", "num_classes": null, "net": "lenet",
  "image_size": 28, "batch_size": 32, "optimizer": "momentum", "initial_learning_rate": 0.01,
  "learning_rate_decay_type": "fixed", "learning_rate_decay_factor": 0.1,
  "num_epochs_per_decay": 20.0, "warmup_epochs": 0.0, "decay_epochs": null, "momentum": 0.9,
  "weight_decay": 0.0005, "dropout_keep_prob": 0.5, "label_smoothing": 0.0, "fine_tune": false,
  "pretrained_model_checkpoint_path": "", "seed": 1, "num_nodes": 1, "grad_bits": 32,
  "clip_factor": 0.0, "floating_grad_epoch": 0, "size_to_binarize": 1, "quantize_logits": false,
  "rounding": "correlated", "wire": "auto", "mixed_precision": false, "loss_scale": null,
  "num_readers": 4, "input_queue_memory_factor": 16, "benchmark_mode": false
}"""
# Identities of phase 2 and averages from when each listed the names itself.
_PHASE_2_BEFORE = """{
  "dataset_name": "digits", "subset": "train", "net": "lenet", "image_size": 28,
  "batch_size": 512, "weight_decay": 0.0005, "dropout_keep_prob": 0.5, "label_smoothing": 0.0,
  "seed": 1, "num_nodes": 1, "grad_bits": 1, "clip_factor": 2.5, "size_to_binarize": 1,
  "start_at": "last", "epochs": 2, "n_components": null, "rho": 0.55, "sigma": 0.4,
  "alpha": 0.001, "gamma": 0.9, "residual_every": 1, "optimizer": "subspace_bfgs"
}"""
_AVERAGE_BEFORE = """{
  "dataset_name": "digits", "subset": "train", "net": "lenet", "image_size": 28,
  "batch_size": 512, "weight_decay": 0.0005, "dropout_keep_prob": 0.5, "label_smoothing": 0.0,
  "seed": 1, "num_nodes": 1, "size_to_binarize": 1
}"""

_NEEDED = {"train_dir": "t", "data_dir": "d", "dataset_name": "digits", "image_size": 28}
_NEEDED |= {"label_smoothing": 0.0, "num_nodes": 1}
_FROM = {**_NEEDED, "pretrained_weight_path": "p"}
_PRETRAINED = {"pretrained_model_checkpoint_path": "p"}
# Each option has an effect in at least one of these configurations.
BASES = {
    TrainConfig: [
        _NEEDED,
        {**_NEEDED, "sync_every": 12},
        {**_NEEDED, "sync_every": 12, "overlap": 1},
        {**_NEEDED, "learning_rate_decay_type": "linear"},
        {**_NEEDED, **_PRETRAINED},
    ],
    SubspaceConfig: [
        {**_FROM, "start_at": "last"},
        {**_FROM, "start_at": "last", "optimizer": "sgd", "learning_rate": 0.1},
    ],
    AverageConfig: [_FROM],
}
# Further values; each option accepts at least one of them.
OTHERS = (True, False, 1, 2, 3, 4, 0.25, 0.5, 2.0, 64, "sgd", "mean", "independent", "sparse", "x")
PROGRAMS = {
    **{
        f"{dataset}{kind}_train": TrainConfig
        for dataset in ("mnist", "cifar10", "imagenet", "flowers")
        for kind in ("", "_distributed")
        if (dataset, kind) != ("flowers", "_distributed")
    },
    "resnet50_imagenet_stage_1": TrainConfig,
    "subspace_train": SubspaceConfig,
    "average_snapshots": AverageConfig,
}


def others(kind, base, field):
    """Yields configurations that differ from `kind.of(**base)` in one option."""
    name = config.name_of(field)
    types = typing.get_args(field.type) or (field.type,)
    before = kind.of(**base).values()[name]
    for value in OTHERS:
        if value == before or type(value) not in types:
            continue
        try:
            yield kind.of(**{**base, name: value})
        except UserError:
            continue


def all_configs(kind=config.Config):
    """Yields all subclasses of `Config`."""
    for subclass in kind.__subclasses__():
        yield subclass
        yield from all_configs(subclass)


class IdentityTest(tf.test.TestCase, parameterized.TestCase):
    def claim(self, own, extra=None, path="run"):
        identity = own.identity() | (extra or {})
        folder = pathlib.Path(self.get_temp_dir(), path)
        before = config.values_before(type(own))
        RunFolder(folder, identity, before, options=own.values()).close()
        # A folder without a checkpoint would take another run.
        (folder / "model.ckpt-1.index").touch()
        return folder / "run.json"

    @parameterized.parameters(*BASES)
    def test_every_option_is_refused_at_resume_or_declared_harmless(self, kind):
        for field in config.options(kind):
            name = config.name_of(field)
            matters = field.metadata["identity"]
            with self.subTest(case=name):
                refused = tried = 0
                for base in BASES[kind]:
                    own = kind.of(**base)
                    for changed in others(kind, base, field):
                        tried += 1
                        is_other = name in {
                            key
                            for key in {**own.identity(), **changed.identity()}
                            if own.identity().get(key) != changed.identity().get(key)
                        }
                        refused += is_other
                        if matters is True:
                            self.assertTrue(is_other, (base, changed.values()[name]))
                        if matters is False:
                            self.assertEqual(own.identity(), changed.identity())
                if matters is not False:
                    self.assertGreater(tried, 0)
                    self.assertGreater(refused, 0)

    @parameterized.parameters(*PROGRAMS)
    def test_every_flag_is_an_option_of_the_run_or_declared_harmless(self, name):
        program = importlib.import_module(f"terngrad_tf.bin.{name}")
        values = flags.FlagValues()
        program.define_flags(values)
        of_run = {config.name_of(field) for field in config.options(PROGRAMS[name])}
        harmless = {"max_restarts"}  # restarts the same run
        for kind in all_configs():
            if kind.__module__.startswith("terngrad_tf.bin."):
                for field in config.options(kind):
                    if field.metadata["identity"] is False:
                        harmless.add(config.name_of(field))
        self.assertEqual(set(values) - of_run - harmless, set())

    @parameterized.parameters(
        (TrainConfig, _RUN_BEFORE, {"learning_rate_decay_type": "fixed"}),
        (SubspaceConfig, _PHASE_2_BEFORE, {"pretrained_weight_path": "p", "start_at": "last"}),
        (AverageConfig, _AVERAGE_BEFORE, {"pretrained_weight_path": "p"}),
    )
    def test_older_runs_resume_with_their_options(self, kind, held, options):
        for field in [None, *config.options(kind)]:
            base = {**_NEEDED, **options}
            path = self.claim(kind.of(**base))
            run = json.loads(path.read_text())
            run["identity"] = json.loads(held)
            del run["options"]
            path.write_text(json.dumps(run))
            if field is None:
                self.claim(kind.of(**base))
            elif field.metadata["identity"] is True:
                changed = next(others(kind, base, field), None)
                if changed is not None:
                    with self.assertRaisesRegex(UserError, f"differs in .*{config.name_of(field)}"):
                        self.claim(changed)

    def test_saved_options_count_if_the_identity_lacks_them(self):
        own = SubspaceConfig.of(**_FROM, bits_per_element=0.3)
        path = self.claim(own)
        run = json.loads(path.read_text())
        del run["identity"]["bits_per_element"]
        path.write_text(json.dumps(run))
        with self.assertRaisesRegex(UserError, "bits_per_element: 0.3 there, None asked for"):
            self.claim(SubspaceConfig.of(**_FROM))
        self.claim(own)

    def test_parameter_server_runs_compare_all_options(self):
        extra = {"num_hosts": 2, "asynchronous": True}
        path = self.claim(TrainConfig.of(**_NEEDED), extra)
        before = path.read_text()
        for name, value in (("rounding", "independent"), ("wire", "sparse"), ("seed", 2)):
            with self.assertRaisesRegex(UserError, f"differs in {name}: .* asked for"):
                self.claim(TrainConfig.of(**{**_NEEDED, name: value}), extra)
        self.assertEqual(path.read_text(), before)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
