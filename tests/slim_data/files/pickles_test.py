"""Pickles as data: only plain values are read, and no code runs."""

import os
import pickle
import struct
import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from slim_data.common.errors import DataError
from slim_data.files import pickles
from tests.fuzz import fuzzing
from tests.slim_data import cifar10_archives, samples

KEYS = st.one_of(st.text(max_size=4), st.binary(min_size=1, max_size=4))
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.text(),
    st.binary(min_size=1, max_size=300),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(KEYS, inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
    ),
    max_leaves=12,
)


class Attack:
    """Pickles as a call."""

    def __init__(self, *call):
        self._call = call

    def __reduce__(self):
        return self._call


class State(dict):
    """Pickles as an object with a state."""

    def __reduce__(self):
        return (dict, (), {"x": 1})


class PicklesTest(tf.test.TestCase):
    def assert_refused(self, data, part=""):
        with self.assertRaises(DataError) as caught:
            pickles.read_pickle(data)
        self.assertNotIn("\n", str(caught.exception))
        self.assertIn(part, str(caught.exception))

    @settings(deadline=None, max_examples=150, derandomize=True)
    @given(VALUES, st.sampled_from([2, 3, 4]))
    def test_plain_values_round_trip(self, value, protocol):
        self.assertEqual(pickles.read_pickle(pickle.dumps(value, protocol=protocol)), value)

    def test_arrays_of_both_pythons_round_trip(self):
        array = np.arange(600, dtype=np.uint8).reshape(20, 30)
        old = b"\x80\x02" + cifar10_archives.python2_array(array) + b"."
        for data in (old, *(pickle.dumps(array, protocol=p) for p in (2, 3, 4))):
            found = pickles.read_pickle(data)
            self.assertAllEqual(found, array)
            self.assertEqual(found.dtype, np.uint8)

    def test_strings_of_python_2_are_bytes(self):
        for data in (b"labels", bytes(range(256)) * 3):
            self.assertEqual(
                pickles.read_pickle(b"\x80\x02" + cifar10_archives.python2_string(data) + b"."),
                data,
            )

    def test_code_is_refused_and_does_not_run(self):
        marker = os.path.join(samples.new_folder(self), "ran")
        touch = f"touch {marker}"
        for attack in (
            Attack(os.system, (touch,)),
            Attack(eval, (f"open({marker!r}, 'w')",)),
            Attack(exec, (f"open({marker!r}, 'w')",)),
            Attack(open, (marker, "w")),
            Attack(__import__, ("os",)),
            Attack(np.fromfile, (marker,)),
            Attack(type, ("X", (), {})),
            Attack(str, ("x",)),
        ):
            for value in (attack, {"data": attack}, [[(attack,)]], np.array([attack], object)):
                for protocol in (0, 1, 2, 3, 4, 5):
                    self.assert_refused(pickle.dumps(value, protocol=protocol))
        self.assertFalse(os.path.exists(marker))

    def test_allowed_names_are_not_called(self):
        reconstruct = b"cnumpy.core.multiarray\n_reconstruct\n"
        ndarray = b"cnumpy\nndarray\n"
        for data, part in (
            # _reconstruct with a size beyond any memory, and a state that is too short.
            (reconstruct + ndarray + b"\x8a\x06\0\0\0\0\0\x01\x85U\x01b\x87R(K\x01tb", "damaged"),
            (reconstruct + ndarray + b"\x85R}b", "damaged"),
            (b"c_codecs\nencode\nX\x01\0\0\0xX\x03\0\0\0hex\x86R", "latin-1"),
            (b"U\x01xU\x01y\x85R", "calls a value"),
            (ndarray + b"}U\x01aU\x01bsb", "sets the state of a value"),
            (b"}}b", "sets the state of a value"),
            (ndarray + b")\x81", "NEWOBJ"),
            (b"(" + ndarray + b"o", "OBJ"),
            (b"(inumpy\nndarray\n", "INST"),
            (b"U\x04evil" + b"Q", "BINPERSID"),
            (b"\x82\x01", "EXT1"),
            (b"(c__builtin__\neval\n", "'__builtin__ eval'"),
        ):
            self.assert_refused(b"\x80\x02" + data + b".", part)
        self.assert_refused(pickle.dumps(State(), protocol=2))

    def test_results_of_calls_are_no_values(self):
        for data in (b"cnumpy\ndtype\n.", b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R."):
            found = pickles.read_pickle(b"\x80\x02" + data)
            self.assertNotIsInstance(found, (np.dtype, np.ndarray, type))

    def test_a_mark_is_no_value(self):
        self.assert_refused(b"\x80\x02(.", "damaged")

    def test_arrays_of_other_kinds_are_refused(self):
        for array in (
            np.array([{}], object),
            np.zeros(4, np.int16),
            np.zeros(4, "V1"),
            np.zeros(4, bool),
            np.asfortranarray(np.zeros((4, 4), np.uint8)),
        ):
            self.assert_refused(pickle.dumps(array, protocol=2), "that is not contiguous uint8")
        short = cifar10_archives.python2_array(np.zeros((4, 5), np.uint8))
        grown = short.replace(struct.pack("<i", 5), struct.pack("<i", 2**30))
        self.assert_refused(b"\x80\x02" + grown + b".", "damaged")

    def test_declared_sizes_are_not_trusted(self):
        for data in (
            b"T\xff\xff\xff\x7fx",
            b"B\xff\xff\xff\xffx",
            b"\x8e" + b"\xff" * 7 + b"\x7fx",
            b"\x96" + b"\xff" * 7 + b"\x7fx",
            b"\x8b\xff\xff\xff\x7fx",
        ):
            self.assert_refused(b"\x80\x04" + data + b".")
        # The memo is a dictionary, so a high number costs no memory.
        self.assertEqual(pickles.read_pickle(b"\x80\x02K\x01r\xff\xff\xff\xff."), 1)

    def test_pickles_that_grow_are_refused(self):
        text = b"X" + struct.pack("<i", 2**20) + b"x" * 2**20
        encode = b"c_codecs\nencode\nq\x00" + text + b"q\x01X\x06\0\0\0latin1q\x02"
        again = b"h\x00h\x01h\x02\x86R"
        for data, part in (
            # A text of 1 MiB, encoded repeatedly: 40 GB.
            (encode + again * 40_000, "encodes a value more than once"),
            (b"]" * 2**26, "more than"),
            (b"(" * 2**26, "more than"),
            (b"K\x01q\x00" + b"h\x00" * 2**24, "more than"),
            # Each list contains the previous one twice.
            (b"]q\x00" + b"".join(b"](h\x00h\x00eq\x00" for _ in range(50_000)), "more than"),
        ):
            with fuzzing.limited():
                self.assert_refused(b"\x80\x02" + data + b".", part)

    def test_deep_nesting_is_harmless(self):
        depth = 200_000
        pickles.read_pickle(b"\x80\x02" + b")" + b"\x85" * depth + b".")
        self.assert_refused(
            b"\x80\x02}" + b")" + b"\x85" * depth + b"K\x01s.", "keys that are not strings"
        )

    @settings(deadline=None, max_examples=300, derandomize=True)
    @given(st.data())
    def test_any_damage_is_refused_in_one_line(self, data):
        images, labels = cifar10_archives.batch(0, 2)
        whole = bytearray(cifar10_archives.python_batch(images, labels))
        for _ in range(data.draw(st.integers(1, 3))):
            # Skips the pixels, where damage cannot be noticed.
            at = data.draw(st.one_of(st.integers(0, 250), st.integers(len(whole) - 60, 10**5)))
            whole[min(at, len(whole) - 1)] = data.draw(st.integers(0, 255))
        try:
            pickles.read_pickle(bytes(whole[: data.draw(st.integers(1, len(whole)))]))
        except DataError as error:
            self.assertNotIn("\n", str(error))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
