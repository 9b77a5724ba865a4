"""From the archive of flower photos to folders and records."""

import os
import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf

import slim_data
from tests.slim_data import flower_photos, ilsvrc, programs, samples

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "scripts/download_and_preprocess_flowers.sh"


class FlowersPreparationTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.root = samples.new_folder(self)
        self.folder = os.path.join(self.root, "data")
        os.makedirs(self.folder)
        self.photos = flower_photos.photos(515)
        self.write(self.photos)

    def write(self, photos, more=()):
        flower_photos.write(os.path.join(self.folder, "flower_photos.tgz"), photos, more)

    def raw(self, *parts):
        return os.path.join(self.folder, "raw-data", *parts)

    def prepare(self):
        return programs.call("prepare_flowers", self.folder)

    def test_100_photos_of_each_class_are_for_validation(self):
        done = self.prepare()
        self.assertEqual((done.status, done.stderr), (0, ""))
        found = ilsvrc.tree(self.raw())
        labels = "daisy\ndandelion\nroses\nsunflowers\ntulips\n"
        self.assertEqual(found.pop("labels.txt").decode(), labels)
        sizes = {}
        for path in found:
            folder = os.path.dirname(path)
            sizes[folder] = sizes.get(folder, 0) + 1
        expected = {f"train/{k}": 3 for k in flower_photos.KINDS}
        expected |= {f"validation/{k}": 100 for k in flower_photos.KINDS}
        self.assertEqual(sizes, expected)
        self.assertEqual({path.split("/", 1)[1]: data for path, data in found.items()}, self.photos)
        # Validation photos are drawn at random.
        daisies = sorted(name for name in self.photos if name.startswith("daisy/"))
        self.assertNotEqual([n for n in daisies if f"validation/{n}" in found], daisies[:100])

    def test_the_draw_is_deterministic(self):
        self.prepare()
        found = ilsvrc.tree(self.raw())
        self.folder = os.path.join(self.root, "other")
        os.makedirs(self.folder)
        self.write(dict(reversed(self.photos.items())))
        self.assertEqual(self.prepare().status, 0)
        self.assertEqual(ilsvrc.tree(self.raw()), found)

    def test_an_interrupted_preparation_resumes(self):
        self.prepare()
        found = ilsvrc.tree(self.raw())
        kept = os.stat(self.raw("train", "roses")).st_ino
        os.rename(self.raw("train", "tulips"), self.raw("train", ".tulips.partial"))
        os.remove(self.raw("labels.txt"))
        self.assertEqual(self.prepare().status, 0)
        self.assertEqual(ilsvrc.tree(self.raw()), found)
        self.assertEqual(os.stat(self.raw("train", "roses")).st_ino, kept)

    def test_hostile_members_are_left_out(self):
        photo = self.photos.popitem()[1]
        names = ["../x.jpg", "flower_photos/daisy/../../x.jpg", f"{self.root}/x.jpg"]
        self.write(self.photos, [flower_photos.entry(name, photo) for name in names])
        self.assertEqual(self.prepare().status, 0)
        self.assertEqual(os.listdir(self.root), ["data"])
        self.assertLen(ilsvrc.tree(self.raw()), 515)

    def test_archives_with_too_few_photos_are_refused(self):
        self.write(flower_photos.photos(500))
        done = self.prepare()
        self.assertEqual((done.status, len(done.stderr.splitlines())), (2, 1), done)
        self.assertIn("more than 100 photos flower_photos/daisy/<name>.jpg", done.stderr)

    @pytest.mark.slow
    def test_the_script_leads_from_the_archive_to_records(self):
        # The real script, with this test's interpreter.
        scripts = pathlib.Path(self.root) / "scripts"
        scripts.mkdir()
        (scripts / SCRIPT.name).symlink_to(SCRIPT)
        (scripts / "venv.sh").write_text(f"PYTHON={sys.executable}\n", encoding="utf-8")
        done = subprocess.run(
            ["bash", str(scripts / SCRIPT.name), self.folder],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        last = done.stdout.splitlines()[-1]
        self.assertTrue(last.endswith("Finished writing all 15 images in data set."), last)
        train = slim_data.find_files("flowers", self.folder, "train")
        validation = slim_data.find_files("flowers", self.folder, "validation")
        self.assertEqual((len(train), len(validation)), (2, 2))
        self.assertEqual(slim_data.verify(train + validation, "flowers"), 515)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
