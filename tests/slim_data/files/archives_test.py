"""Untrusted archives: read without extracting, and without trusting declared sizes."""

import gzip
import io
import os
import sys
import tarfile
from unittest import mock

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from slim_data.common.errors import DataError
from slim_data.files import archives, atomic
from tests.fuzz import fuzzing
from tests.slim_data import samples
from tests.slim_data.cifar10_archives import entry, write_archive


class ArchivesTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = samples.new_folder(self)
        self.path = os.path.join(self.folder, "a.tar.gz")

    def write_raw(self, data):
        with gzip.open(self.path, "wb", compresslevel=1) as file:
            file.write(data)

    def read(self, max_size=100):
        """Returns {name: bytes} of every regular file."""
        archives.check_whole(self.path)
        with archives.open_archive(self.path) as archive:
            return {
                name: archives.read_member(archive, member, max_size)
                for name, member in archives.list_members(archive).items()
                if member.isreg()
            }

    def assert_refused(self, *parts, max_size=100):
        with self.assertRaises(DataError) as caught:
            self.read(max_size)
        self.assertNotIn("\n", str(caught.exception))
        for part in (self.path, *parts):
            self.assertIn(part, str(caught.exception))

    def test_files_are_read_and_nothing_is_extracted(self):
        outside = os.path.join(self.folder, "absolute")
        names = ["plain", "../above", outside, "a/b/../../../x", "long" * 60, "\u00fc"]
        links = [
            entry("symlink", kind=tarfile.SYMTYPE, target="/etc/passwd"),
            entry("hardlink", kind=tarfile.LNKTYPE, target="/etc/passwd"),
            entry("device", kind=tarfile.CHRTYPE),
            entry("block", kind=tarfile.BLKTYPE),
            entry("fifo", kind=tarfile.FIFOTYPE),
            entry("folder", kind=tarfile.DIRTYPE),
        ]
        data = {name: f"content of {name}".encode()[:50] for name in names}
        write_archive(self.path, [*links, *(entry(*item) for item in data.items())])
        self.assertEqual(self.read(), data)
        self.assertEqual(os.listdir(self.folder), ["a.tar.gz"])
        for name, header in ((info.name, info) for info, _ in links):
            with (
                archives.open_archive(self.path) as archive,
                self.assertRaises(DataError) as caught,
            ):
                archives.read_member(archive, archives.list_members(archive)[header.name], 100)
            self.assertIn(f"{name} is not a regular file", str(caught.exception))

    def test_files_above_the_size_limit_are_refused(self):
        write_archive(self.path, [entry("x", b"1234567890")])
        self.assertEqual(self.read(10), {"x": b"1234567890"})
        self.assert_refused("the size of x must be 1 to 9 bytes. Received: 10", max_size=9)

    def test_declared_sizes_are_refused_before_anything_is_read(self):
        info = tarfile.TarInfo("bomb")
        info.size = 2**40
        self.write_raw(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
        self.assert_refused(f"holds more than {archives.MAX_SIZE} bytes")

    def test_headers_that_declare_too_much_are_refused(self):
        for kind in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME):
            for size in (2**40, 2**27):
                info = tarfile.TarInfo("header")
                info.type, info.size = kind, size
                self.write_raw(info.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
                self.assert_refused("a header of the archive declares")

    def write_header(self, kind, data, then=b""):
        info = tarfile.TarInfo("header")
        info.type, info.size = kind, len(data)
        padding = bytes(-len(data) % tarfile.BLOCKSIZE)
        self.write_raw(info.tobuf(tarfile.GNU_FORMAT) + data + padding + then + bytes(1024))

    def test_long_numbers_in_headers_do_not_take_long(self):
        for kind in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE):
            for size in (10**6, 10**4, 65):
                self.write_header(kind, b"1" * size)
                with fuzzing.limited():
                    self.assert_refused("a header of the archive")
        # Thousands of headers, each with numbers of the maximum length.
        pax = tarfile.TarInfo("header")
        pax.type, pax.size = tarfile.XHDTYPE, 2**15
        data = (b"1" * 63 + b"x") * 2**9
        self.write_raw((pax.tobuf(tarfile.GNU_FORMAT) + data + self.header("x")) * 100)
        with fuzzing.limited(), self.assertRaises(DataError):
            self.read()

    def header(self, name):
        return tarfile.TarInfo(name).tobuf(tarfile.GNU_FORMAT)

    def test_headers_of_headers_are_refused(self):
        # Each header asks for the next: Python would recurse without end.
        info = tarfile.TarInfo("x")
        info.type, info.size = tarfile.GNUTYPE_LONGNAME, 512
        one = info.tobuf(tarfile.GNU_FORMAT) + b"x" * 512
        for data in (one * 5000, one * 50, one * 50 + bytes(512)):
            self.write_raw(data + self.header("y"))
            with fuzzing.limited():
                self.assert_refused()

    def test_sparse_headers_that_declare_too_much_are_refused(self):
        for number in (b"999999999999", b"-1", b"x", b"1" * 63, b""):
            records = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
            records += b"29 GNU.sparse.realsize=10000\n"
            info = tarfile.TarInfo("sparse")
            info.size = 2**24
            entry_data = number + b"\n" + b"1\n" * 2**23
            self.write_header(tarfile.XHDTYPE, records, info.tobuf(tarfile.GNU_FORMAT) + entry_data)
            with fuzzing.limited(num_bytes=2**28):
                self.assert_refused()

    def test_archives_of_too_many_files_are_refused(self):
        self.write_raw(b"".join(map(self.header, "xyz")) + bytes(1024))
        with mock.patch.object(archives, "MAX_FILES", 2):
            self.assert_refused("holds more than 2 files")

    def test_names_are_shown_as_text(self):
        write_archive(self.path, [entry("\x1b[2J\n" + "x" * 5000, b"1" * 200)])
        self.assert_refused(r"the size of \x1b[2J\nxxx")

    def test_sparse_files_are_refused(self):
        info = tarfile.TarInfo("sparse")
        info.type, info.size = tarfile.GNUTYPE_SPARSE, 512
        header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
        header[386:398] = b"%011o\0" % 0
        header[398:410] = b"%011o\0" % 0
        header[483:495] = b"%011o\0" % 100
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        self.write_raw(bytes(header) + bytes(2048))
        self.assert_refused("sparse is not a regular file")

    def test_archives_whose_contents_are_too_large_are_refused(self):
        # A header with a valid size, followed by more zeros than the limit allows.
        with gzip.open(self.path, "wb", compresslevel=1) as file:
            write = file.write
            piece = bytes(2**24)
            for _ in range(archives.MAX_SIZE // len(piece) + 1):
                write(piece)
        self.assert_refused(f"the archive holds more than {archives.MAX_SIZE} bytes")

    def test_headers_that_point_backwards_are_refused(self):
        info = tarfile.TarInfo("circle")
        header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
        header[124:136] = (-1024).to_bytes(12, "big", signed=True)
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        self.write_raw(bytes(header) + bytes(2048))
        self.assert_refused()

    def test_a_file_of_an_archive_that_cannot_be_written_is_named(self):
        self.write_raw(bytes(1024))
        with self.assertRaisesRegex(DataError, "^/dev/full: No space left on device$"):
            with archives.open_archive(self.path):
                atomic.write_bytes("/dev/full", b"x")

    def test_damaged_headers_do_not_end_an_archive(self):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for name in "abc":
                info, content = entry(name, b"x" * 30)
                archive.addfile(info, io.BytesIO(content))
        whole = stream.getvalue()
        for damage in (b"\xff", bytes(512)):
            self.write_raw(whole[:1024] + damage + whole[1024 + len(damage) :])
            self.assert_refused("no valid header at byte 1024")
        # GNU tar ignores other bytes after the end.
        self.write_raw(whole + b"signature" * 100)
        with archives.open_archive(self.path) as archive:
            self.assertEqual(list(archives.list_members(archive)), ["a", "b", "c"])

    @settings(deadline=None, max_examples=100, derandomize=True)
    @given(st.data())
    def test_any_damage_is_refused_in_one_line(self, data):
        stream = io.BytesIO()
        kind = data.draw(st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]))
        with tarfile.open(fileobj=stream, mode="w", format=kind) as archive:
            for name in ("a", "long" * 60, "\u00fc"):
                info, content = entry(name, b"x" * 30)
                archive.addfile(info, io.BytesIO(content))
        whole = bytearray(stream.getvalue())
        for _ in range(data.draw(st.integers(1, 3))):
            whole[data.draw(st.integers(0, 4000))] = data.draw(st.integers(0, 255))
        self.write_raw(bytes(whole[: data.draw(st.integers(1, len(whole)))]))
        try:
            self.read()
        except DataError as error:
            self.assertNotIn("\n", str(error))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
