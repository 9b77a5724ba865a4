"""Training programs read custom data sets: idx files and folders of images."""

import sys

import pytest
import tensorflow as tf

import slim_data
from terngrad_tf.bin.common import experiments
from tests import runs
from tests.bin import samples
from tests.slim_data import pictures


class OwnDatasetsTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = runs.class_folder(cls)
        samples.write_mnist(cls.root / "raw", {"train": 40, "test": 20})
        labels = [f"class {i}" for i in range(10)]
        slim_data.convert(
            "idx", str(cls.root / "idx"), raw_dir=str(cls.root / "raw"), labels=labels
        )
        for label in ("a", "b"):
            for i in range(12):
                data = pictures.encode(pictures.pixels(40, 30, seed=i))
                pictures.write(str(cls.root / "photos" / label / f"{i}.jpg"), data)
        slim_data.convert_folder(cls.root / "photos", cls.root / "folder", validation=0.5)

    def test_images_in_place_of_the_flowers_have_the_classes_of_the_flag_or_of_labels_txt(
        self,
    ):
        folder, train_dir = self.root / "seven", self.root / "run_seven"
        samples.write_photos(folder, {"train": 14, "validation": 14}, num_classes=7)
        data = ("--data_dir", folder)
        train = [*data, "--net", "cifar10_alexnet", "--image_size", 24, "--batch_size", 4]
        evaluate = [*data, "--checkpoint_dir", train_dir, "--eval_dir", self.root / "eval_seven"]

        def call(program, *arguments):
            kind = experiments.training if program == "train" else experiments.evaluation
            return samples.call(kind("flowers").main, f"flowers_{program}", *arguments)

        # Only the flag sets the number of classes.
        train += ["--train_dir", train_dir, "--max_steps", 4, "--num_classes", 7]
        status, _, err = call("train", *train)
        self.assertEqual(status, 0, err)
        status, out, err = call("eval", *evaluate, "--run_once")
        self.assertEqual(status, 0, err)
        self.assertRegex(out, r": least accurate of 7 classes: class [1-7] \d\.\d{4}, class [1-7] ")
        pictures.write(str(folder / "labels.txt"), "".join(f"{i}:kind {i}\n" for i in range(1, 8)))
        status, out, err = call("eval", *evaluate, "--run_once")
        self.assertEqual(status, 0, err)
        self.assertRegex(out, r": least accurate of 7 classes: kind [1-7] \d\.\d{4}, kind [1-7] ")
        status, _, err = call("train", *train[:-1], 6)
        self.assertEqual(status, 2, err)
        self.assertIn("`num_classes` must be at least the 7 classes", err)

    @pytest.mark.long
    def test_programs_train_and_evaluate_on_them(self):
        for program, dataset_name, subset, more in (
            ("mnist", "idx", "test", ()),
            ("cifar10", "idx", "test", ("--image_size", 28)),
            ("flowers", "folder", "validation", ("--net", "cifar10_alexnet", "--image_size", 24)),
            ("imagenet", "folder", "validation", ("--net", "cifar10_alexnet", "--image_size", 24)),
        ):
            data = ("--data_dir", self.root / dataset_name, "--dataset_name", dataset_name)
            train_dir = self.root / f"{program}-{dataset_name}"
            with self.subTest(program=program):
                status, out, err = samples.call(
                    experiments.training(program).main,
                    f"{program}_train",
                    *data,
                    *("--train_dir", train_dir, "--batch_size", 4, "--max_steps", 2, *more),
                )
                self.assertEqual(status, 0, err)
                status, out, err = samples.call(
                    experiments.evaluation(program).main,
                    f"{program}_eval",
                    *data,
                    *("--checkpoint_dir", train_dir, "--eval_dir", self.root / "eval"),
                    *("--subset", subset, "--run_once", "--batch_size", 4),
                )
                self.assertEqual(status, 0, err)
                self.assertRegex(out, r"precision @ 1 = \d\.\d{4}")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
