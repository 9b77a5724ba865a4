"""Command lines written for the TensorFlow 1 programs of TernGrad work, but for the program's path.

They are those of TernGrad's README for several GPUs on a host.
"""

import os
import pathlib
import shlex
import sys
from unittest import mock

import pytest
import tensorflow as tf

import slim_data
from terngrad_tf import training
from terngrad_tf.bin import experiments, flags, program
from tests.bin import samples

COMMANDS = r"""
bazel-bin/inception/mnist_train \
--optimizer momentum \
--initial_learning_rate 0.01 \
--learning_rate_decay_type polynomial \
--max_steps 10000 \
--net lenet \
--image_size 28 \
--num_gpus 2 \
--batch_size 64 \
--train_dir /tmp/mnist_train \
--data_dir ~/dataset/mnist-data/

bazel-bin/inception/mnist_eval \
--data_dir ~/dataset/mnist-data/ \
--net lenet \
--image_size 28 \
--batch_size 100 \
--checkpoint_dir /tmp/mnist_train  \
--restore_avg_var True \
--eval_interval_secs 300 \
--eval_dir /tmp/mnist_eval \
--subset test

bazel-bin/inception/cifar10_train \
--optimizer adam \
--initial_learning_rate 0.0002 \
--num_epochs_per_decay 256 \
--max_steps 200000 \
--net cifar10_alexnet \
--image_size 24 \
--num_gpus 2 \
--batch_size 128 \
--train_dir /tmp/cifar10_train \
--data_dir ~/dataset/cifar10-data/ 

bazel-bin/inception/cifar10_eval \
--data_dir ~/dataset/cifar10-data/ \
--net cifar10_alexnet \
--image_size 24 \
--batch_size 50 \
--checkpoint_dir /tmp/cifar10_train  \
--restore_avg_var True \
--eval_interval_secs 300 \
--eval_dir /tmp/cifar10_eval \
--subset test

bazel-bin/inception/imagenet_train \
--optimizer momentum \
--net alexnet \
--image_size 224 \
--num_gpus 2 \
--batch_size 256 \
--train_dir /tmp/imagenet_train \
--data_dir ~/dataset/imagenet-data/

bazel-bin/inception/imagenet_eval \
--data_dir ~/dataset/imagenet-data/ \
--net alexnet \
--image_size 224 \
--batch_size 50 \
--checkpoint_dir /tmp/imagenet_train  \
--restore_avg_var True \
--eval_dir /tmp/imagenet_eval

bazel-bin/inception/imagenet_train --num_gpus=1 --batch_size=32 --train_dir=/tmp/imagenet_train --data_dir=/tmp/imagenet_data

bazel-bin/inception/imagenet_train --num_gpus=2 --batch_size=64 --train_dir=/tmp/imagenet_train

bazel-bin/inception/imagenet_eval --checkpoint_dir=/tmp/imagenet_train --eval_dir=/tmp/imagenet_eval

bazel-bin/inception/flowers_train \
  --train_dir="${TRAIN_DIR}" \
  --data_dir="${FLOWERS_DATA_DIR}" \
  --pretrained_model_checkpoint_path="${MODEL_PATH}" \
  --fine_tune=True \
  --initial_learning_rate=0.001 \
  --input_queue_memory_factor=1

bazel-bin/inception/flowers_eval \
  --eval_dir="${EVAL_DIR}" \
  --data_dir="${FLOWERS_DATA_DIR}" \
  --subset=validation \
  --num_examples=500 \
  --checkpoint_dir="${TRAIN_DIR}" \
  --input_queue_memory_factor=1 \
  --run_once
"""  # noqa: E501, W291 (letter for letter)

VARIABLES = {
    "TRAIN_DIR": "/tmp/flowers_train/",
    "FLOWERS_DATA_DIR": "/tmp/flowers-data/",
    "EVAL_DIR": "/tmp/flowers_eval/",
    "MODEL_PATH": "/tmp/imagenet_train/model.ckpt-157585",
}


def command_lines():
    """[(name of the program, its arguments as the shell passes them)]."""
    lines = COMMANDS.replace("\\\n", " ").strip().splitlines()
    for line in filter(None, lines):
        words = [os.path.expanduser(os.path.expandvars(word)) for word in shlex.split(line)]
        yield words[0].rpartition("/")[2], words[1:]


def find(name):
    """The program of a name."""
    dataset_name, _, kind = name.rpartition("_")
    make = experiments.training if kind == "train" else experiments.evaluation
    return make(dataset_name)


class SeedCommandsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.get_temp_dir())
        environment = mock.patch.dict(os.environ, {**VARIABLES, "HOME": str(self.root)})
        environment.start()
        self.addCleanup(environment.stop)

    def call(self, name, arguments, *more):
        """Runs a command line with the folders below /tmp in this test's own."""
        own = [
            word if str(self.root) in word else word.replace("/tmp/", f"{self.root}/tmp/")
            for word in arguments
        ]
        return samples.call(find(name).main, name, *own, *more)

    def test_every_command_is_understood(self):
        seen = []

        def parsed(values):
            seen.append(values)

        for name, arguments in command_lines():
            with self.subTest(command=[name, *arguments]):
                define_flags = find(name).define_flags
                self.assertEqual(program.run("", define_flags, parsed, [name, *arguments]), 0)
                is_training = name.endswith("train")
                options = training.TrainOptions if is_training else training.EvalOptions
                flags.options(seen[-1], options)
        self.assertLen(seen, 11)
        self.assertEqual(seen[0].data_dir, f"{self.root}/dataset/mnist-data/")
        self.assertEqual((seen[0].batch_size, seen[0].learning_rate_decay_type), (64, "polynomial"))
        self.assertTrue(seen[1].restore_avg_var)
        self.assertTrue(seen[9].fine_tune)
        self.assertTrue(seen[10].run_once)

    def test_the_commands_of_mnist_train_two_workers_and_evaluate_them(self):
        samples.write_mnist(self.root / "raw", {"train": 200, "test": 40})
        data_dir = str(self.root / "dataset" / "mnist-data")
        slim_data.convert("mnist", data_dir, raw_dir=str(self.root / "raw"))
        (train, train_arguments), (evaluate, eval_arguments) = list(command_lines())[:2]
        # Only the first of the steps, to end.
        status, out, err = self.call(train, train_arguments, "--max_steps", 10)
        self.assertEqual(status, 0, err)
        self.assertRegex(out, r": step 10, entropy_loss = \d\.\d\d, reg_loss = 0\.")
        status, out, err = self.call(evaluate, eval_arguments)
        self.assertEqual(status, 0, err)
        self.assertRegex(out, r"precision @ 1 = 0\.\d{4} recall @ 5 = 0\.\d{4} \[40 examples\]")

    def test_the_commands_of_flowers_fine_tune_a_network_of_imagenet(self):
        small = ("--net", "cifar10_alexnet", "--image_size", 24, "--max_steps", 2)
        lines = dict(command_lines())
        samples.write_photos(self.root / "tmp" / "imagenet_data", {"train": 64})
        samples.write_photos(self.root / "tmp" / "flowers-data", {"train": 32, "validation": 20})
        arguments = list(command_lines())[6][1]
        self.assertEqual(self.call("imagenet_train", arguments, *small)[0], 0)
        arguments = [word.replace("ckpt-157585", "ckpt-2") for word in lines["flowers_train"]]
        status, out, err = self.call("flowers_train", arguments, *small)
        self.assertEqual(status, 0, err)
        self.assertIn("not restored: logits", out)
        status, out, err = self.call("flowers_eval", lines["flowers_eval"])
        self.assertEqual(status, 0, err)
        self.assertIn("[20 examples]", out)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
