"""From ImageNet's official archives to folders, lists, boxes and records."""

import base64
import hashlib
import os
import pathlib
import subprocess
import sys
import tarfile
from unittest import mock

import pytest
import tensorflow as tf

import slim_data
from slim_data.datasets.imagenet import official_archives, preparation
from slim_data.files import download
from tests.slim_data import ilsvrc, pictures, programs, samples, servers

SCRIPT = pathlib.Path(__file__).resolve().parents[4] / "scripts/download_and_preprocess_imagenet.sh"
SYNSETS = ilsvrc.SYNSETS


def link(name, target, kind=tarfile.SYMTYPE):
    """Returns an archive's link entry."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


class ImagenetPreparationTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.root = samples.new_folder(self)
        self.folder = os.path.join(self.root, "data")
        ilsvrc.write(self.folder)
        self.archives = ilsvrc.tree(self.folder)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def raw(self, *parts):
        return self.path("raw-data", *parts)

    def prepare(self):
        return programs.call("prepare_imagenet", self.folder)

    def replace(self, name, data):
        pictures.write(self.path(name), data)
        self.archives[name] = data

    def assert_refused(self, *parts):
        done = self.prepare()
        self.assertEqual((done.status, len(done.stderr.splitlines())), (2, 1), done)
        for part in parts:
            self.assertIn(part, done.stderr)

    def assert_nothing_else(self):
        """Checks for files outside the folder, hidden files, and unchanged archives."""
        self.assertEqual(os.listdir(self.root), ["data"])
        found = ilsvrc.tree(self.folder)
        self.assertEqual([name for name in found if "/." in name], [])
        self.assertEqual({name: found.get(name) for name in self.archives}, self.archives)

    def assert_prepared(self):
        found = ilsvrc.tree(self.raw())
        expected = {
            f"train/{synset}/{name}": data
            for synset, images in ilsvrc.train_images().items()
            for name, data in images.items()
        }
        for (name, data), synset in zip(
            ilsvrc.validation_images().items(), ilsvrc.VALIDATION_CLASSES, strict=True
        ):
            expected[f"validation/{synset}/{name}"] = data
        for name, lines in (
            ("imagenet_lsvrc_2015_synsets.txt", [f"{s}\n" for s in SYNSETS]),
            ("imagenet_metadata.txt", [f"{s}\t{n}\n" for s, n in pictures.SYNSETS.items()]),
            (
                "imagenet_2012_validation_synset_labels.txt",
                [f"{s}\n" for s in ilsvrc.VALIDATION_CLASSES],
            ),
            ("imagenet_2012_bounding_boxes.csv", ilsvrc.annotations()[1]),
        ):
            expected[name] = "".join(lines).encode()
        self.assertEqual(found, expected)

    def test_everything_is_made_of_the_archives(self):
        done = self.prepare()
        self.assertEqual((done.status, done.stderr), (0, ""))
        self.assert_prepared()
        self.assert_nothing_else()

    def test_existing_files_are_kept_and_need_no_archives(self):
        self.prepare()
        times = {path: os.stat(self.raw(path)).st_mtime_ns for path in ilsvrc.tree(self.raw())}
        for name in self.archives:
            os.remove(self.path(name))
        done = self.prepare()
        self.assertEqual((done.status, done.stdout, done.stderr), (0, "", ""))
        self.assertEqual({path: os.stat(self.raw(path)).st_mtime_ns for path in times}, times)

    def test_an_interrupted_preparation_resumes(self):
        self.prepare()
        kept = os.stat(self.raw("train", SYNSETS[0])).st_ino
        for path in pathlib.Path(self.raw("train", SYNSETS[1])).iterdir():
            path.unlink()
        os.rename(self.raw("train", SYNSETS[1]), self.raw("train", f".{SYNSETS[1]}.partial"))
        pathlib.Path(self.raw("train", f".{SYNSETS[1]}.partial", "half")).write_bytes(b"x")
        os.remove(self.raw("validation", SYNSETS[0], "ILSVRC2012_val_00000002.JPEG"))
        os.remove(self.raw("imagenet_2012_bounding_boxes.csv"))
        self.assertEqual(self.prepare().status, 0)
        self.assertEqual(os.stat(self.raw("train", SYNSETS[0])).st_ino, kept)
        self.assert_prepared()

    def test_validation_images_in_one_folder_are_sorted(self):
        for name, data in ilsvrc.validation_images().items():
            pictures.write(self.raw("validation", name), data)
        os.remove(self.path(ilsvrc.VALIDATION))
        done = self.prepare()
        self.assertIn("Sorted 7 validation images", done.stdout)
        self.assert_prepared()

    def test_the_older_place_of_the_annotations_is_found(self):
        os.makedirs(self.raw("bounding_boxes"))
        os.rename(self.path(ilsvrc.ANNOTATIONS), self.raw("bounding_boxes", "annotations.tar.gz"))
        self.assertEqual(self.prepare().status, 0)

    def test_missing_archives_are_listed_with_what_to_do(self):
        os.remove(self.path(ilsvrc.TRAIN))
        os.remove(self.path(ilsvrc.DEVKIT))
        self.assert_refused(
            f"{self.folder} lacks {ilsvrc.DEVKIT}, {ilsvrc.TRAIN}.", "https://image-net.org"
        )
        self.assertEqual(os.listdir(self.raw()), [])
        self.folder = self.path("absent")
        self.assert_refused("DATA_DIR must be a folder", self.folder)

    def serve(self):
        """Serves the archives to a single account, in place of image-net.org."""
        known = {
            name: (len(data), hashlib.sha256(data).hexdigest())
            for name, data in self.archives.items()
        }
        known[ilsvrc.ANNOTATIONS] = (None, None)
        server = servers.Server(dict(self.archives))
        server.authorization = "Basic " + base64.b64encode(b"somebody:secret-key").decode()
        self.addCleanup(server.close)
        for patch in (
            mock.patch.dict(official_archives.SIZES_AND_CHECKSUMS, known),
            mock.patch.dict(
                os.environ,
                IMAGENET_USERNAME="somebody",
                IMAGENET_ACCESS_KEY="secret-key",
                IMAGENET_URL=server.url(""),
            ),
        ):
            patch.start()
            self.addCleanup(patch.stop)
        return server

    def test_an_account_downloads_missing_archives(self):
        server = self.serve()
        os.remove(self.path(ilsvrc.TRAIN))
        os.remove(self.path(ilsvrc.ANNOTATIONS))
        server.faults = [servers.breaking_after(100)]
        done = self.prepare()
        self.assertEqual((done.status, done.stderr), (0, ""))
        self.assertIn(f"Downloading {server.url(ilsvrc.TRAIN)}\n", done.stdout)
        self.assertNotIn("secret", done.stdout)
        self.assertNotIn("somebody", done.stdout)
        self.assertEqual({name for name, _ in server.requests}, {ilsvrc.TRAIN, ilsvrc.ANNOTATIONS})
        self.assert_prepared()
        self.assert_nothing_else()

    def test_a_refused_or_incomplete_account_is_one_line_that_hides_it(self):
        server = self.serve()
        os.remove(self.path(ilsvrc.VALIDATION))
        del self.archives[ilsvrc.VALIDATION]
        for changes, part in (
            ({"IMAGENET_ACCESS_KEY": "secret-and-wrong"}, "HTTP status 401"),
            (
                {"IMAGENET_ACCESS_KEY": ""},
                "must be set together. Received: IMAGENET_USERNAME alone",
            ),
            (
                {"IMAGENET_URL": "http://image-net.org/data"},
                "IMAGENET_URL must start with https://",
            ),
        ):
            with mock.patch.dict(os.environ, changes):
                done = self.prepare()
            self.assertEqual((done.status, len(done.stderr.splitlines())), (2, 1), done)
            self.assertIn(part, done.stderr)
            self.assertNotIn("secret", done.stderr + done.stdout)
        self.assertNotIn("secret", repr(download.File("a", (), 1, "", "secret")))
        server.faults = [servers.web_page]
        self.assert_refused("a web page instead")
        self.assert_nothing_else()

    def test_the_account_is_not_sent_to_another_server(self):
        server = self.serve()
        other = servers.Server(dict(self.archives))
        self.addCleanup(other.close)
        os.remove(self.path(ilsvrc.DEVKIT))
        server.faults = [servers.sending_on_to(other.url(ilsvrc.DEVKIT))]
        self.assertEqual(self.prepare().status, 0)
        self.assertEqual(other.requests, [(ilsvrc.DEVKIT, None)])
        self.assertEqual(other.authorizations, [None])

    def test_hostile_training_archives_are_refused(self):
        synset = SYNSETS[1]
        image = pictures.encode(pictures.pixels())
        name = f"{synset}_1.JPEG"
        sparse = tarfile.TarInfo(name)
        sparse.type = tarfile.GNUTYPE_SPARSE
        for files in (
            {f"../{name}": image},
            {f"{self.root}/{name}": image},
            {f"x/{name}": image},
            {name: link(name, "/etc/passwd")},
            {name: link(name, f"{self.folder}/other", tarfile.LNKTYPE)},
            {name: link(name, "", tarfile.CHRTYPE)},
            {name: link(name, "", tarfile.DIRTYPE)},
            {"notes.txt": b"x"},
            {f"{SYNSETS[0]}_9.JPEG": image},
            {name: b""},
            {},
        ):
            inner = ilsvrc.train_images()
            archive = {f"{s}.tar": pictures.tar(i) for s, i in inner.items()}
            archive[f"{synset}.tar"] = pictures.tar(files)
            self.replace(ilsvrc.TRAIN, pictures.tar(archive))
            self.assert_refused(f"{self.path(ilsvrc.TRAIN)}: {synset}.tar: ")
            self.assert_nothing_else()
            self.assertFalse(os.path.exists(self.raw("train", synset)))

    def test_damaged_training_archives_are_refused(self):
        whole = self.archives[ilsvrc.TRAIN]
        # Archives cut after half of the inner archives, inside one, and at its header.
        for data, part in (
            (whole[: len(whole) // 2], ""),
            (whole[:700], ""),
            (b"no archive" * 100, "not a valid archive"),
            (pictures.tar({f"{SYNSETS[0]}.tar": b"no archive" * 100}), "not a valid archive"),
            (pictures.tar({}), f"lacks {SYNSETS[0]}.tar"),
            (pictures.tar({"a": link(f"{SYNSETS[0]}.tar", "/etc/passwd")}), "not a regular file"),
        ):
            self.replace(ilsvrc.TRAIN, data)
            self.assert_refused(self.path(ilsvrc.TRAIN), part)
            self.assert_nothing_else()

    def test_hostile_validation_archives_write_nothing_else(self):
        images = ilsvrc.validation_images()
        name = "ILSVRC2012_val_00000003.JPEG"
        data = images.pop(name)
        for files in (
            {f"../{name}": data},
            {f"/{name}": data},
            {f"{self.root}/{name}": data},
        ):
            self.replace(ilsvrc.VALIDATION, pictures.tar({**images, **files}))
            self.assert_refused(f"{self.path(ilsvrc.VALIDATION)}: the archive lacks {name}")
            self.assert_nothing_else()
        self.replace(ilsvrc.VALIDATION, pictures.tar({**images, name: link(name, "/etc/passwd")}))
        self.assert_refused(f"{name} is not a regular file")
        self.assert_nothing_else()

    def test_hostile_annotations_are_refused(self):
        synset = SYNSETS[0]
        name = f"{synset}/{synset}_1.xml"
        for files, part in (
            ({name: b"<!DOCTYPE a>"}, f"{name}: an annotation must not declare"),
            ({name: b"<a/>"}, f"{name}: it is not an annotation"),
            ({name: link(name, "/etc/passwd")}, "not a regular file"),
            ({name: bytes(2**21)}, "must be 1 to"),
            ({"readme": b""}, "holds no boxes"),
        ):
            self.replace(ilsvrc.ANNOTATIONS, pictures.tar(files, "gz"))
            self.assert_refused(self.path(ilsvrc.ANNOTATIONS), part)
            self.assert_nothing_else()
        whole = ilsvrc.annotations()[0]
        self.replace(ilsvrc.ANNOTATIONS, whole[:-20])
        self.assert_refused(self.path(ilsvrc.ANNOTATIONS), "truncated")

    def test_classes_other_than_wordnet_ids_are_refused_and_nothing_is_written(self):
        outside = samples.new_folder(self)
        hostile = (
            *(
                "n01440764\n",
                outside,
                "../x",
                "../../x",
                "..",
                "/",
                "n0144076\u0664",
                "n0144076",
                "n014407640",
            ),
            *("N01440764", "n01440764/../../x", "\x1b[2J", "n" + "1" * 10**5),
        )
        whole_devkit = self.archives[ilsvrc.DEVKIT]
        for name in hostile[:2]:
            numbers = {1: SYNSETS[2], 2: name, 3: SYNSETS[1]}
            self.replace(ilsvrc.DEVKIT, ilsvrc.devkit(numbers))
            before = ilsvrc.tree(self.folder)
            self.assert_refused(self.path(ilsvrc.DEVKIT), "must be n and 8 digits")
            self.assertEqual(ilsvrc.tree(self.folder), before)
        self.replace(ilsvrc.DEVKIT, whole_devkit)
        self.assertEqual(self.prepare().status, 0)
        # Each run reads the lists again; they may have been changed.
        for list_name in (preparation.SYNSETS, preparation.VALIDATION_LABELS):
            whole = pathlib.Path(self.raw(list_name)).read_bytes()
            for name in hostile[1:]:
                pictures.write(self.raw(list_name), whole + name.encode() + b"\n")
                before = ilsvrc.tree(self.folder)
                self.assert_refused(self.raw(list_name), "must be n and 8 digits")
                self.assertEqual(ilsvrc.tree(self.folder), before)
            for data, part in ((b"", "is empty"), (b"\xff\n", "must be a text file")):
                pictures.write(self.raw(list_name), data)
                self.assert_refused(self.raw(list_name), part)
            pictures.write(self.raw(list_name), whole)
        self.assertEqual(os.listdir(outside), [])

    def test_class_names_of_several_lines_are_refused(self):
        words = dict(pictures.SYNSETS)
        with mock.patch.dict(pictures.SYNSETS, {SYNSETS[1]: "dog\nn00000009\tcat"}):
            self.replace(ilsvrc.DEVKIT, ilsvrc.devkit())
        self.assertEqual(pictures.SYNSETS, words)
        self.assert_refused(f"the names of {SYNSETS[1]} must be text on one line")

    def test_damaged_devkits_are_refused(self):
        folder = "ILSVRC2012_devkit_t12/data"
        truth = f"{folder}/ILSVRC2012_validation_ground_truth.txt"
        for data, part in (
            (b"no archive", "not a valid archive"),
            (pictures.tar({}, "gz"), f"lacks {folder}/meta.mat"),
            (pictures.tar({f"{folder}/meta.mat": b"?" * 200, truth: b"1"}, "gz"), "no list of"),
            (ilsvrc.devkit(truth=[1, 9]), "must hold numbers of classes (9)"),
            (ilsvrc.devkit(truth=["x"]), "must hold numbers of classes"),
        ):
            self.replace(ilsvrc.DEVKIT, data)
            self.assert_refused(self.path(ilsvrc.DEVKIT), part)
            self.assertEqual(os.listdir(self.raw()), [])

    def test_the_script_leads_from_archives_to_records(self):
        # The real script, with this test's interpreter.
        scripts = pathlib.Path(self.root) / "scripts"
        scripts.mkdir()
        (scripts / SCRIPT.name).symlink_to(SCRIPT)
        (scripts / "venv.sh").write_text(f"PYTHON={sys.executable}\n", encoding="utf-8")
        run = [
            *("bash", str(scripts / SCRIPT.name), self.folder),
            *("--train_shards", "4", "--validation_shards", "2"),
        ]
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(
            done.stdout.endswith("Finished writing all 12 images in data set.\n"), done.stdout
        )
        train = slim_data.find_files("imagenet", self.folder, "train")
        self.assertEqual((len(train), slim_data.count_examples(train)), (4, 12))
        validation = slim_data.find_files("imagenet", self.folder, "validation")
        self.assertEqual(slim_data.count_examples(validation), 7)
        self.assertEqual(slim_data.verify(train + validation, "imagenet"), 19)
        failed = subprocess.run(run[:2], capture_output=True, text=True, check=False)
        self.assertNotEqual(failed.returncode, 0)
        self.assertIn("DATA_DIR", failed.stderr)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
