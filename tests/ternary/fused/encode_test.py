"""Tests of encoding a list of gradients to words, and of decoding."""

import sys
import threading

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from terngrad_tf.ternary import (
    ROUNDINGS,
    decode,
    digits_per_word,
    encode,
    local_scales,
    num_words,
    sum_codes,
    ternarize,
)

FLOATS = (tf.float32, tf.float16, tf.bfloat16)
# Sizes around the digits of a word (20) and a row (512), and an empty tensor.
SHAPES = ([1], [3, 5], [19], [20], [21], [0], [], [401], [27, 31], [10_239], [10_241])


def oracle_words(tensors, scales, base, *, levels=1, **kwargs):
    """`encode` in NumPy: writes one digit after another."""
    count = digits_per_word(base)
    result = []
    for index, (tensor, scale) in enumerate(zip(tensors, scales, strict=True)):
        q = ternarize(tensor, scale, tensor=index, levels=levels, **kwargs)
        q = q.numpy().ravel().astype(object)
        width = -(-q.size // count)
        words = [0] * width
        for place in range(count * width):
            digit = levels + (q[place] if place < q.size else 0)
            words[place % width] += digit * base ** (place // width)
        result += words
    return np.array(result, np.uint64).astype(np.uint32).view(np.int32)


def example(shapes, dtypes=None, seed=0):
    rng = np.random.default_rng(seed)
    dtypes = dtypes or [tf.float32] * len(shapes)
    return [
        tf.constant(rng.normal(size=shape), dtype)
        for shape, dtype in zip(shapes, dtypes, strict=True)
    ]


def sum_of_replicas(replicas, scales, **kwargs):
    """Returns the expected sum of all replicas, computed by `ternarize` alone."""
    result = []
    for index, tensors in enumerate(zip(*replicas, strict=True)):
        total = sum(
            ternarize(
                tensor,
                scales[index],
                tensor=index,
                replica=replica,
                num_replicas=len(replicas),
                **kwargs,
            )
            for replica, tensor in enumerate(tensors)
        )
        total = scales[index] * tf.cast(total, tf.float32)
        result.append(tf.cast(total, tensors[0].dtype))
    return result


class EncodeTest(tf.test.TestCase):
    def test_words_equal_the_definition(self):
        dtypes = [FLOATS[i % 3] for i in range(len(SHAPES))]
        tensors = example(SHAPES, dtypes)
        scales = local_scales(tensors, 2.5)
        for rounding in ROUNDINGS:
            kwargs = dict(seed=5, step=2**35 + 1, replica=2, num_replicas=3, rounding=rounding)
            for base in (3, 4, 7):
                self.assertAllEqual(
                    encode(tensors, scales, base=base, **kwargs),
                    oracle_words(tensors, scales, base, **kwargs),
                )

    @pytest.mark.slow
    def test_words_of_finer_codes_equal_the_definition(self):
        tensors = example(SHAPES)
        scales = local_scales(tensors, 0)
        kwargs = dict(seed=5, step=3, replica=2, num_replicas=3, rounding="correlated")
        for levels, base in ((3, 7), (7, 15), (7, 43), (127, 255)):
            words = encode(tensors, scales, base=base, levels=levels, **kwargs)
            expected = oracle_words(tensors, scales, base, levels=levels, **kwargs)
            self.assertAllEqual(words, expected)
            steps = scales / levels
            decoded = decode(
                *(words[tf.newaxis], steps, [t.shape for t in tensors]),
                dtypes=[tf.float32] * len(tensors),
                base=base,
                total_bias=levels,
            )
            for index, (tensor, found) in enumerate(zip(tensors, decoded, strict=True)):
                q = ternarize(tensor, scales[index], tensor=index, levels=levels, **kwargs)
                self.assertAllEqual(found, steps[index] * tf.cast(q, tf.float32))

    def test_a_large_tensor_of_finer_codes_comes_back(self):
        (tensor,) = example([[2**20 + 3]])
        scales = local_scales([tensor], 0)
        kwargs = dict(seed=5, step=4, replica=1, num_replicas=2, levels=7)
        words = encode([tensor], scales, base=15, **kwargs)
        (found,) = decode(
            *(words[tf.newaxis], scales / 7, [tensor.shape], [tf.float32]), base=15, total_bias=7
        )
        q = ternarize(tensor, scales[0], tensor=0, **kwargs)
        self.assertAllEqual(found, scales[0] / 7 * tf.cast(q, tf.float32))

    @pytest.mark.slow
    def test_large_tensors_equal_the_definition(self):
        # Each size with a loop; sizes with and without a remainder, beside small ones.
        shapes = ([7], [2**20], [33], [2**20 + 3], [64, 2], [2**20 + 3])
        tensors = example(shapes)
        scales = local_scales(tensors, 2.5)
        kwargs = dict(seed=5, step=4, replica=1, num_replicas=2)
        words = encode(tensors, scales, **kwargs)
        decoded = decode(words[tf.newaxis], scales, shapes, [tf.float32] * 6, total_bias=1)
        start = 0
        for index, tensor in enumerate(tensors):
            q = ternarize(tensor, scales[index], tensor=index, **kwargs)
            self.assertAllEqual(decoded[index], scales[index] * tf.cast(q, tf.float32))
            flat, width = tf.reshape(q, [-1]).numpy() + 1, num_words(tensor.shape.num_elements(), 3)
            digits = np.pad(flat, (0, 20 * width - flat.size), constant_values=1)
            powers = 3 ** np.arange(20, dtype=np.uint64)[:, np.newaxis]
            expected = np.sum(digits.reshape([20, width]).astype(np.uint64) * powers, 0)
            self.assertAllEqual(
                words[start : start + width], expected.astype(np.uint32).view(np.int32)
            )
            start += width
        self.assertEqual(start, words.shape[0])

    @settings(deadline=None, max_examples=4, derandomize=True)
    @given(
        sizes=st.lists(st.integers(0, 900), min_size=1, max_size=4),
        num_replicas=st.integers(1, 5),
        rounding=st.sampled_from(ROUNDINGS),
        seed=st.integers(0, 1000),
    )
    def test_gathered_and_added_words_both_decode_to_the_sum(
        self, sizes, num_replicas, rounding, seed
    ):
        shapes = [[size] for size in sizes]
        replicas = [example(shapes, seed=seed + k) for k in range(num_replicas)]
        scales = tf.reduce_max([local_scales(tensors, 2.5) for tensors in replicas], 0)
        expected = sum_of_replicas(replicas, scales, seed=seed, step=3, rounding=rounding)
        for base in (3, 2 * num_replicas + 1):
            words = tf.stack(
                [
                    encode(
                        tensors,
                        scales,
                        seed=seed,
                        step=3,
                        replica=replica,
                        num_replicas=num_replicas,
                        rounding=rounding,
                        base=base,
                    )
                    for replica, tensors in enumerate(replicas)
                ]
            )
            outputs = ([tf.float32] * len(shapes),)
            gathered = decode(words, scales, shapes, *outputs, base=base, total_bias=num_replicas)
            self.assertAllEqual(tf.concat(gathered, 0), tf.concat(expected, 0))
        added = tf.reduce_sum(words, 0, keepdims=True)
        added = decode(added, scales, shapes, *outputs, base=base, total_bias=num_replicas)
        self.assertAllEqual(tf.concat(added, 0), tf.concat(expected, 0))

    def test_lanes_of_4096_replicas_do_not_carry(self):
        size, num_replicas = 101, 4096
        base = 2 * num_replicas + 1
        kwargs = dict(seed=0, step=0, replica=0, num_replicas=num_replicas, base=base)
        total = 0
        for value, count in ((1.0, 4000), (-1.0, 90), (0.0, 6)):
            total += count * encode([tf.fill([size], value)], [1.0], **kwargs)
        (decoded,) = decode(
            total[tf.newaxis], [0.5], [[size]], [tf.float32], base=base, total_bias=num_replicas
        )
        self.assertAllEqual(decoded, np.full([size], 0.5 * (4000 - 90)))

    def test_results_have_the_given_types(self):
        shapes = [[33], [2, 7], [5]]
        tensors = example(shapes, FLOATS)
        scales = local_scales(tensors, 2.5)
        words = encode(tensors, scales, seed=0, step=0, replica=0, num_replicas=1)
        decoded = decode(words[tf.newaxis], scales, shapes, FLOATS, total_bias=1)
        expected = sum_of_replicas([tensors], scales, seed=0, step=0)
        for actual, wanted, dtype in zip(decoded, expected, FLOATS, strict=True):
            self.assertEqual(actual.dtype, dtype)
            self.assertAllEqual(actual, wanted)

    def test_a_non_finite_scale_makes_its_tensor_nan_and_no_other(self):
        tensors = [tf.constant([1.0, np.nan]), tf.constant([2.0]), tf.zeros([3])]
        scales = local_scales(tensors, 2.5)
        self.assertAllEqual(scales, [np.inf, 2.0, 0.0])
        words = encode(tensors, scales, seed=0, step=0, replica=0, num_replicas=1)
        shapes, dtypes = [[2], [1], [3]], [tf.float32, tf.float16, tf.bfloat16]
        decoded = decode(words[tf.newaxis], scales, shapes, dtypes, total_bias=1)
        self.assertAllEqual(decoded[0], [np.nan, np.nan])
        self.assertAllEqual(decoded[1], [2.0])
        self.assertAllEqual(tf.cast(decoded[2], tf.float32), [0.0, 0.0, 0.0])

    def test_eager_graph_and_xla_give_the_same_words_and_tensors(self):
        shapes = [[129, 3], [40]]
        tensors = example(shapes)
        scales = local_scales(tensors, 2.5)

        def run(tensors, scales, step, replica):
            words = encode(tensors, scales, seed=7, step=step, replica=replica, num_replicas=2)
            return words, decode(words[tf.newaxis], scales, shapes, [tf.float32] * 2, total_bias=1)

        arguments = (tensors, scales, tf.constant(9, tf.int64), tf.constant(1))
        words, decoded = run(*arguments)
        self.assertAllEqual(run(tensors, scales, 9, 1)[0], words)
        for jit in (False, True):
            again = tf.function(run, jit_compile=jit)(*arguments)
            self.assertAllEqual(again[0], words)
            for actual, expected in zip(again[1], decoded, strict=True):
                self.assertAllEqual(actual, expected)

    def test_one_trace_serves_all_steps_and_replicas(self):
        tensors, scales = example([[50]]), tf.constant([1.0])

        @tf.function
        def run(step, replica):
            return encode(tensors, scales, seed=0, step=step, replica=replica, num_replicas=4)

        for step, replica in ((0, 0), (1, 3), (2**40, 2)):
            self.assertAllEqual(
                run(tf.constant(step, tf.int64), tf.constant(replica)),
                encode(tensors, scales, seed=0, step=step, replica=replica, num_replicas=4),
            )
        self.assertEqual(run.experimental_get_tracing_count(), 1)

    def test_random_sequences_follow_the_numbers_in_tensors(self):
        tensors, scales = [tf.fill([100], 0.5)] * 2, tf.ones([2])
        kwargs = dict(seed=0, step=0, replica=0, num_replicas=1)
        words = encode(tensors, scales, tensors=[4, 9], **kwargs)
        for position, number in enumerate((4, 9)):
            one = encode(tensors[:1], scales[:1], tensors=[number], **kwargs)
            self.assertAllEqual(words[5 * position : 5 * position + 5], one)
        self.assertNotAllEqual(words[:5], words[5:])

    def test_several_threads_may_trace_at_once(self):
        tensors, scales = example([[77], [600]]), tf.ones([2])
        kwargs = dict(seed=3, num_replicas=5)
        results = {}

        def work(replica):
            run = tf.function(lambda: encode(tensors, scales, step=1, replica=replica, **kwargs))
            results[replica] = run().numpy()

        threads = [threading.Thread(target=work, args=(replica,)) for replica in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for replica in range(4):
            expected = encode(tensors, scales, step=1, replica=replica, **kwargs)
            self.assertAllEqual(results[replica], expected)

    def test_it_runs_on_every_logical_device(self):
        # There is a single device if other tests initialized TensorFlow before.
        tensors, scales = example([[77]]), tf.ones([1])
        expected = encode(tensors, scales, seed=0, step=0, replica=0, num_replicas=1)
        for device in tf.config.list_logical_devices("CPU"):
            with tf.device(device.name):
                words = encode(tensors, scales, seed=0, step=0, replica=0, num_replicas=1)
            self.assertAllEqual(words, expected)

    @pytest.mark.slow
    def test_tensors_of_a_size_share_a_loop_and_constants_are_small(self):
        def loops(sizes):
            def run(step):
                words = [
                    encode(
                        [tf.ones([size]) for size in sizes],
                        tf.ones([len(sizes)]),
                        seed=0,
                        step=step,
                        replica=0,
                        num_replicas=2,
                        tensors=tensors,
                    )
                    for tensors in (range(len(sizes)), range(9, 9 + len(sizes)))
                ]
                sums = sum_codes(
                    [[tf.ones([size]) for size in sizes]] * 2,
                    tf.ones([len(sizes)]),
                    seed=0,
                    step=step,
                    replicas=[0, 1],
                    num_replicas=2,
                )
                return words, sums

            graph = tf.function(run).get_concrete_function(tf.TensorSpec([], tf.int32)).graph
            definition = graph.as_graph_def()
            self.assertLess(definition.ByteSize(), 400_000)
            names = [function.signature.name for function in definition.library.function]
            return sum("encode_large" in name for name in names)

        self.assertEqual(loops([2**20 + 3] * 3), 1)
        self.assertEqual(loops([2**20 + 3, 2**20 + 4]), 2)
        self.assertEqual(loops([1_000, 500_000, 900_000, 12]), 0)

    def test_lists_of_any_length_share_the_function_that_makes_keys(self):
        kwargs = dict(seed=0, step=0, replica=0, num_replicas=1)

        def run(tensors):
            scales = tf.ones([len(tensors)])
            return encode(tensors, scales, **kwargs), encode(tensors[:-2], scales[:-2], **kwargs)

        tensors = example([[7]] * 67)
        function = tf.function(run).get_concrete_function(tensors)
        library = function.graph.as_graph_def().library.function
        # A single function serves both lengths, 67 and 65.
        self.assertEqual(sum("by_tensor" in found.signature.name for found in library), 1)
        words, fewer = function(tensors)
        self.assertAllEqual(fewer, words[:-2])
        for position in (0, 63, 64, 66):
            one = encode(
                tensors[position : position + 1], tf.ones([1]), tensors=[position], **kwargs
            )
            self.assertAllEqual(words[position : position + 1], one)

    def test_neighbours_without_elements(self):
        for shapes in ([[2**20], [0], [0, 3]], [[0], [0, 3]]):
            scales = tf.ones([len(shapes)])
            gradients = [tf.ones(shape) for shape in shapes]
            words = encode(gradients, scales, seed=0, step=0, replica=0, num_replicas=1)
            dtypes = [tf.float32] * len(shapes)
            decoded = decode(words[tf.newaxis], scales, shapes, dtypes, total_bias=1)
            for found, gradient in zip(decoded, gradients, strict=True):
                self.assertAllEqual(found, gradient)

    def test_empty_lists_encode_to_no_words(self):
        words = encode([], tf.zeros([0]), seed=0, step=0, replica=0, num_replicas=1)
        self.assertAllEqual(words, tf.zeros([0], tf.int32))
        self.assertEqual(decode(words[tf.newaxis], [], [], [], total_bias=1), [])

    def test_bad_arguments_are_refused(self):
        good = dict(seed=0, step=0, replica=0, num_replicas=1)
        cases = (
            (ValueError, "`rounding` must be", dict(rounding="up")),
            (ValueError, "`num_replicas` must be", dict(num_replicas=0)),
            (ValueError, "`base` must be at least 3", dict(base=2)),
            (ValueError, "`tensors` must have one entry", dict(tensors=[1, 2])),
        )
        for error, message, change in cases:
            with self.assertRaisesRegex(error, message):
                encode([tf.ones([3])], [1.0], **{**good, **change})
        with self.assertRaisesRegex(TypeError, "`gradients` must be float16.*float64"):
            encode([tf.ones([3], tf.float64)], [1.0], **good)
        with self.assertRaisesRegex(ValueError, "`words` must have shape .senders, 1."):
            decode(tf.zeros([1, 2], tf.int32), [1.0], [[3]], [tf.float32], total_bias=1)
        with self.assertRaisesRegex(ValueError, "`dtypes` must have one entry"):
            decode(tf.zeros([1, 1], tf.int32), [1.0], [[3]], [], total_bias=1)

        @tf.function(input_signature=[tf.TensorSpec([None])])
        def unknown(gradient):
            return encode([gradient], [1.0], **good)

        with self.assertRaisesRegex(ValueError, "`gradients` must have a static shape"):
            unknown(tf.ones([3]))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
