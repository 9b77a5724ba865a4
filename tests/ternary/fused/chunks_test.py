"""Tests of exchanges in which each owner sums a chunk."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.ternary import (
    auto_factor,
    decode,
    decode_chunks,
    digits_per_word,
    encode,
    local_scales,
    num_words,
    pack,
    reduce_chunk,
    requantize_chunk,
    sum_errors,
    sum_scales,
    unpack,
)

SHAPES = [[1], [33, 7], [20], [0], [1003]]
TYPES = [tf.float32] * len(SHAPES)


def words_of_replicas(num_replicas, base=3, seed=0):
    """Returns words [N, W] of N replicas, shared scales, and the sum by a plain gather."""
    rng = np.random.default_rng(seed)
    replicas = [
        [tf.constant(rng.normal(size=shape), tf.float32) for shape in SHAPES]
        for _ in range(num_replicas)
    ]
    scales = tf.reduce_max([local_scales(tensors, 2.5) for tensors in replicas], 0)
    kwargs = dict(seed=seed, step=1, num_replicas=num_replicas)
    words = tf.stack(
        [encode(tensors, scales, replica=k, **kwargs) for k, tensors in enumerate(replicas)]
    )
    return words, scales, decode(words, scales, SHAPES, TYPES, total_bias=num_replicas)


def chunks(words, owners):
    """Splits [K, W] into a list of [K, C]."""
    chunk = -(-words.shape[1] // owners)
    words = tf.pad(words, [[0, 0], [0, owners * chunk - words.shape[1]]])
    return tf.split(words, owners, axis=1)


class SumToWordsTest(tf.test.TestCase):
    def test_sums_equal_addition_of_unpacked_digits(self):
        rng = np.random.default_rng(0)
        for senders, chunk, base_in in ((1, 1, 3), (2, 7, 3), (5, 33, 3), (3, 600, 3), (2, 11, 9)):
            size = digits_per_word(base_in) * chunk
            digits = rng.integers(0, base_in, [senders, size], np.int32)
            base_out = senders * (base_in - 1) + 1
            words = reduce_chunk(
                tf.stack([pack(row, base_in) for row in digits]), base_in, base_out=base_out
            )
            self.assertEqual(words.shape, [num_words(size, base_out)])
            self.assertAllEqual(unpack(words, size, base_out), digits.sum(0))

    def test_sums_of_sums(self):
        # Hosts sum their local replicas first; the owner sums hosts.
        rng = np.random.default_rng(1)
        digits = rng.integers(0, 3, [2, 2, 20 * 13], np.int32)
        hosts = [
            reduce_chunk(tf.stack([pack(row, 3) for row in host]), base_out=5) for host in digits
        ]
        total = reduce_chunk(tf.stack(hosts), 5, base_out=9)
        self.assertAllEqual(unpack(total, 260, 9), digits.sum((0, 1)))

    def test_a_base_too_small_for_the_sums_is_refused(self):
        with self.assertRaisesRegex(ValueError, "`base_out` must be at least 9.*=7"):
            reduce_chunk(tf.zeros([4, 3], tf.int32), base_out=7)

    def test_owners_and_gather_agree_bit_for_bit(self):
        for num_replicas in (2, 3):
            words, scales, expected = words_of_replicas(num_replicas)
            for owners in (1, num_replicas):
                pieces = chunks(words, owners)
                base = 2 * num_replicas + 1
                sums = tf.stack([reduce_chunk(piece, base_out=base) for piece in pieces])
                decoded = decode_chunks(
                    sums,
                    scales,
                    SHAPES,
                    TYPES,
                    chunk_words=pieces[0].shape[1],
                    base_out=base,
                    total_bias=num_replicas,
                )
                for actual, wanted in zip(decoded, expected, strict=True):
                    self.assertAllEqual(actual, wanted)

    def test_sums_of_another_shape_are_refused(self):
        for shape, chunk in (([2, 3], 1), ([1, 20], 1)):
            with self.assertRaisesRegex(ValueError, "`words` must have shape .owners, 2."):
                decode_chunks(
                    tf.zeros(shape, tf.int32),
                    [1.0],
                    [[60]],
                    [tf.float32],
                    chunk_words=chunk,
                    base_out=5,
                    total_bias=2,
                )


class SumScalesTest(tf.test.TestCase):
    """Scales of sums of three tensors with 1, 0 and 99 words."""

    WIDTHS = (1, 0, 99)
    TENSORS = (0, *[2] * 99)

    def digits(self, num_replicas, levels=1, count=20, share=0.25):
        rng = np.random.default_rng(5)
        size = [num_replicas, count * len(self.TENSORS)]
        codes = rng.integers(1, levels + 1, size) * rng.choice([-1, 1], size)
        return (codes * (rng.random(size) < share) + levels).astype(np.int32)

    def sums(self, digits, levels=1):
        """Returns the sums of each tensor; digits are plane-major."""
        sums = (digits - levels).sum(0).reshape(-1, len(self.TENSORS))
        return [sums[:, np.equal(self.TENSORS, t)] for t in range(3)]

    def test_scales_follow_the_rule(self):
        for levels, base, count in ((1, 3, 20), (7, 15, 8), (3, 8, 10)):
            digits = self.digits(16, levels, count)
            words = tf.stack([pack(row, base) for row in digits])
            how = dict(levels=levels, base=base)
            largest = [np.abs(s).max(initial=0) for s in self.sums(digits, levels)]
            found = sum_scales(words, self.WIDTHS, 16, clip=False, **how)
            self.assertAllEqual(found, largest)
            clipped = [
                min(
                    most,
                    auto_factor(1, levels) * np.mean(s.astype(float) ** 2) / 2 / np.mean(np.abs(s)),
                )
                if most
                else 0
                for s, most in zip(self.sums(digits, levels), largest, strict=True)
            ]
            found = sum_scales(words, self.WIDTHS, 16, clip=True, **how)
            self.assertAllClose(found, clipped, rtol=1e-6)
            if levels == 1:
                self.assertLess(found[2], largest[2])

    def test_zeros_have_no_scale(self):
        words = tf.stack([pack(np.full([2000], 1, np.int32), 3)] * 2)
        for clip in (False, True):
            self.assertAllEqual(sum_scales(words, self.WIDTHS, 2, clip=clip), [0, 0, 0])
        new = requantize_chunk(words, 2, seed=0, step=0, stream=0, scales=tf.zeros([100]))
        self.assertAllEqual(unpack(new, 2000, 3), np.ones([2000]))

    def test_words_of_no_tensor_are_refused(self):
        with self.assertRaisesRegex(ValueError, "`widths` must add up to the 3 words.*widths=.2."):
            sum_scales(tf.zeros([2, 3], tf.int32), [2], 2, clip=False)

    def test_sums_of_local_replicas_have_the_scales_of_their_digits(self):
        plain = tf.stack([pack(row, 3) for row in self.digits(4)])
        # Words of hosts hold fewer digits; their last places are padding.
        digits = np.pad(self.digits(4), [[0, 0], [0, 13 * 200 - 2000]], constant_values=1)
        hosts = tf.stack([pack(digits[k : k + 2].sum(0), 5) for k in (0, 2)])
        for clip in (False, True):
            a = sum_scales(plain, [100], 4, clip=clip)
            b = sum_scales(hosts, [200], 4, clip=clip, base=5)
            self.assertAllEqual(a, b)

    @pytest.mark.slow
    def test_errors_equal_those_of_many_roundings(self):
        for levels, base, count in ((1, 3, 20), (7, 15, 8), (2, 5, 13)):
            digits = self.digits(16, levels, count)
            words = tf.stack([pack(row, base) for row in digits])
            how = dict(levels=levels, base=base)
            # Includes a scale of zero, and one that clips most sums.
            for scales in ([8.0, 0.0, 8.3], [0.0, 0.0, 2.1 * levels], [16.0 * levels] * 3):
                by_word = tf.gather(tf.constant(scales), self.TENSORS)
                drawn = dict(how, seed=0, stream=0, base_out=base, scales=by_word)
                new = [requantize_chunk(words, 16, step=k, **drawn) for k in range(40)]
                new = [unpack(codes, digits.shape[1], base).numpy() for codes in new]
                new = [self.sums(codes[np.newaxis], levels) for codes in new]
                found = sum_errors(words, self.WIDTHS, by_word, 16, **how)
                for t, sums in enumerate(self.sums(digits, levels)):
                    step = scales[t] / levels
                    errors = [np.sum((codes[t] * step - sums) ** 2) for codes in new]
                    most = 4 * np.std(errors) / np.sqrt(len(errors)) + 1e-5 * np.mean(errors)
                    self.assertNear(found[t], np.mean(errors), most)

    def test_rounding_by_scales_is_unbiased_and_adds_less_noise(self):
        num_replicas = 16
        digits = self.digits(num_replicas)
        words = tf.stack([pack(row, 3) for row in digits])
        sums = (digits - 1).sum(0)
        scales = tf.gather(sum_scales(words, self.WIDTHS, 16, clip=False), self.TENSORS)
        of_place = np.tile(scales, 20)
        errors = {}
        for name, scale in (("mean", None), ("largest", scales)):
            by = num_replicas if scale is None else of_place
            found = []
            for step in range(30):
                new = requantize_chunk(words, 16, seed=0, step=step, stream=0, scales=scale)
                found.append(by * (unpack(new, sums.size, 3).numpy() - 1) - sums)
            errors[name] = np.array(found)
        # Five standard errors: of all sums, and of each value of a sum.
        for error in errors.values():
            deviation = error.std()
            self.assertNear(error.mean(), 0, 5 * deviation / np.sqrt(error.size))
            for value in (-3, -1, 1, 3):
                chosen = error[:, sums == value]
                self.assertNear(chosen.mean(), 0, 5 * deviation / np.sqrt(chosen.size))
        self.assertLess(errors["largest"].std(), 0.85 * errors["mean"].std())
        self.assertAllInRange(errors["largest"], -of_place.max(), of_place.max())

    def test_sums_beyond_their_scale_are_clipped(self):
        words = tf.stack([pack(np.full([2000], 2, np.int32), 3)] * 4)
        half = tf.fill([100], 2.0)
        new = requantize_chunk(words, 4, seed=0, step=0, stream=0, scales=half)
        self.assertAllEqual(unpack(new, 2000, 3), np.full([2000], 2))

    def test_owners_have_their_own_scales(self):
        words, scales, _ = words_of_replicas(1)
        for owners in (2, 3, 7):
            pieces = chunks(words, owners)
            chunk = pieces[0].shape[1]
            rows = tf.stack([requantize_chunk(p, 1, seed=0, step=0, stream=0) for p in pieces])
            how = dict(chunk_words=chunk, base_out=3, total_bias=1)
            factors = np.random.default_rng(6).random([owners, len(SHAPES)]).astype(np.float32)
            plain = decode_chunks(rows, scales, SHAPES, TYPES, **how)
            scaled = decode_chunks(rows, scales, SHAPES, TYPES, owner_scales=factors, **how)
            first = 0
            for tensor, (a, b) in enumerate(zip(plain, scaled, strict=True)):
                size = int(tf.size(a))
                width = num_words(size, 3)
                of_words = factors[np.arange(first, first + width) // chunk, tensor]
                of_elements = np.tile(of_words, 20)[:size].reshape(a.shape)
                self.assertAllClose(b, a * of_elements, rtol=1e-6)
                first += width


class TernarizeSumsTest(tf.test.TestCase):
    def rounded(self, words, num_replicas, *, step=0, stream=0, seed=0, **kwargs):
        words = requantize_chunk(words, num_replicas, seed=seed, step=step, stream=stream, **kwargs)
        return unpack(words, 20 * words.shape[0], 3).numpy() - 1

    def test_rounding_of_the_mean_is_unbiased(self):
        num_replicas, size = 4, 20 * 1500
        digits = np.random.default_rng(2).integers(0, 3, [num_replicas, size], np.int32)
        mean = (digits - 1).mean(0)
        words = tf.stack([pack(row, 3) for row in digits])
        error = [self.rounded(words, num_replicas, step=step) - mean for step in range(8)]
        for value in (-0.75, -0.5, 0.0, 0.25, 0.5):
            chosen = np.concatenate([e[mean == value] for e in error])
            # Each independent rounding has variance |m| (1 - |m|); five standard deviations.
            bound = 5 * np.sqrt(abs(value) * (1 - abs(value)) / chosen.size)
            self.assertNear(chosen.mean(), 0.0, bound + 1e-12)

    def test_certain_means_stay_certain(self):
        for code in (-1, 0, 1):
            words = tf.stack([pack(np.full([400], code + 1, np.int32), 3)] * 3)
            self.assertAllEqual(self.rounded(words, 3), np.full([400], code))

    def test_means_of_finer_codes_are_rounded_to_one_without_bias(self):
        levels, num_replicas, chunk = 7, 3, 2000
        size = digits_per_word(15) * chunk
        digits = np.random.default_rng(4).integers(0, 15, [num_replicas, size], np.int32)
        words = tf.stack([pack(row, 15) for row in digits])
        how = dict(seed=0, step=1, stream=2, levels=levels, base=15)
        mean = (digits - levels).mean(0)
        for base_out in (15, 16):
            new = requantize_chunk(words, num_replicas, base_out=base_out, **how)
            codes = unpack(new, size, base_out).numpy() - levels
            error = codes - mean
            self.assertAllInRange(error, -1 + 1e-6, 1 - 1e-6)
            self.assertNear(error.mean(), 0.0, 5 * 0.5 / np.sqrt(size))
            self.assertAllEqual(error[np.abs(mean) == levels], 0 * error[np.abs(mean) == levels])

    @pytest.mark.slow
    def test_sums_of_local_replicas_round_as_their_digits(self):
        digits = np.random.default_rng(3).integers(0, 3, [4, 20 * 13], np.int32)
        plain = tf.stack([pack(row, 3) for row in digits])
        hosts = tf.stack([reduce_chunk(plain[k : k + 2], base_out=5) for k in (0, 2)])
        self.assertAllEqual(self.rounded(plain, 4), self.rounded(hosts, 4, base=5))

    def test_steps_chunks_and_seeds_draw_other_bits(self):
        words = tf.stack([pack(np.full([400], 2 * k, np.int32), 3) for k in range(2)])
        words = tf.concat([words, pack(np.full([400], 1, np.int32), 3)[tf.newaxis]], 0)
        words = tf.concat([words, pack(np.full([400], 2, np.int32), 3)[tf.newaxis]], 0)
        base = self.rounded(words, 4)
        for change in (dict(step=1), dict(stream=1), dict(seed=1)):
            self.assertGreater(np.sum(self.rounded(words, 4, **change) != base), 50)

    def test_both_hops_together_are_unbiased(self):
        num_replicas, size, steps = 2, 2000, 60
        rng = np.random.default_rng(4)
        gradients = np.clip(rng.normal(size=[num_replicas, size]), -2, 2).astype(np.float32)
        scale = float(np.abs(gradients).max())
        total = np.zeros([size])
        for step in range(steps):
            words = tf.stack(
                [
                    encode([g], [scale], seed=0, step=step, replica=k, num_replicas=num_replicas)
                    for k, g in enumerate(gradients)
                ]
            )
            rounded = requantize_chunk(words, num_replicas, seed=0, step=step, stream=0)
            (decoded,) = decode(
                rounded[tf.newaxis], [num_replicas * scale], [[size]], [tf.float32], total_bias=1
            )
            total += decoded.numpy()
        error = total / steps - gradients.sum(0)
        # A result is within 2 N s, so its variance is at most (N s)**2. Five deviations for the
        # mean and its first moment; six for each of the `size` elements.
        deviation = num_replicas * scale / np.sqrt(steps)
        self.assertNear(error.mean(), 0.0, 5 * deviation / np.sqrt(size))
        self.assertNear((error * np.sign(gradients[0])).mean(), 0.0, 5 * deviation / np.sqrt(size))
        self.assertAllInRange(error, -6 * deviation, 6 * deviation)

    def test_chunks_of_owners_decode_like_the_words_they_replace(self):
        words, scales, expected = words_of_replicas(1)
        pieces = chunks(words, 3)
        # For one replica, the mean of its codes is certain, so rounding is exact.
        rounded = [
            requantize_chunk(piece, 1, seed=0, step=0, stream=owner)
            for owner, piece in enumerate(pieces)
        ]
        whole = tf.concat(rounded, 0)[tf.newaxis, : words.shape[1]]
        chunk = pieces[0].shape[1]
        for decoded in (
            decode(whole, scales, SHAPES, TYPES, total_bias=1),
            decode_chunks(
                tf.stack(rounded),
                scales,
                SHAPES,
                TYPES,
                chunk_words=chunk,
                base_out=3,
                total_bias=1,
            ),
        ):
            for actual, wanted in zip(decoded, expected, strict=True):
                self.assertAllEqual(actual, wanted)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
