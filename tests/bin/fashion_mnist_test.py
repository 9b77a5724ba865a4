"""Ternary gradients train on 2,000 real pictures of Fashion-MNIST, if its archives are present."""

import gzip
import pathlib
import struct
import sys

import numpy as np
import pytest
import tensorflow as tf

import slim_data
from terngrad_tf.bin import mnist_eval, mnist_train
from tests.bin import samples

ARCHIVES = pathlib.Path("/usr/share/datasets/fashion-mnist")
SIZES = {"train": 2000, "test": 1000}


@pytest.mark.skipif(
    not ARCHIVES.is_dir(), reason="needs Debian's package dataset-fashion-mnist, which is missing"
)
class FashionMnistTest(tf.test.TestCase):
    def write_part(self, folder):
        """Writes archives with the first images of the official archives, which it verifies."""
        folder.mkdir()
        builder = slim_data.find_builder("fashion_mnist")(str(ARCHIVES))
        for split, size in SIZES.items():
            images, labels = zip(*builder.generate_images(split, 0, size), strict=True)
            headers = struct.pack(">4I", 2051, size, 28, 28), struct.pack(">2I", 2049, size)
            contents = np.stack(images).tobytes(), bytes(labels)
            names = samples.MNIST_FILES[split]
            for name, header, content in zip(names, headers, contents, strict=True):
                (folder / name).write_bytes(gzip.compress(header + content, 1))

    @pytest.mark.slow
    def test_four_workers_learn_from_2000_images(self):
        root = pathlib.Path(self.get_temp_dir())
        self.write_part(root / "raw")
        data = {"raw_dir": str(root / "raw"), "allow_other_archives": True}
        slim_data.convert("fashion_mnist", str(root / "data"), shard=True, train_shards=2, **data)
        status, _, err = samples.call(
            *(mnist_train.main, "mnist_train", "--dataset_name=fashion_mnist", "--num_nodes=4"),
            *("--grad_bits=1", "--clip_factor=2.5", "--batch_size=64", "--max_steps=100"),
            *(f"--data_dir={root}/data", f"--train_dir={root}/run"),
        )
        self.assertEqual(status, 0, err)
        status, out, err = samples.call(
            *(mnist_eval.main, "mnist_eval", f"--data_dir={root}/data", "--run_once"),
            *(f"--checkpoint_dir={root}/run", f"--eval_dir={root}/eval", "--device=/cpu:0"),
        )
        self.assertEqual(status, 0, err)
        self.assertIn("at step=100, moving average.", out)
        accuracy = float(out.split("precision @ 1 = ")[1].split()[0])
        # Guessing gets a tenth right.
        self.assertGreater(accuracy, 0.6)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
