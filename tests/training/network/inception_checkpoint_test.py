"""The Inception-v3 checkpoint of TensorFlow 1 initializes the network, by names."""

import contextlib
import io
import pathlib
import shutil
import sys

import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf import models, training
from terngrad_tf.training.input import data
from terngrad_tf.training.network import inception_checkpoint, pretrained
from terngrad_tf.training.optimization import optimizers
from terngrad_tf.training.optimization.statistics_average import StatisticsAverage
from terngrad_tf.training.runs import trainer
from tests import inception_graph, runs
from tests.bin import samples

# The smallest images that the network accepts.
SIZE = 107
HEADS = ("logits", "aux_logits")
CONV5 = "conv4/BatchNorm/beta"
CLASSES = 6


class InceptionCheckpointTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = runs.class_folder(cls)
        cls.images = np.random.default_rng(1).normal(size=(2, SIZE, SIZE, 3)).astype(np.float32)
        cls.path, cls.values, *cls.logits = inception_graph.save(
            cls.root / "inception-v3", cls.images, CLASSES
        )
        samples.write_photos(cls.root / "data", {"train": 8, "validation": 4})

    def evaluated(self, folder, **changes):
        options = training.EvalConfig.of(
            checkpoint_dir=str(folder),
            eval_dir=str(self.root / "eval"),
            data_dir=str(self.root / "data"),
            dataset_name="flowers",
            subset="validation",
            **changes,
        )
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            result = training.evaluate(options)
        return result, printed.getvalue()

    @pytest.mark.slow
    def test_the_network_computes_what_the_graph_computed(self):
        path, run = pretrained.find_source(self.path)
        self.assertEqual(
            run["model"],
            {"net": "inception_v3", "num_classes": 6, "image_size": SIZE, "channels": 3},
        )
        for averages, wanted in zip((False, True), self.logits, strict=True):
            model = inception_checkpoint.load(path, run, averages=averages)
            logits, _ = model(self.images, training=False)
            self.assertAllClose(logits, wanted, rtol=1e-4, atol=1e-3)
        self.assertGreater(np.max(np.abs(self.logits[0] - self.logits[1])), 0.1)

    def compiled(self, num_classes=CLASSES):
        model = models.build("inception_v3", num_classes, SIZE)
        model.compile(optimizers.build_optimizer("rmsprop", 0.1))
        model.optimizer.build(model.trainable_variables)
        return model

    @pytest.mark.slow
    def test_fine_tuning_takes_all_weights_but_the_logits(self):
        path, run = pretrained.find_source(self.path)
        model = self.compiled(num_classes=4)
        heads = [w for name in HEADS for w in model.get_layer(name).get_weights()]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            pretrained.restore_features(path, run, model)
        for layer, name in (
            ("conv1_bn", "conv0"),
            ("mixed_6a_branch0_1_bn", "mixed_17x17x768a/branch3x3/Conv"),
            ("mixed_7c_branch2_column_bn", "mixed_8x8x2048b/branch3x3dbl/Conv_3"),
        ):
            kept = [f"{name}/BatchNorm/{kind}" for kind in ("beta", "moving_mean")]
            for value, wanted in zip(model.get_layer(layer).get_weights(), kept, strict=False):
                self.assertAllEqual(value, self.values[wanted])
        for before, name in zip(heads, [n for n in HEADS for _ in "wb"], strict=True):
            now = model.get_layer(name).get_weights()
            self.assertTrue(any(np.array_equal(before, value) for value in now))
        self.assertIn(f"Pre-trained model restored from {self.path}\n", printed.getvalue())
        self.assertIn(
            "not restored: logits, aux_logits, state of the optimizer, step\n", printed.getvalue()
        )

    @pytest.mark.slow
    def test_net_and_image_size_come_from_the_checkpoint(self):
        options = training.TrainConfig.of(
            train_dir="",
            data_dir="",
            dataset_name="flowers",
            net=None,
            fine_tune=True,
            pretrained_model_checkpoint_path=self.path,
        )
        source = pretrained.find_source(self.path)
        model = trainer.resolved(options, source).model
        self.assertEqual(model.net, "inception_v3")
        self.assertEqual((model.image_size, model.label_smoothing), (SIZE, 0.1))
        for changes, message in (
            ({"net": "inception_v3"}, "`{}` .*image_size of this one, 299.* with 107"),
            ({"net": "alexnet"}, "`{}` .*net of this one, 'alexnet'"),
            ({"net": "inception_v3", "image_size": SIZE, "fine_tune": False}, "'momentum'"),
        ):
            other = trainer.resolved(options.changed(**changes))
            with self.assertRaisesRegex(
                training.UserError, message.format("pretrained_model_checkpoint_path")
            ):
                pretrained.check_source(source, other, data.DatasetShard(CLASSES, 3, 8))

    @pytest.mark.long
    def test_without_fine_tuning_averages_optimizer_and_step_are_taken(self):
        folder = self.root / "with_optimizer"
        path, values, *_ = inception_graph.save(folder, self.images, CLASSES, with_optimizer=True)
        _, run = pretrained.find_source(path)
        model = self.compiled()
        average = StatisticsAverage(model)
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(pretrained.restore_all(path, run, model, None, average), 157585)
        # Checks the first convolution; the others are alike.
        for variable, name in zip(
            average.variables[:2], ("moving_mean", "moving_variance"), strict=True
        ):
            saved = values[f"conv0/BatchNorm/{name}/ExponentialMovingAverage"]
            self.assertAllEqual(variable.numpy(), saved)
        self.assertEqual(int(model.optimizer.iterations), 157585)
        kept = {variable.path: variable for variable in model.optimizer.variables}
        for layer, name in (("logits/bias", "logits/logits/biases"), ("conv5_bn/beta", CONV5)):
            own = layer.replace("/", "_")
            (weight,) = (v for v in model.variables if v.path == layer)
            self.assertAllEqual(weight.numpy(), values[name])
            for suffix, saved in (
                ("average", "ExponentialMovingAverage"),
                ("mean_square", "RMSProp"),
                ("accumulator", "RMSProp_1"),
            ):
                (found,) = (v for p, v in kept.items() if p.endswith(f"/{own}_{suffix}"))
                self.assertAllEqual(found.numpy(), values[f"{name}/{saved}"])

    @pytest.mark.long
    def test_evaluation_of_the_checkpoint_ends(self):
        folder = pathlib.Path(self.path).parent
        result, printed = self.evaluated(folder)
        self.assertEqual((result.step, result.num_examples), (157585, 4))
        self.assertIn("The final step is evaluated. Exit!", printed)
        moved = self.root / "moved"
        shutil.copytree(folder, moved)
        state = moved / "checkpoint"
        state.write_text(state.read_text().replace(str(folder), "/somewhere/else"))
        self.assertEqual(self.evaluated(moved)[0], result)

    @pytest.mark.long
    def test_an_incomplete_checkpoint_is_refused_in_a_line(self):
        folder = self.root / "lacking"
        folder.mkdir()
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            for name, shape in (
                ("conv0/weights", [3, 3, 3, 32]),
                ("logits/logits/weights", [2048, CLASSES]),
                ("aux_logits/Conv/weights", [1, 1, 128, 768]),
            ):
                tf.compat.v1.get_variable(name, shape)
            session.run(tf.compat.v1.global_variables_initializer())
            lacking = tf.compat.v1.train.Saver().save(session, str(folder / "model"))
        run = inception_checkpoint.describe_run(lacking)
        self.assertEqual(run["max_steps"], 0)
        for averages, name in (
            (False, "BatchNorm/beta"),
            (True, "weights/ExponentialMovingAverage"),
        ):
            with self.assertRaisesRegex(
                training.UserError, rf"must hold conv0/{name} of the shape \(.*: nothing in"
            ):
                inception_checkpoint.load(lacking, run, averages=averages)
        damaged = self.root / "damaged.ckpt"
        damaged.write_bytes(pathlib.Path(self.path).read_bytes()[:5000])
        with self.assertRaisesRegex(training.UserError, "or be the checkpoint inception-v3"):
            pretrained.find_source(str(damaged))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
