"""Tests of what processes conclude from the signatures of each other's data."""

import dataclasses
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.distribute import PeerError
from terngrad_tf.distribute.consistency.feeding import Source, agreement_of
from terngrad_tf.distribute.consistency.signatures import (
    are_alike,
    signature_of_batch,
    signature_of_elements,
)

NAMES = ("worker 0", "worker 1", "worker 2")


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def alike(*batches):
    return are_alike([signature_of_batch(batch) for batch in batches])


class SignaturesTest(tf.test.TestCase):
    def test_batches_differ_by_kind_number_order_and_content(self):
        x = numbers(8, 3)
        self.assertTrue(alike(x, x.copy(), x))
        for other in (x[::-1], x[:7], x.astype(np.float64) * 1.01, numbers(8, 3, seed=1), (x, x)):
            self.assertFalse(alike(x, x, other))
        labels = np.arange(8)
        self.assertFalse(alike(labels, labels.astype(np.int32)))
        self.assertFalse(alike(labels, labels + 1))
        texts = np.array([b"a", b"b"], object)
        self.assertTrue(alike(texts, tf.constant([b"a", b"b"])))
        self.assertFalse(alike(texts, texts[::-1]))

    def test_values_that_processors_round_differently_are_alike(self):
        x = numbers(8, 3)
        self.assertTrue(alike(x, x * (1 + 1e-6)))
        nan = np.full([8, 3], np.nan, np.float32)
        self.assertTrue(alike(nan, nan))
        self.assertFalse(alike(nan, x))
        infinite = x.copy()
        infinite[0, 0] = np.inf
        self.assertTrue(alike(infinite, infinite))
        self.assertFalse(alike(infinite, np.concatenate([infinite[:1], numbers(7, 3, seed=1)])))

    def test_distorted_images_are_alike_if_their_labels_are(self):
        labels = np.random.default_rng(0).integers(0, 5, 32)
        self.assertTrue(alike((numbers(32, 4), labels), (numbers(32, 4, seed=1), labels)))
        pair = [signature_of_batch((numbers(32, 4, seed=k), labels)) for k in range(2)]
        self.assertFalse(are_alike(pair, are_distorted=False))
        self.assertTrue(are_alike(pair[:1] * 2, are_distorted=False))
        # Labels that are equal by chance are no evidence.
        for same in (np.zeros(32), np.ones([32, 1], np.int64), np.array([0, 1])):
            rows = len(same)
            pair = [(numbers(rows, 4, seed=seed), same) for seed in range(2)]
            self.assertFalse(alike(*pair))

    def test_elements_of_any_structure_have_signatures(self):
        elements = list(
            tf.data.Dataset.from_tensor_slices(
                {"a": tf.ragged.constant([[1, 2], [3], []]), "b": [b"x", b"y", b"z"]}
            )
        )
        signature = signature_of_elements(elements)
        self.assertTrue(are_alike([signature, signature_of_elements(elements)]))
        self.assertFalse(are_alike([signature, signature_of_elements(elements[::-1])]))
        self.assertFalse(are_alike([signature, signature_of_elements([])]))
        sparse = [tf.sparse.from_dense([[0, 1]]), tf.sparse.from_dense([[1, 0]])]
        self.assertTrue(alike(sparse[0], sparse[0]))
        self.assertFalse(alike(*sparse))

    def test_files_differ_by_content(self):
        folder = pathlib.Path(self.get_temp_dir())
        names = []
        for name, text in (("a/x", "one"), ("b/x", "one"), ("c/x", "two")):
            (folder / name).parent.mkdir()
            (folder / name).write_text(text)
            names.append(np.array([str(folder / name).encode()], object))
        self.assertTrue(alike(names[0], names[1]))
        self.assertFalse(alike(names[0], names[2]))


class AgreementTest(tf.test.TestCase):
    def sources(self, *batches, **same):
        return [
            Source("generator", signature=signature_of_batch(batch), **same) for batch in batches
        ]

    def assert_refused(self, sources, line):
        with self.assertRaisesRegex(PeerError, line):
            agreement_of(sources, NAMES[: len(sources)])

    def test_the_same_examples_are_shared_and_others_are_each_process_s_own(self):
        a, b, c = (numbers(8, 2, seed=seed) for seed in range(3))
        self.assertFalse(agreement_of(self.sources(a, a, a), NAMES).is_own)
        self.assertTrue(agreement_of(self.sources(a, b, c), NAMES).is_own)
        self.assert_refused(
            self.sources(a, b, b), r"^worker 1, worker 2 read other examples than worker 0 \(gen"
        )
        self.assert_refused(
            self.sources(a, b, remedy="give the same"), r"^worker 1 reads .*: give the same$"
        )

    def test_an_empty_source_is_another_one(self):
        self.assert_refused(self.sources(numbers(2, 2), (), remedy="x"), "worker 1 reads other")

    def test_shared_data_have_one_length_and_own_data_the_longest(self):
        a, b = numbers(8, 2), numbers(8, 2, seed=1)
        shared, own = self.sources(a, a, num_batches=5), self.sources(a, b, num_batches=5)
        longer = {"num_batches": 7}
        self.assert_refused(
            [shared[0], dataclasses.replace(shared[1], **longer)],
            "one length. Received: batches: 5 on worker 0, 7 on worker 1",
        )
        own[1] = dataclasses.replace(own[1], **longer)
        self.assertEqual(agreement_of(own, NAMES[:2]).num_batches, 7)
        own[0] = dataclasses.replace(own[0], num_batches=None, is_infinite=True)
        agreement = agreement_of(own, NAMES[:2])
        self.assertIsNone(agreement.num_batches)
        self.assertFalse(agreement.is_infinite)
        self.assert_refused(
            [shared[0], dataclasses.replace(shared[1], num_batches=None, is_infinite=True)],
            "5 on worker 0, no end on worker 1",
        )

    def test_seeds_are_shared_if_all_are_equal(self):
        states = [{"tensorflow": None, "python": 3}, {"tensorflow": None, "python": 3}]
        agreed = [Source("arrays", seed=k, states=states[k]) for k in range(2)]
        agreement = agreement_of(agreed, NAMES[:2])
        self.assertEqual(agreement.shared, {"python"})
        self.assertEqual(agreement.seed, 0)
        agreed[1] = Source("arrays", states={"tensorflow": 1, "python": 4})
        self.assertEmpty(agreement_of(agreed, NAMES[:2]).shared)

    def test_other_orders_are_refused(self):
        a = Source("data", order=[[1, 2, 0]])
        self.assert_refused([a, Source("data", order=[[1, 3, 0]])], "worker 1 shuffles its data by")
        self.assert_refused([a, Source("data", order=[])], "worker 1 shuffles its data by")
        self.assert_refused([a, Source("data", order=[[1, 2, 1]])], "worker 1 began to read its")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
