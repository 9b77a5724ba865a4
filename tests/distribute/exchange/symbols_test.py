"""Tests of the finer codes of a language model's embedding and last layer."""

import functools
import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized
from keras.optimizers import SGD

from terngrad_tf.distribute import DiLoCo, Quantization, TernGradStrategy
from terngrad_tf.distribute.exchange import wires
from terngrad_tf.distribute.exchange.symbols import symbol_positions
from tests import runs
from tests.distribute import processes
from tests.distribute.exchange import symbols_cases as cases
from tests.distribute.optimizer_cases import CLASSES

PROGRAM = pathlib.Path(cases.__file__)
# Of rounding to ternary codes, and to codes of 4 bits.
TERNARY, FINER = (0.1, 0.4), (1e-3, 0.06)


def error(got, want):
    """The squared error of a sum as a share of its square."""
    return np.sum(np.square(got - want)) / np.sum(np.square(want))


def errors(changes):
    """The `error` of each variable's change by two replicas."""
    return [*map(error, changes, cases.sums(2))]


def rows(*shape):
    return tf.IndexedSlices(tf.zeros([1, *shape[1:]]), [0], tf.constant(shape))


TABLE = "e/embeddings"


class SymbolPositionsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.named_parameters(
        ("a_language_model", [rows(50, 8), (8, 8), (8,), (8, 50), (50,)], {}, [0, 3, 4]),
        ("no_bias", [rows(50, 8), (8, 8), (8, 50)], {}, [0, 2]),
        ("one_row_a_symbol", [rows(50, 8), (50, 8), (50,)], {}, [0, 1, 2]),
        ("positions", [rows(50, 8), rows(64, 8), (8, 64), (64,), (64, 8), (8, 50)], {}, [0, 5]),
        ("a_classifier_of_text", [rows(50, 8), (8, 50), (50,), (50, 3), (3,)], {}, []),
        ("only_rows", [rows(50, 8)], {}, []),
        ("no_rows", [(50, 8), (8, 50), (50,)], {}, []),
        ("nothing", [], {}, []),
        ("accumulated", [(50, 8), (8, 8), (8, 50), (50,)], {0: TABLE}, [0, 2, 3]),
        ("tied", [(50, 8), (8, 8), (8,)], {0: TABLE}, [0]),
        ("only_a_whole_table", [(50, 8)], {0: TABLE}, [0]),
        ("tied_and_positions", [(50, 8), (64, 8), (8, 8)], {0: TABLE, 1: "p/embeddings"}, [0, 1]),
        ("other_names", [(50, 8), (8, 8)], {0: "e/kernel", 1: "embeddings/kernel"}, []),
        ("no_matrix", [(50,), (8, 50)], {0: TABLE}, []),
        (
            "reversed",
            [rows(50, 8), (8, 50), (8, 8), (8,)],
            {0: TABLE, 1: "e/reverse_embeddings"},
            [0, 1],
        ),
        ("reversed_of_none", [(8, 50), (8, 8)], {0: "e/reverse_embeddings"}, []),
    )
    def test_positions(self, shapes, names, expected):
        gradients = [tf.zeros(s) if isinstance(s, tuple) else s for s in shapes]
        paths = [names.get(i, f"layer_{i}/kernel") for i in range(len(shapes))]
        self.assertEqual(symbol_positions(gradients, paths), expected)

    def test_embeddings_of_keras_have_the_names(self):
        for tied, expected in ((True, [0]), (False, [0, 1])):
            layer = keras.layers.ReversibleEmbedding(50, 8, tie_weights=tied)
            symbols = keras.Input([4], dtype="int32")
            x = keras.layers.Dense(8)(layer(symbols))
            model = keras.Model(symbols, layer(x, reverse=True))
            with tf.GradientTape() as tape:
                total = tf.reduce_sum(model(tf.ones([1, 4], tf.int32)) ** 2)
            gradients = tape.gradient(total, [v.value for v in model.trainable_variables])
            paths = [v.path for v in model.trainable_variables]
            self.assertEqual(symbol_positions(gradients, paths), expected, tied)


class ExchangeTest(tf.test.TestCase):
    def assert_finer_symbols(self, changes):
        bounds = (FINER, TERNARY, TERNARY, FINER, FINER)
        for position, found in enumerate(errors(changes)):
            self.assertBetween(found, *bounds[position], position)

    def test_symbols_have_codes_of_four_bits(self):
        strategy = TernGradStrategy(2)
        self.assert_finer_symbols(cases.exchange(strategy))
        embedding, kernel, bias, logits, logits_bias = map(np.prod, cases.SHAPES)
        dense = [
            wires.choose("auto", sizes, 2, 1, levels, True).traffic.received_bytes
            for sizes, levels in (([bias, kernel], 1), ([logits_bias, logits], 7))
        ]
        # As a whole table, which takes fewer bytes than its rows, whose number travels.
        table = wires.choose("auto", [embedding], 2, 1, 7, True).traffic.received_bytes
        self.assertEqual(strategy.traffic.received_bytes, sum(dense) + table + 4)

    @pytest.mark.slow
    def test_a_classifier_has_ternary_codes_but_for_a_whole_table(self):
        changes = cases.exchange(TernGradStrategy(2), num_classes=3)
        for position, bounds in ((0, FINER), (1, TERNARY), (3, TERNARY)):
            got, want = changes[position], cases.sums(2)[position]
            self.assertBetween(error(got, want[..., : got.shape[-1]]), *bounds, position)

    @pytest.mark.slow
    def test_a_dense_embedding_has_codes_of_four_bits(self):
        self.assert_finer_symbols(cases.exchange(TernGradStrategy(2), whole=True))

    @pytest.mark.slow
    def test_accumulated_gradients_of_symbols_have_codes_of_four_bits(self):
        make = functools.partial(SGD, 1.0, gradient_accumulation_steps=2)
        self.assert_finer_symbols(cases.exchange(TernGradStrategy(2), make=make, steps=2))

    @pytest.mark.slow
    def test_changes_of_local_steps_have_ternary_codes(self):
        strategy = TernGradStrategy(2)
        changes = cases.exchange(strategy, make=lambda: DiLoCo(SGD(1.0), 1, outer=SGD(1.0)))
        for found in errors(changes):
            self.assertBetween(found, *TERNARY)

    @pytest.mark.long
    def test_other_codes_are_those_of_the_option(self):
        for options, bounds in (
            ({"grad_bits": 8}, (1e-6, 1e-3)),
            ({"grad_bits": 32}, (0.0, 1e-12)),
            ({"quantization": Quantization(rotate=False), "sparse_as_dense": True}, (0.1, 1.5)),
            ({"quantization": Quantization(float_steps=lambda step: step < 1)}, (0.0, 1e-12)),
        ):
            for found in errors(cases.exchange(TernGradStrategy(2, **options))):
                self.assertBetween(found, *bounds, options)

    @pytest.mark.slow
    def test_gradients_for_muon_have_codes_of_six_bits(self):
        if "Muon" not in CLASSES:
            self.skipTest("not with this release of Keras")
        shapes, results = ([3, 3, 4, 8], [8], [40, 50], [50]), []
        for options in ({}, {"grad_bits": 6}):
            strategy = TernGradStrategy(2, **options)
            with strategy.scope():
                variables = [keras.Variable(tf.ones(shape)) for shape in shapes]
                optimizer = keras.optimizers.Muon(0.01)
                optimizer.build(variables)
            gradients = [tf.random.stateless_normal(shape, [1, 2]) for shape in shapes]
            strategy.run(tf.function(functools.partial(optimizer.apply, gradients, variables)))
            values = [variable.numpy() for variable in variables]
            results.append([*values, strategy.traffic.received_bytes])
        for default, finer in zip(*results, strict=True):
            self.assertAllEqual(default, finer)

    @pytest.mark.slow
    def test_statistics_count_codes_of_all_dense_gradients(self):
        strategy = TernGradStrategy(2, statistics_freq=1)
        cases.exchange(strategy)
        found = sorted(
            each.negative + each.zero + each.positive
            for each in strategy.gradient_statistics.values()
        )
        self.assertEqual(found, sorted(map(np.prod, cases.SHAPES[1:])))

    @pytest.mark.long
    def test_bits_depend_on_seed_and_step_only(self):
        first, again = (cases.exchange(TernGradStrategy(2)) for _ in range(2))
        for a, b in zip(first, again, strict=True):
            self.assertAllEqual(a, b)


@pytest.mark.long
class ClusterTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.results = processes.run(PROGRAM, 2, runs.class_folder(cls), job="work")

    def test_processes_get_the_same_bits(self):
        first, second = self.results
        for name in first:
            self.assertAllEqual(first[name], second[name], name)

    def test_symbols_have_codes_of_four_bits(self):
        for index, options in enumerate(cases.LANGUAGE):
            found = errors([self.results[0][f"{index}/{i}"] for i in range(len(cases.SHAPES))])
            for position in (0, 3, 4):
                self.assertLess(found[position], FINER[1], (options, position))

    def test_counted_bytes_are_those_measured(self):
        for index, options in enumerate(cases.LANGUAGE):
            counted, measured = self.results[0][f"{index}/bytes"]
            self.assertEqual(counted, measured, options)

    def test_one_process_with_two_replicas_gets_the_same(self):
        for i, change in enumerate(cases.exchange(TernGradStrategy(2))):
            self.assertAllClose(self.results[0][f"0/{i}"], change, 1e-5, 1e-5)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
