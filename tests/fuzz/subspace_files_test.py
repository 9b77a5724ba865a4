"""Subspace and snapshot files of any bytes are read, or one line gives the reason."""

import json
import os
import pathlib
import struct
import sys

import numpy as np
import pytest
from hypothesis import strategies as st

from terngrad_tf.common import tensor_files
from terngrad_tf.subspace import Subspace
from terngrad_tf.subspace.weights import snapshot_files
from tests.fuzz import fuzzing
from tests.slim_data import samples

LAYOUT = (("dense/kernel", (4, 2)), ("dense/bias", (2,)))
ODD = st.sampled_from(
    [None, True, -1, 0, 2**63, 10**25, 0.5, "", "x" * 9999, "F32", "BF16", "\0\x1b", "float32"]
) | st.recursive(st.integers(-9, 99), lambda inner: st.lists(inner, max_size=3), max_leaves=5)


def rows(count, dtype=np.float32):
    return np.eye(count, 10).astype(dtype)


def safetensors(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@st.composite
def changed_headers(draw, files):
    """Returns safetensors files whose header is changed at one or two places."""
    whole = draw(st.sampled_from(files))
    (length,) = struct.unpack("<Q", whole[:8])
    header, data = json.loads(whole[8 : 8 + length]), whole[8 + length :]
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from([*header, "other"]))
        entry = header.get(name)
        odd = draw(ODD)
        if isinstance(entry, dict) and draw(st.booleans()):
            field = draw(st.sampled_from([*entry, "odd"]))
            text = json.dumps(odd) if draw(st.booleans()) else str(odd)
            entry[field] = text if name == "__metadata__" else odd
        elif draw(st.booleans()):
            header.pop(name, None)
        else:
            header[name] = odd
    return safetensors(header, data)


class SubspaceFilesTest(fuzzing.FuzzTest):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(samples.new_folder(self))

    def written(self, name, write):
        path = self.folder / name
        write(path)
        return path.read_bytes()

    def test_matrices(self):
        files = [
            self.written("a.npy", lambda path, a=array: np.save(path, a))
            for array in (rows(3), rows(3, np.float64), np.asfortranarray(rows(4)), rows(2, ">f4"))
        ]
        literals = ("(" * 99, "{'descr': 'O'}", "{'shape': (2**99,)}", "[", "'", "1+" * 400, "\0")
        for text in literals:
            header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {text}}}".encode()
            files.append(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + bytes(80))
        files += [b"PK\3\4" + bytes(50), b"\x93NUMPY\3\0", b""]
        check = self.check_of(self.folder / "matrix.npy", Subspace.load)
        for content in files:
            check(content)
        self.fuzz("subspaces in .npy", fuzzing.mutated(files), check)

    def test_subspaces(self):
        files = [
            self.written("a.safetensors", Subspace(rows(3), **given).save)
            for given in (
                {},
                {
                    "mean": np.ones(10, np.float32),
                    "explained_variance": np.ones(3),
                    "explained_variance_ratio": np.ones(3) / 3,
                    "layout": LAYOUT,
                },
            )
        ]
        inputs = fuzzing.mutated(files) | changed_headers(files)

        def read(path):
            subspace = Subspace.load(path)
            if subspace.mean is not None and subspace.layout is not None:
                subspace.inverse_transform([1.0])

        check = self.check_of(self.folder / "subspace.safetensors", read)
        for content in files:
            check(content)
        self.fuzz("subspaces in .safetensors", inputs, check)

    def test_snapshots(self):
        names = json.dumps([name for name, _ in LAYOUT])
        metadata = {"format": "terngrad_tf.snapshot", "step": "7", "names": names}
        tensors = {name: np.ones(shape, np.float32) for name, shape in LAYOUT}
        write = tensor_files.write_tensors
        files = [self.written("a.safetensors", lambda path: write(path, tensors, metadata))]
        good = snapshot_files.file_name(1)
        (self.folder / good).write_bytes(files[0])

        def read(path):
            snapshot_files.open_snapshots([self.folder / good, path])
            snapshot_files.open_snapshot(path).read()

        check = self.check_of(self.folder / snapshot_files.file_name(7), read)
        for content in files:
            check(content)
        self.fuzz("weight snapshots", fuzzing.mutated(files) | changed_headers(files), check)

    def test_pipes_are_refused_without_waiting(self):
        for suffix in (".npy", ".safetensors"):
            pipe = self.folder / f"pipe{suffix}"
            os.mkfifo(pipe)
            folder = self.folder / f"folder{suffix}"
            folder.mkdir()
            for path in (pipe, folder):
                with self.assertRaisesRegex(ValueError, f"{path} must be a regular file"):
                    Subspace.load(path)
            with self.assertRaisesRegex(ValueError, "is not a path: embedded null byte"):
                Subspace.load(self.folder / f"a\0b{suffix}")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
