"""A stopped and resumed run has, bit for bit, the weights of an uninterrupted run."""

import contextlib
import io
import sys

import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf import training
from tests import runs


def write_photos(folder, num_examples):
    """Writes TFRecords of JPEGs of noise with classes from 1 to 5, like the flowers'."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    with tf.io.TFRecordWriter(str(folder / "train-00000-of-00001")) as writer:
        for number in range(num_examples):
            photo = generator.integers(0, 256, (70, 80, 3), np.uint8)
            label = tf.train.Feature(int64_list={"value": [1 + number % 5]})
            encoded = tf.train.Feature(bytes_list={"value": [tf.io.encode_jpeg(photo).numpy()]})
            feature = {"image/class/label": label, "image/encoded": encoded}
            writer.write(tf.train.Example(features={"feature": feature}).SerializeToString())


class ResumeTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = runs.class_folder(cls)
        write_photos(cls.root / "data", num_examples=20)

    def train(self, name, max_steps, **changes):
        options = training.TrainConfig.of(
            train_dir=str(self.root / name),
            data_dir=str(self.root / "data"),
            dataset_name="flowers",
            max_steps=max_steps,
            batch_size=4,
            num_nodes=2,
            learning_rate_decay_type="fixed",
            initial_learning_rate=0.001,
            input_queue_memory_factor=1,
            **changes,
        )
        with contextlib.redirect_stdout(io.StringIO()):
            return runs.saved(training.train(options).checkpoint)

    def assert_resumes_exactly(self, **changes):
        net = changes["net"]
        whole = self.train(f"{net}-whole", 7, **changes)
        self.train(f"{net}-parts", 2, **changes)
        parts = self.train(f"{net}-parts", 7, **changes)
        self.assertEqual(whole.keys(), parts.keys())
        for name in whole:
            self.assertAllEqual(whole[name], parts[name], msg=name)

    @pytest.mark.slow
    def test_batch_norm_dropout_and_augmented_photos_over_the_end_of_an_epoch(self):
        self.assert_resumes_exactly(net="alexnet", image_size=57, grad_bits=32, optimizer="gd")

    @pytest.mark.long
    def test_residual_network_with_ternary_gradients(self):
        ternary = {"grad_bits": 1, "clip_factor": 2.5, "quantize_logits": True}
        self.assert_resumes_exactly(net="resnet_20", image_size=32, **ternary)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
