"""Command lines of TernGrad's README for TensorFlow 1 work, except for the program's path."""

import os
import pathlib
import shlex
import sys
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

import slim_data
from terngrad_tf.bin.common import distributed_flags, experiments, flags, program, tf1_flags
from terngrad_tf.training.storage import run_folder
from tests import inception_graph
from tests.bin import samples
from tests.slim_data import pictures, programs

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

DISTRIBUTED_COMMANDS = r"""
bazel-bin/inception/imagenet_distributed_train \
--batch_size=32 \
--data_dir=$HOME/imagenet-data \
--job_name='worker' \
--task_id=0 \
--ps_hosts='ps0.example.com:2222' \
--worker_hosts='worker0.example.com:2222,worker1.example.com:2222'

bazel-bin/inception/imagenet_distributed_train \
--batch_size=32 \
--data_dir=$HOME/imagenet-data \
--job_name='worker' \
--task_id=1 \
--ps_hosts='ps0.example.com:2222' \
--worker_hosts='worker0.example.com:2222,worker1.example.com:2222'

bazel-bin/inception/imagenet_distributed_train \
--job_name='ps' \
--task_id=0 \
--ps_hosts='ps0.example.com:2222' \
--worker_hosts='worker0.example.com:2222,worker1.example.com:2222'
"""

DATA_COMMANDS = r"""
python download_and_convert_data.py --dataset_name mnist --dataset_dir ${DATA_PATH}

python download_and_convert_data.py --dataset_name cifar10 --dataset_dir ${DATA_PATH}

python download_and_convert_data.py \
--dataset_name cifar10 \
--dataset_dir ${DATA_PATH} \
--shard True

./split_dataset.sh ~/dataset/imagenet-data/ 16 1

bazel-bin/inception/build_image_data \
  --train_directory="${TRAIN_DIR}" \
  --validation_directory="${VALIDATION_DIR}" \
  --output_directory="${OUTPUT_DIRECTORY}" \
  --labels_file="${LABELS_FILE}" \
  --train_shards=128 \
  --validation_shards=24 \
  --num_threads=8
"""

VARIABLES = {
    "TRAIN_DIR": "/tmp/flowers_train/",
    "FLOWERS_DATA_DIR": "/tmp/flowers-data/",
    "EVAL_DIR": "/tmp/flowers_eval/",
    "MODEL_PATH": "/tmp/inception-v3/model.ckpt-157585",
}


def command_lines(commands=COMMANDS, **variables):
    """Returns [(program name, arguments as the shell passes them)]."""
    found = []
    lines = commands.replace("\\\n", " ").strip().splitlines()
    with mock.patch.dict(os.environ, variables):
        for line in filter(None, lines):
            words = [os.path.expanduser(os.path.expandvars(word)) for word in shlex.split(line)]
            words = words[words[0] == "python" :]
            found.append((pathlib.Path(words[0]).stem, words[1:]))
    return found


def find(name):
    """Returns the program with a name."""
    dataset_name, _, kind = name.rpartition("_")
    if dataset_name.endswith("_distributed"):
        return experiments.distributed_training(dataset_name.removesuffix("_distributed"))
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
        """Runs a command line with /tmp replaced by the test's folder."""
        own = [
            word if str(self.root) in word else word.replace("/tmp/", f"{self.root}/tmp/")
            for word in arguments
        ]
        return samples.call(find(name).main, name, *own, *more)

    def test_every_command_is_parsed(self):
        seen = []

        def parsed(values):
            seen.append(values)

        for name, arguments in command_lines():
            with self.subTest(command=[name, *arguments]):
                define_flags = find(name).define_flags
                self.assertEqual(
                    program.run_program("", define_flags, parsed, [name, *arguments]), 0
                )
                is_training = name.endswith("train")
                config_of = tf1_flags.train_config if is_training else tf1_flags.eval_config
                config_of(seen[-1])
        self.assertLen(seen, 11)
        self.assertEqual(seen[0].data_dir, f"{self.root}/dataset/mnist-data/")
        self.assertEqual((seen[0].batch_size, seen[0].learning_rate_decay_type), (64, "polynomial"))
        self.assertTrue(seen[1].restore_avg_var)
        self.assertTrue(seen[9].fine_tune)
        self.assertTrue(seen[10].run_once)

    def test_the_commands_of_mnist_train_two_workers_and_evaluate_them(self):
        samples.write_mnist(self.root / "raw", {"train": 200, "test": 40})
        data_dir = str(self.root / "dataset" / "mnist-data")
        slim_data.convert(
            "mnist", data_dir, raw_dir=str(self.root / "raw"), allow_other_archives=True
        )
        (train, train_arguments), (evaluate, eval_arguments) = command_lines()[:2]
        # The test takes only a few of the steps.
        status, out, err = self.call(train, train_arguments, "--max_steps", 10)
        self.assertEqual(status, 0, err)
        self.assertRegex(out, r": step 10, entropy_loss = \d\.\d\d, reg_loss = 0\.")
        status, out, err = self.call(evaluate, eval_arguments)
        self.assertEqual(status, 0, err)
        self.assertRegex(out, r"precision @ 1 = 0\.\d{4} recall @ 5 = 0\.\d{4} \[40 examples\]")

    def test_the_commands_of_several_hosts_describe_their_cluster(self):
        lines = command_lines(DISTRIBUTED_COMMANDS)
        told = []

        def parsed(values):
            cluster = flags.config_of(values, distributed_flags.DistributedFlags).resolver()
            told.append(distributed_flags.log_lines(values, cluster))

        for name, arguments in lines:
            define_flags = find(name).define_flags
            self.assertEqual(program.run_program("", define_flags, parsed, [name, *arguments]), 0)
        hosts = [
            "PS hosts are: ['ps0.example.com:2222']",
            "Worker hosts are: ['worker0.example.com:2222', 'worker1.example.com:2222']",
        ]
        self.assertEqual([lines[:2] for lines in told], [hosts] * 3)
        self.assertIn("is worker 0 of 2, the chief; synchronous", told[0][2])
        self.assertIn("is worker 1 of 2; synchronous", told[1][2])
        self.assertIn("is parameter server 0 of 1; synchronous", told[2][2])
        status, out, _ = self.call(*lines[2])
        self.assertEqual(status, 0)
        self.assertIn(hosts[1], out)

    def convert(self, line, *more):
        """Runs a command that writes data, within the test's folder."""
        name, arguments = line
        module = {"split_dataset": "split"}.get(name, name)
        done = programs.call(module, *arguments, *more)
        self.assertEqual((done.status, done.stderr), (0, ""))
        return done.stdout

    def test_the_commands_of_mnist_and_cifar10_write_the_documents_files(self):
        samples.write_mnist(self.root / "raw", {"train": 20, "test": 10})
        samples.write_cifar10(self.root / "raw", 10)
        raw = ("--raw_dir", self.root / "raw", "--allow_other_archives")
        folders = [str(self.root / "dataset" / name) for name in ("mnist", "cifar10", "shards")]
        mnist, cifar10, shards = (
            command_lines(DATA_COMMANDS, DATA_PATH=folder)[i] for i, folder in enumerate(folders)
        )
        self.assertIn("Finished converting the MNIST dataset!", self.convert(mnist, *raw))
        self.assertIn("Finished converting the Cifar10 dataset!", self.convert(cifar10, *raw))
        # The default is 1,000 files for 50,000 images; these 50 need fewer.
        self.convert(shards, *raw, "--train_shards", 4)
        for folder, names in zip(
            folders,
            (
                ["labels.txt", "test-mnist.tfrecord", "train-mnist.tfrecord"],
                ["labels.txt", "test-cifar10.tfrecord", "train-cifar10.tfrecord"],
                [
                    *("labels.txt", "test-00000-of-00001"),
                    *(f"train-{i:05d}-of-00004" for i in range(4)),
                ],
            ),
            strict=True,
        ):
            self.assertEqual(
                [n for n in sorted(os.listdir(folder)) if not n.startswith(".")], names
            )

    def test_the_split_command_links_a_sixteenth(self):
        folder = self.root / "dataset" / "imagenet-data"
        samples.write_photos(folder, {"train": 4})
        for path in folder.glob("train-*"):
            path.unlink()
        for i in range(1024):
            (folder / f"train-{i:05d}-of-01024").write_bytes(b"")
        out = self.convert(command_lines(DATA_COMMANDS)[3])
        self.assertStartsWith(out, f"Splitting to {folder}/worker_1_of_16 ...\n")
        linked = sorted(os.listdir(folder / "worker_1_of_16"))
        self.assertEqual(linked, [f"train-{i:05d}-of-01024" for i in range(64, 128)])

    @pytest.mark.slow
    def test_images_of_the_user_are_converted_trained_on_and_evaluated(self):
        folders = {}
        for split, names in (
            ("train", ("image0.jpeg", "image1.jpg", "image2.png", "my-image.JPG")),
            ("validation", ("imageA.jpeg", "weird-image.PNG")),
        ):
            folders[split] = str(self.root / "own" / split)
            for seed, label in enumerate(("dog", "cat")):
                for place, name in enumerate(names):
                    kind = "PNG" if name.lower().endswith("png") else "JPEG"
                    image = pictures.encode(pictures.pixels(seed=4 * seed + place), kind)
                    pictures.write(os.path.join(folders[split], label, name), image)
        labels, output = self.root / "own" / "labels.txt", self.root / "my-custom-data"
        labels.write_text("dog\ncat\n")
        line = command_lines(
            DATA_COMMANDS,
            TRAIN_DIR=folders["train"],
            VALIDATION_DIR=folders["validation"],
            OUTPUT_DIRECTORY=str(output),
            LABELS_FILE=str(labels),
        )[4]
        # There are fewer images than files that the command asks for.
        out = self.convert(line)
        self.assertLen(list(output.glob("train-*-of-00008")), 8)
        self.assertTrue(out.endswith(": Finished writing all 8 images in data set.\n"), out)
        own = ("--data_dir", output, "--net", "cifar10_alexnet", "--image_size", 24)
        run = self.root / "own" / "run"
        status, _, err = self.call(
            "flowers_train",
            ["--train_dir", str(run), "--num_classes", "2"],
            *(*own, "--batch_size", 4, "--max_steps", 1),
        )
        self.assertEqual(status, 0, err)
        self.assertEqual(run_folder.read_run(run)["model"]["num_classes"], 3)
        status, out, err = self.call(
            "flowers_eval",
            ["--checkpoint_dir", str(run), "--eval_dir", str(run / "eval"), "--run_once"],
            *own[:2],
        )
        self.assertEqual(status, 0, err)
        self.assertIn("[4 examples]", out)
        self.assertRegex(out, r": least accurate of 2 classes: (dog|cat) ")

    @pytest.mark.slow
    def test_the_commands_of_flowers_fine_tune_a_network_of_imagenet(self):
        lines = dict(command_lines())
        samples.write_photos(self.root / "tmp" / "imagenet_data", {"train": 64})
        samples.write_photos(self.root / "tmp" / "flowers-data", {"train": 32, "validation": 20})
        arguments = command_lines()[6][1]
        small = ("--net", "cifar10_alexnet", "--image_size", 24, "--max_steps", 2)
        self.assertEqual(self.call("imagenet_train", arguments, *small)[0], 0)
        arguments = [
            word.replace("inception-v3/model.ckpt-157585", "imagenet_train/model.ckpt-2")
            for word in lines["flowers_train"]
        ]
        # The network and the image size come from the weights.
        status, out, err = self.call("flowers_train", arguments, "--max_steps", 2)
        self.assertEqual(status, 0, err)
        self.assertIn("not restored: logits", out)
        self.assert_flowers_are_evaluated(lines["flowers_eval"])

    def assert_flowers_are_evaluated(self, arguments):
        status, out, err = self.call("flowers_eval", arguments)
        self.assertEqual(status, 0, err)
        self.assertRegex(
            out,
            r": starting evaluation on \(validation\)\.\n"
            r".*: \[1 batches out of 1\] \(\d+\.\d examples/sec; \d+\.\d{3}sec/batch\)\n"
            r".*: precision @ 1 = [01]\.\d{4} recall @ 5 = [01]\.\d{4} \[20 examples\]\n",
        )

    @pytest.mark.long
    def test_the_commands_of_flowers_fine_tune_the_inception_v3_of_2016(self):
        lines = dict(command_lines())
        # Few and small images save time; the layout is the same.
        images = np.zeros([1, 107, 107, 3], np.float32)
        inception_graph.save(self.root / "tmp" / "inception-v3", images, num_classes=1001)
        samples.write_photos(self.root / "tmp" / "flowers-data", {"train": 32, "validation": 20})
        status, out, err = self.call(
            "flowers_train", lines["flowers_train"], "--max_steps", 1, "--batch_size", 4
        )
        self.assertEqual(status, 0, err)
        self.assertIn("inception-v3/model.ckpt-157585\n", out)
        self.assertIn("not restored: logits, aux_logits, state of the optimizer, step\n", out)
        self.assert_flowers_are_evaluated(lines["flowers_eval"])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
