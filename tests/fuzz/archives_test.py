"""Archives, pickles and CIFAR-10 files of any bytes yield images, or one line with the reason."""

import gzip
import os
import pickle
import sys

import numpy as np
import pytest
from hypothesis import strategies as st

from slim_data import DataError
from slim_data.datasets import cifar10, flowers
from slim_data.files import archives, pickles
from tests.fuzz import fuzzing
from tests.slim_data import cifar10_archives, pictures, samples


def files_of(path, max_size=2**20):
    """Returns {name: bytes} of the regular files of an archive."""
    archives.check_whole(path)
    with archives.open_archive(path) as archive:
        return {
            name: archives.read_member(archive, member, max_size)
            for name, member in archives.list_members(archive).items()
            if member.isreg()
        }


def tar_seeds():
    """Returns archives with all kinds of headers."""
    long = "long" * 60
    plain = {"a": b"x" * 30, long: b"y" * 700, "\u00fc/b": b"z"}
    found = [pictures.tar(plain), pictures.tar({"a.tar": pictures.tar(plain)})]
    for kind in b"0123456789LKSxgX":
        member = cifar10_archives.entry(long, kind=bytes([kind]), target=long)[0]
        found.append(pictures.tar({"x": member, "y": b"z" * 600}))
    found.append(sparse_1_0())
    return found


def sparse_1_0():
    """Returns an archive with a sparse file in GNU tar's pax format."""
    member = cifar10_archives.entry("sparse")[0]
    member.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "sparse",
        "GNU.sparse.realsize": "10000",
    }
    return pictures.tar({"sparse": member, "map": b"2\n0\n5\n100\n5\n".ljust(512, b"\0")})


class ArchivesTest(fuzzing.FuzzTest):
    def setUp(self):
        super().setUp()
        self.folder = samples.new_folder(self)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)

    def assert_refused_or(self, function, *arguments):
        """Calls a function; returns None if it raises a clear error of one line."""
        try:
            return function(*arguments)
        except DataError as error:
            self.assert_clear(error, self.folder)
        finally:
            self.assertEqual(len(os.listdir(self.folder)), 1)

    def test_tar_files(self):
        def check(data):
            self.write("a.tar.gz", gzip.compress(data, 1))
            for content in (self.assert_refused_or(files_of, self.path("a.tar.gz")) or {}).values():
                self.assertIsInstance(content, bytes)

        self.fuzz("tar archives", fuzzing.mutated(tar_seeds()), check)

    def test_gzip_files(self):
        seeds = [gzip.compress(data, 1) for data in tar_seeds()]
        seeds += [seeds[0] * 2, gzip.compress(bytes(2**24)), gzip.compress(b"")]

        def check(data):
            self.write("a.tar.gz", data)
            self.assert_refused_or(files_of, self.path("a.tar.gz"))

        self.fuzz("gzip files", fuzzing.mutated(seeds), check)

    def test_nested_tar_files(self):
        def check(data):
            self.write("a.tar", data)
            self.assert_refused_or(self.read_nested)

        self.fuzz("tar archives in tar archives", fuzzing.mutated(tar_seeds()), check)

    def read_nested(self):
        with archives.open_plain_archive(self.path("a.tar")) as archive:
            for member in archives.iterate_members(archive):
                if member.isreg():
                    with archives.open_nested_archive(archive, member) as inner:
                        for part in archives.iterate_members(inner):
                            if part.isreg():
                                archives.read_member(inner, part, 2**20)

    def test_pickles(self):
        images, labels = cifar10_archives.batch(0, 2)
        values = [
            {"labels": [1, 2], "data": images, b"x": (None, True, "\u00fc", 2**70, b"\xff" * 300)},
            [images[:1], ("a", "a"), [], {}, ()],
        ]
        seeds = [pickle.dumps(value, protocol=p) for value in values for p in range(6)]
        seeds.append(cifar10_archives.python_batch(images, labels))

        def check(data):
            try:
                found = pickles.read_pickle(data)
            except DataError as error:
                self.assert_clear(error, "pickle")
            else:
                self.assertNotIsInstance(found, (type, np.dtype))

        self.fuzz("pickles", st.one_of(fuzzing.mutated(seeds), opcodes()), check)

    def test_batches_of_cifar_10(self):
        whole = {}
        for version, batch in (
            ("python", cifar10_archives.python_batch),
            ("binary", cifar10_archives.binary_batch),
        ):
            for i, name in enumerate(cifar10_archives.names(version)):
                whole[name] = batch(*cifar10_archives.batch(i, 2))
        for version, archive in (("python", cifar10.PYTHON), ("binary", cifar10.BINARY)):
            names = cifar10_archives.names(version)

            def check(data, names=names, archive=archive):
                files = {name: whole[name] for name in names}
                self.write(archive, pictures.tar({**files, names[0]: data}, "gz"))
                number = self.assert_refused_or(cifar10.Cifar10(self.folder).num_examples, "train")
                if number is not None:
                    self.assertGreaterEqual(number, 9)

            seeds = [whole[name] for name in names]
            self.fuzz(f"CIFAR-10's batches, {version}", fuzzing.mutated(seeds), check)
            os.remove(self.path(archive))

    def test_flower_photos(self):
        photo = pictures.encode(pictures.pixels())
        names = [f"flower_photos/{label}/{i}.jpg" for label in flowers.LABELS for i in range(3)]
        seeds = [pictures.tar(dict.fromkeys(names, photo))]

        def check(data):
            self.write(flowers.ARCHIVE.name, gzip.compress(data, 1))
            self.assert_refused_or(self.read_flowers)

        self.fuzz("archives of flower photos", fuzzing.mutated(seeds), check, num_cases=10)

    def read_flowers(self):
        builder = flowers.Flowers(self.folder)
        builder.num_examples("train")
        for _ in builder.generate_examples("validation"):
            pass


def opcodes():
    """Returns a strategy of pickles of random opcodes, most of them with valid arguments."""
    arguments = st.one_of(st.binary(max_size=5), st.sampled_from((b"\x01\x02", b"latin1\n")))
    names = st.sampled_from(
        (b"cnumpy\nndarray\n", b"cnumpy\ndtype\n", b"c_codecs\nencode\n")
        + (b"cnumpy.core.multiarray\n_reconstruct\n", b"X\x06\0\0\0latin1", b"K\x01", b"U\x01b")
    )
    one = st.builds(lambda code, rest: bytes([code]) + rest, st.integers(0, 255), arguments)
    plain = st.sampled_from(
        [bytes([code]) for code in b")](}tlasuebRq\0h\0\x85\x86\x87N\x88\x89\x940"]
    )
    return st.lists(st.one_of(names, plain, plain, one), max_size=40).map(
        lambda parts: b"\x80\x02" + b"".join(parts) + b"."
    )


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
