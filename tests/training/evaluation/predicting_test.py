"""Predictions equal the run's network on the images that evaluation reads."""

import csv
import errno
import os
import pathlib
import sys
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import slim_data
from slim_data.datasets.sources import image_files
from terngrad_tf import training
from terngrad_tf.bin import predict
from terngrad_tf.training.evaluation import evaluator
from terngrad_tf.training.storage import run_folder
from tests import runs
from tests.bin import samples

NUM_IMAGES = 5


class PredictingTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = runs.class_folder(cls)
        slim_data.convert("digits", str(cls.root / "data"))
        cls.run_dir = cls.root / "run"
        options = {"data_dir": str(cls.root / "data"), "dataset_name": "digits"}
        training.train(
            training.TrainConfig.of(
                train_dir=str(cls.run_dir), batch_size=64, max_steps=3, **options
            )
        )
        # Writes each image of the records to a file.
        folder = cls.root / "images" / "within"
        folder.mkdir(parents=True)
        raw = tf.data.TFRecordDataset(slim_data.find_files("digits", cls.root / "data", "test"))
        feature = {"image/encoded": tf.io.FixedLenFeature([], tf.string)}
        for number, record in enumerate(raw.take(NUM_IMAGES)):
            encoded = tf.io.parse_single_example(record, feature)["image/encoded"].numpy()
            (folder / f"{number}.PNG").write_bytes(encoded)
        (folder / "notes.txt").write_text("no image")

    def predict(self, *arguments):
        return samples.call(
            predict.main, "terngrad predict", "--checkpoint_dir", self.run_dir, *arguments
        )

    def probabilities(self, average):
        run = run_folder.read_run(self.run_dir)
        model, _ = evaluator.restore_network(str(self.run_dir / "model.ckpt-3"), run, average)
        size = run["model"]["image_size"]
        examples = slim_data.load("digits", self.root / "data", "test", NUM_IMAGES, size, False)
        images, _ = next(iter(examples))
        return tf.nn.softmax(model(images, training=False)).numpy()

    def test_a_table_lists_the_likeliest_classes_of_either_weights(self):
        for average, flag in ((True, "--restore_avg_var"), (False, "--norestore_avg_var")):
            table = self.root / "new" / f"{average}.csv"
            status, out, err = self.predict(
                *(flag, "--top", 2, "--batch_size", 2, "--output", table, self.root / "images")
            )
            self.assertEqual(status, 0, err)
            with open(table, encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            self.assertLen(rows, 2 * NUM_IMAGES)
            found = self.probabilities(average)
            for number, expected in enumerate(found):
                path = str(self.root / "images" / "within" / f"{number}.PNG")
                best = np.argsort(-expected)[:2]
                own = [row for row in rows if row["image"] == path]
                self.assertEqual([row["rank"] for row in own], ["1", "2"])
                self.assertEqual([int(row["class"]) for row in own], best.tolist())
                labels = slim_data.info("digits").labels
                self.assertEqual([row["name"] for row in own], [labels[i] for i in best])
                told = [float(row["probability"]) for row in own]
                self.assertAllClose(told, expected[best], rtol=0, atol=2e-6)
                line = f"{path}: " + ", ".join(f"{labels[i]} {expected[i]:.4f}" for i in best)
                self.assertIn(f"{line}\n", out)
        self.assertNotAllClose(found, self.probabilities(True))

    @pytest.mark.slow
    def test_unreadable_files_are_skipped_and_reported_at_the_end(self):
        within = self.root / "images" / "within"
        broken = self.root / "bad" / "broken.gif"
        broken.parent.mkdir()
        broken.write_bytes(b"GIF89a")
        images = [within / "0.PNG", within / "1.PNG", broken, self.root / "gone.png"]
        images += [broken, within / "2.PNG"]
        table = self.root / "some.csv"
        for batch_size in (1, 2, 4, 32):
            status, out, err = self.predict(
                *("--output", table, "--top", 1, "--batch_size", batch_size, *images)
            )
            self.assertEqual((status, err.count("\n")), (2, 1), err)
            self.assertIn(
                "broken.gif: it is no JPEG, PNG, GIF, WebP or BMP image, or damaged; and 1 ", err
            )
            self.assertIn("the other 3 images were classified", err)
            self.assertIn(f"\n{self.root / 'gone.png'}: No such file or directory\n", out)
            with open(table, encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            told = [row["image"] for row in rows]
            self.assertEqual(told, [str(within / f"{i}.PNG") for i in range(3)])
            found = self.probabilities(True)[:3]
            self.assertAllClose([float(r["probability"]) for r in rows], found.max(1), atol=2e-6)
        _, _, err = self.predict(broken)
        self.assertNotIn("classified", err)

    def test_names_of_images_are_shown_in_one_printable_line(self):
        folder = self.root / "names"
        folder.mkdir()
        content = (self.root / "images" / "within" / "0.PNG").read_bytes()
        for name in (b"\xff.png", b"a\n\x1b[2J.png"):
            pathlib.Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(content)
        table = self.root / "names.csv"
        status, out, _ = self.predict("--output", table, folder)
        self.assertEqual(status, 0)
        out.encode()  # as for a terminal
        for shown in (r"\udcff.png: ", r"a\n\x1b[2J.png: "):
            self.assertIn(f"\n{folder}/{shown}", out)
        self.assertIn(b"/\xff.png,1,", table.read_bytes())

    def test_a_folder_that_cannot_be_listed_is_named(self):
        refusal = PermissionError(errno.EACCES, "Permission denied", "images")
        with mock.patch.object(os, "scandir", side_effect=refusal):
            status, _, err = self.predict(self.root / "images")
        self.assertEqual(status, 2)
        self.assertIn("error: images: Permission denied", err)

    def test_images_are_shown_to_the_network_upright(self):
        path = self.root / "turned.jpg"
        pixels = np.random.default_rng(0).integers(0, 256, [40, 60, 3], np.uint8)
        exif = Image.Exif()
        exif[0x0112] = 6
        Image.fromarray(pixels).save(path, quality=100, exif=exif.tobytes())
        (found,) = slim_data.image_batches([path], "imagenet", batch_size=1, image_size=32)
        turned = self.root / "turned.png"
        decoded = image_files.decode_image(path.read_bytes())
        Image.fromarray(np.rot90(decoded, -1)).save(turned)
        (expected,) = slim_data.image_batches([turned], "imagenet", batch_size=1, image_size=32)
        self.assertAllEqual(found, expected)

    def test_wrong_images_and_runs_are_one_line(self):
        broken = self.root / "broken.jpg"
        broken.write_bytes(b"\xff\xd8\xff and no more")
        table = self.root / "none.csv"
        for arguments, words in (
            ((), "IMAGE must be an image or a folder with images .* Received: none"),
            ((self.root / "data",), "IMAGE must be an image or a folder .*/data'"),
            ((broken,), "broken.jpg: the image is damaged and cannot be decoded"),
            ((self.root / "missing.png",), "missing.png: No such file or directory"),
            ((broken, "--checkpoint_dir", "/nowhere"), "`checkpoint_dir` must hold a run with a"),
        ):
            with self.subTest(words):
                status, _, err = self.predict("--output", table, *arguments)
                self.assertEqual((status, err.count("\n")), (2, 1), err)
                self.assertRegex(err, words)
                self.assertFalse(table.exists())

    def test_a_table_that_cannot_be_written_is_refused_before_the_work(self):
        for output in (self.root, self.root / "images" / "within" / "0.PNG" / "table.csv"):
            status, out, err = self.predict("--output", output, self.root / "images")
            self.assertEqual((status, out, err.count("\n")), (2, "", 1), err)
            self.assertIn(f"`output` cannot be written. Received: output={str(output)!r} (", err)

    def test_photos_of_any_size_and_colour_become_images_of_a_data_set(self):
        generator = np.random.default_rng(0)
        pixels = generator.integers(0, 256, [40, 60, 3], np.uint8)
        path = self.root / "photo.jpg"
        path.write_bytes(tf.io.encode_jpeg(pixels, quality=100).numpy())
        (grey,) = slim_data.image_batches([path], "digits", batch_size=4, image_size=28)
        self.assertEqual(grey.shape, (1, 28, 28, 1))
        side = slim_data.info("digits").image_size
        decoded = image_files.decode_image(path.read_bytes(), 1)
        small = np.rint(tf.image.resize(decoded, [side, side], antialias=True).numpy())
        style = next(iter(slim_data.info("digits").preprocessings.values()))
        self.assertAllEqual(grey, style.evaluate(small[None].astype(np.uint8), 28))
        # TensorFlow makes no grey image of CMYK.
        smooth = Image.fromarray(pixels[:3, :3]).resize((60, 40))  # decoders blur edges differently
        smooth.convert("CMYK").save(self.root / "cmyk.jpg", quality=100)
        Image.open(self.root / "cmyk.jpg").convert("RGB").save(self.root / "rgb.png")
        for name in ("digits", "imagenet"):
            cmyk, rgb = slim_data.image_batches(
                [self.root / "cmyk.jpg", self.root / "rgb.png"], name, batch_size=1, image_size=28
            )
            self.assertAllClose(cmyk, rgb, atol=0.05)
        photos = slim_data.image_batches([path] * 3, "imagenet", batch_size=2, image_size=32)
        self.assertEqual([len(batch) for batch in photos], [2, 1])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
