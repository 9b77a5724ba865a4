"""Each program learns from small data in the official formats, for any workers and gradients."""

import re
import sys

import pytest
import tensorflow as tf

import slim_data
from terngrad_tf.bin.common import experiments
from tests import runs
from tests.bin import samples

# A small network on small images, augmented as for a large one.
PHOTOS = ["--net", "cifar10_alexnet", "--image_size", 24]
LOSS = re.compile(r"step (\d+), entropy_loss = (\d+\.\d\d)")
RESULT = re.compile(r"precision @ 1 = (\d\.\d{4}) recall @ 5 = (\d\.\d{4}) \[(\d+) examples\]")


class ExperimentsTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = runs.class_folder(cls)
        samples.write_mnist(cls.root / "mnist-raw", {"train": 200, "test": 53})
        samples.write_cifar10(cls.root / "cifar10-raw", 40)
        for name in ("mnist", "cifar10"):
            slim_data.convert(
                name,
                str(cls.root / name),
                raw_dir=str(cls.root / f"{name}-raw"),
                allow_other_archives=True,
            )
        for name in ("imagenet", "flowers"):
            samples.write_photos(cls.root / name, {"train": 120, "validation": 33})

    def learns(self, dataset_name, run, *arguments):
        """Trains, checks that the loss falls, and returns the run's folder."""
        train_dir = self.root / f"{dataset_name}-{run}"
        status, out, err = samples.call(
            experiments.training(dataset_name).main,
            f"{dataset_name}_train",
            *("--data_dir", self.root / dataset_name, "--train_dir", train_dir),
            *("--batch_size", 20, "--max_steps", 30, "--initial_learning_rate", 0.005),
            *("--input_queue_memory_factor", 1, "--learning_rate_decay_type", "fixed"),
            *arguments,
        )
        self.assertEqual(status, 0, err)
        losses = {int(step): float(loss) for step, loss in LOSS.findall(out)}
        self.assertEqual(list(losses), [0, 10, 20, 30], out)
        self.assertLess(losses[30], 0.95 * losses[10], out)
        return train_dir

    def evaluate(self, dataset_name, train_dir, *arguments):
        """Returns precision, recall and number of examples of the newest checkpoint."""
        status, out, err = samples.call(
            experiments.evaluation(dataset_name).main,
            f"{dataset_name}_eval",
            *("--data_dir", self.root / dataset_name, "--checkpoint_dir", train_dir),
            *("--eval_dir", self.root / "eval", "--run_once", "--batch_size", 10, *arguments),
        )
        self.assertEqual(status, 0, err)
        precision, recall, count = RESULT.search(out).groups()
        return float(precision), float(recall), int(count)

    def mnist(self, num_nodes, grad_bits):
        """Trains on MNIST; returns the run's folder."""
        return self.learns(
            "mnist",
            f"{num_nodes}-{grad_bits}",
            *("--num_nodes", num_nodes, "--grad_bits", grad_bits, "--clip_factor", 2.5),
        )

    @pytest.mark.slow
    def test_mnist(self):
        run = self.mnist(4, 1)
        precision, recall, count = self.evaluate("mnist", run, "--norestore_avg_var")
        self.assertEqual(count, 53)
        self.assertGreater(precision, 0.1)
        self.assertGreater(recall, 0.5)

    @pytest.mark.long
    def test_mnist_with_other_replicas_and_bits(self):
        for num_nodes, grad_bits in ((1, 1), (1, 32), (4, 32)):
            with self.subTest(num_nodes=num_nodes, grad_bits=grad_bits):
                self.mnist(num_nodes, grad_bits)

    @pytest.mark.long
    def test_cifar10(self):
        self.learns("cifar10", "float", "--num_nodes", 1, "--grad_bits", 32)
        run = self.learns("cifar10", "ternary", "--num_nodes", 4, "--grad_bits", 1)
        self.assertEqual(self.evaluate("cifar10", run)[2], 40)

    @pytest.mark.long
    def test_imagenet(self):
        run = self.learns("imagenet", "float", "--num_nodes", 4, "--grad_bits", 32, *PHOTOS)
        self.learns("imagenet", "ternary", "--num_nodes", 1, "--grad_bits", 1, *PHOTOS)
        self.assertEqual(self.evaluate("imagenet", run)[2], 33)

    @pytest.mark.long
    def test_flowers_also_fine_tune_a_network_trained_on_imagenet(self):
        self.learns("flowers", "float", "--num_nodes", 1, "--grad_bits", 32, *PHOTOS)
        taught = self.learns("imagenet", "taught", "--num_nodes", 1, *PHOTOS)
        run = self.learns(
            "flowers",
            "ternary",
            *("--num_nodes", 4, "--grad_bits", 1, "--fine_tune", *PHOTOS),
            *("--pretrained_model_checkpoint_path", taught),
        )
        self.assertEqual(self.evaluate("flowers", run, "--num_examples", 30)[2], 30)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
