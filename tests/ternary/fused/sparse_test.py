"""Tests of the entropy coding of words with mostly zero codes."""

import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from terngrad_tf import ternary

LEVELS = 6


def codes_of(size, share, seed):
    """Returns codes of which about `share` are nonzero."""
    rng = np.random.default_rng(seed)
    return (rng.random(size) < share) * rng.choice([-1, 1], size)


def words_of(codes):
    return ternary.pack(codes.astype(np.int32) + 1, 4, padding=1)


def units_of(codes, log2):
    """Returns the codes of each unit as rows, in the order that `pack` defines."""
    num_words = -(-len(codes) // 16)
    padded = np.zeros(16 * num_words, np.int64)
    padded[: len(codes)] = codes
    # Word i holds element j * num_words + i in digit j.
    words = padded.reshape(16, num_words).T
    words = np.pad(words, [[0, -num_words % 32], [0, 0]])
    if log2 <= 4:
        return words.reshape(-1, 2**log2)
    quarters = words.reshape(4, -1, 16)
    # Digits of the first and second of four words alternate, then those of the third and fourth.
    halves = [np.stack(quarters[k : k + 2], axis=2).reshape(-1, 32) for k in (0, 2)]
    return np.concatenate(halves, axis=1)


def bits_to_bytes(bits):
    return np.packbits(np.array(bits, np.uint8), bitorder="little")


def oracle(codes, log2):
    """Returns the stream in bytes, computed one unit at a time."""
    units = units_of(codes, log2)
    halves = [half_of(half, log2) for half in np.split(units, 2)]
    header = np.array([{3: 1, 4: 2, 6: 3}[log2], len(halves[0])], np.int32).view(np.uint8)
    # Bit j of byte i is unit `j * num_bytes + i`.
    flags = units.any(axis=1).reshape(8, -1)
    stream = np.concatenate([header, bits_to_bytes(flags.T.reshape(-1)), *halves])
    return np.pad(stream, (0, -len(stream) % 4)).view(np.int32)


def half_of(units, log2):
    """Returns levels and rest of one half of the units, in bytes."""
    used, parts = [unit for unit in units if unit.any()], []
    for level in range(LEVELS):
        level_codes = []
        for unit in used:
            places = np.flatnonzero(unit)
            more = len(places) > level + 1
            level_codes.append(
                places[level] | int(unit[places[level]] > 0) << log2 | int(more) << (log2 + 1)
            )
        used = [unit for unit in used if np.count_nonzero(unit) > level + 1]
        if log2 < 6:
            eighth, bits = -(-len(level_codes) // 8), log2 + 2
            level_codes += [0] * (8 * eighth - len(level_codes))
            for i in range(eighth):
                group = sum(int(level_codes[j * eighth + i]) << bits * j for j in range(8))
                parts.append(np.frombuffer(group.to_bytes(bits, "little"), np.uint8))
        else:
            parts.append(np.array(level_codes))
    for unit in used:
        others = unit.copy()
        others[np.flatnonzero(unit)[:LEVELS]] = 0
        if log2 < 6:
            pairs = np.stack([others != 0, others > 0], axis=1)
            parts.append(bits_to_bytes(pairs.reshape(-1)))
        else:
            parts += [bits_to_bytes(others != 0), bits_to_bytes(others > 0)]
    return np.concatenate(parts).astype(np.uint8)


class SparseTest(tf.test.TestCase):
    @settings(deadline=None, max_examples=5, derandomize=True)
    @given(
        size=st.sampled_from([0, 1000]),
        share=st.sampled_from([0.0, 0.001, 0.016, 0.03, 0.1, 0.25, 0.4, 1.0]),
        seed=st.integers(0, 2**32 - 1),
    )
    def test_round_trip(self, size, share, seed):
        words = words_of(codes_of(size, share, seed))
        stream = ternary.compress(words)
        self.assertEqual(stream.dtype, tf.int32)
        self.assertAllEqual(ternary.decompress(stream, words.shape[0]), words)
        followed = tf.concat([stream, [7, -1]], 0)
        self.assertAllEqual(ternary.decompress(followed, words.shape[0]), words)
        self.assertLessEqual(stream.shape[0], 2 + words.shape[0] + -words.shape[0] % 32)

    def test_streams_follow_the_definition(self):
        for share, log2 in ((0.01, 6), (0.02, 6), (0.04, 4), (0.15, 3), (0.25, 3)):
            with self.subTest(share=share):
                codes = codes_of(20_000, share, seed=5)
                self.assertAllEqual(ternary.compress(words_of(codes)), oracle(codes, log2))

    @pytest.mark.slow
    def test_crowded_units_among_empty_ones(self):
        codes = np.zeros(64 * 512, np.int64)
        codes[:256], codes[7000:7100] = 1, -1
        words = words_of(codes)
        stream = ternary.compress(words)
        self.assertAllEqual(stream, oracle(codes, 6))
        self.assertAllEqual(ternary.decompress(stream, words.shape[0]), words)

    @pytest.mark.slow
    def test_bits_an_element_are_as_documented(self):
        size = 2**20
        # Entropies: 0.023, 0.134, 0.387, 0.687.
        for share, bits in (
            (0.002, 0.033),
            (0.016, 0.146),
            (0.03, 0.245),
            (0.06, 0.43),
            (0.13, 0.78),
        ):
            words = words_of(codes_of(size, share, seed=1))
            self.assertLess(32 * ternary.compress(words).shape[0] / size, bits)

    def test_dense_codes_stay_words(self):
        words = words_of(codes_of(4096, 0.6, seed=2))
        self.assertAllEqual(ternary.compress(words), tf.concat([[0, 0], words], 0))

    @pytest.mark.slow
    def test_runs_inside_a_function_without_static_sizes(self):
        @tf.function(input_signature=[tf.TensorSpec([1000], tf.int32)])
        def there_and_back(words):
            return ternary.decompress(ternary.compress(words), 1000)

        for share in (0.0, 0.01, 0.1, 0.9):
            words = words_of(codes_of(16_000, share, seed=3))
            self.assertAllEqual(there_and_back(words), words)

    def test_words_need_a_static_shape(self):
        with self.assertRaisesRegex(ValueError, "`words` must have a static shape"):
            tf.function(ternary.compress).get_concrete_function(tf.TensorSpec([None], tf.int32))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
