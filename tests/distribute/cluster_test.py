"""Tests of the strategy over real processes on loopback."""

import json
import os
import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.distribute import Quantization, TernGradStrategy
from terngrad_tf.distribute.exchange.wires import LOSSLESS, WIRES
from tests import runs
from tests.distribute import processes
from tests.distribute.samples import build, data, draw_masks, gradients_of, reduce_once

WORKER = pathlib.Path(__file__).with_name("cluster_worker.py")


def flat(tensors):
    """All elements in one vector, float64."""
    return np.concatenate([np.ravel(t).astype(np.float64) for t in tensors])


class ClusterTest(tf.test.TestCase):
    @classmethod
    def run_jobs(cls, num_processes, jobs):
        """Starts the processes once for all tests of a class; keeps the results of each."""
        cls.folder = str(runs.class_folder(cls))
        cls.results = processes.run(WORKER, num_processes, cls.folder, jobs=jobs)

    def of(self, job):
        """The results of a job, one for each process."""
        return [result[job] for result in self.results]

    def check_wires(self, num_local, wires):
        """Each wire gives on each process what one process gives, measured or not.

        All wires take the paper's rule; `rotated_test.py` tests rotated gradients.
        """
        results = self.of("reduce")
        num_workers = len(results) * num_local
        gradients = [gradients_of(worker) for worker in range(num_workers)]
        lossless = reduce_once(
            TernGradStrategy(num_workers, quantization=Quantization(rotate=False, seed=5)),
            gradients,
        )
        for wire in wires:
            expected = lossless
            if wire not in (*LOSSLESS, "auto"):
                if num_local > 1:
                    # Chunks differ from a single process's; all processes must still agree.
                    expected = [results[0][f"{wire}/{i}"] for i in range(len(lossless))]
                else:
                    strategy = TernGradStrategy(
                        num_workers, wire=wire, quantization=Quantization(rotate=False, seed=5)
                    )
                    expected = reduce_once(strategy, gradients)
            for index, want in enumerate(expected):
                for result in results:
                    np.testing.assert_array_equal(result[f"{wire}/{index}"], want, err_msg=wire)
            self.check_telemetry(wire, gradients)

    def check_telemetry(self, wire, gradients):
        """Samples measure the error of reduced gradients, with equal results on all processes."""
        results = self.of("reduce")
        floats = flat(np.sum(g, axis=0, dtype=np.float64) for g in zip(*gradients, strict=True))
        reduced = flat(results[0][f"{wire}/{i}"] for i in range(len(gradients[0])))
        lengths = np.linalg.norm(reduced) * np.linalg.norm(floats)
        error = np.linalg.norm(reduced - floats) / np.linalg.norm(floats)
        for result in results:
            np.testing.assert_array_equal(result[f"{wire}/quality"], results[0][f"{wire}/quality"])
            share, cosine, relative_error = result[f"{wire}/quality"]
            # Four standard deviations of the sketches' lengths.
            self.assertNear(cosine, reduced @ floats / lengths, 4 * 0.008 * cosine)
            self.assertNear(relative_error, error, 4 * 0.011 * error)
            # If clipped at 2.5 deviations, a normal gradient has a share of E|g| / 2.5.
            self.assertNear(share, np.sqrt(2 / np.pi) / 2.5, 0.02)
            self.assertEqual(result[f"{wire}/measured_bytes"], result[f"{wire}/received_bytes"])
            self.assertAllGreaterEqual(result[f"{wire}/seconds"], 0.0)
            self.assertAllGreater(result[f"{wire}/seconds"][1:], 0.0)


class TwoProcessesTest(ClusterTest):
    # The tests below and `wires_test.py` try the other wires, with more replicas.
    WIRES = ("auto", "bidirectional")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        jobs = {
            "reduce": {"wires": list(cls.WIRES)},
            "overlap": {},
            "train": {"steps_per_execution": 2},
            "compiled": {},
        }
        cls.run_jobs(2, {job: {"num_local": 1, **more} for job, more in jobs.items()})

    def test_hosts_agree_with_two_virtual_workers(self):
        self.check_wires(1, self.WIRES)

    def test_a_layer_is_exchanged_while_an_earlier_one_computes_its_gradient(self):
        for result in self.of("overlap"):
            # NaN if the last layer was not exchanged in time.
            self.assertAllEqual(result["first"], np.full([2048], 1.0 - 2 * 2 * 2048))

    def test_fit_evaluate_predict_and_save_on_the_chief(self):
        first, second = self.of("train")
        self.assertEqual(str(first["digest"]), str(second["digest"]))
        for key in ("loss", "accuracy", "history_loss", "validation_loss", "predictions"):
            np.testing.assert_array_equal(first[key], second[key], err_msg=key)
        # The chief's file holds the model that both evaluated; it loads without a strategy.
        model = keras.models.load_model(os.path.join(self.folder, "model.keras"))
        x, y = data()
        predictions = model.predict(x, verbose=0)
        np.testing.assert_allclose(first["predictions"], predictions, rtol=1e-4, atol=1e-5)
        loss, accuracy = model.evaluate(x, y, verbose=0)
        self.assertNear(float(first["loss"]), loss, 1e-5)
        self.assertNear(float(first["accuracy"]), accuracy, 1e-6)
        restored = build(TernGradStrategy(2))
        restored.load_weights(os.path.join(self.folder, "model.weights.h5"))
        for a, b in zip(restored.weights, model.weights, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())

    def test_compiled_steps_give_plain_keras_numbers(self):
        plain = build(tf.distribute.get_strategy(), dropout=0.0, jit_compile=True)
        plain.fit(*data(), batch_size=64, shuffle=False, verbose=0)
        for result in self.of("compiled"):
            for i, expected in enumerate(plain.get_weights()):
                np.testing.assert_allclose(result[str(i)], expected, rtol=1e-3, atol=1e-4)

    def test_the_chief_alone_writes_telemetry(self):
        folder = pathlib.Path(self.folder) / "telemetry"
        events, lines = sorted(folder.iterdir())
        self.assertStartsWith(events.name, "events.")
        records = [json.loads(line) for line in lines.read_text().splitlines()]
        # An epoch of 130 examples has three steps, executed as two and one.
        self.assertEqual([record["step"] for record in records], [2, 5, 6])
        for record in records:
            self.assertEqual(record["num_members"], 2)
            self.assertGreater(record["exchange_seconds"], 0.0)

    def test_advice_is_for_links_measured_alike_by_all(self):
        results = self.of("train")
        self.assertAllEqual(results[0]["links"], results[1]["links"])
        self.assertAllGreater(results[0]["links"], 0.0)
        for result in results:
            self.assertRegex(str(result["advice"]), r"^links of [\d.]+ [MG]bit/s: ")
            # At 10 kbit/s.
            self.assertGreater(result["float32_seconds"][1], result["float32_seconds"][0])


@pytest.mark.slow
class ModesTest(ClusterTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # `rotated_test.py` tests finer codes both ways.
        jobs = {"reduce": {"wires": [], "finer_wires": ["auto"]}, "overflow": {}, "choose_mode": {}}
        cls.run_jobs(2, {job: {"num_local": 1, **more} for job, more in jobs.items()})

    def test_hosts_agree_on_finer_codes_with_two_virtual_workers(self):
        gradients = [gradients_of(worker) for worker in range(2)]
        alone = reduce_once(
            TernGradStrategy(2, quantization=Quantization(seed=5, grad_bits=4)), gradients
        )
        for index, want in enumerate(alone):
            for result in self.of("reduce"):
                np.testing.assert_array_equal(result[f"auto/finer/{index}"], want)

    def test_auto_bits_follow_the_mode_of_all_processes(self):
        reduced, chosen = self.of("reduce"), self.of("choose_mode")
        for of_wire, of_mode in zip(reduced, chosen, strict=True):
            self.assertStartsWith(str(of_mode["finer/choice"]), 'grad_bits="auto" takes 4 bits for')
            # The choice on measured links depends on the machine.
            self.assertEqual(of_mode["measured/choice"], chosen[0]["measured/choice"])
            for index in range(len(gradients_of(0))):
                self.assertAllEqual(of_mode[f"finer/{index}"], of_wire[f"auto/finer/{index}"])
                self.assertAllEqual(of_mode[f"measured/{index}"], chosen[0][f"measured/{index}"])

    def test_an_overflow_on_one_process_skips_the_step_on_all(self):
        for result in self.of("overflow"):
            self.assertEqual(int(result["iterations"]), 1)
            self.assertTrue(bool(result["finite"]))


@pytest.mark.long
class TwoProcessesWithTwoWorkersTest(ClusterTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        jobs = {"reduce": {"wires": list(WIRES)}, "float_steps": {}, "masks": {}}
        jobs["choose"] = {"shapes": [[300, 300], [7]]}
        jobs["tried"] = {}
        cls.run_jobs(2, {job: {"num_local": 2, **more} for job, more in jobs.items()})

    def test_hosts_agree_with_four_virtual_workers(self):
        self.check_wires(2, list(WIRES))

    def test_auto_receives_least_and_streams_follow_their_codes(self):
        result = self.of("reduce")[0]
        received = {wire: int(result[f"{wire}/received_bytes"]) for wire in WIRES}
        of_fixed_size = [w for w in LOSSLESS if w != "sparse"]
        self.assertEqual(received["auto"], min(received[w] for w in of_fixed_size))
        # A code takes at most two bits; a unit of 64 codes takes at least one.
        for wire in ("sparse", "sparse_bidirectional"):
            self.assertBetween(received[wire], received["auto"] / 50, 2 * received["auto"])

    def test_auto_takes_streams_on_slow_links_and_gives_the_same_bits(self):
        for result in self.of("choose"):
            self.assertEqual(str(result["slow/wire"]), "sparse")
            self.assertLess(result["slow/received_bytes"], result["usual/received_bytes"])
            # The choice on measured links depends on the machine.
            self.assertIn(str(result["measured/wire"]), LOSSLESS)
            self.assertEqual(result["measured/wire"], self.of("choose")[0]["measured/wire"])
            for name in ("slow", "measured"):
                self.assertAllEqual(result[f"{name}/sums"], result["usual/sums"])

    def test_steps_try_wires_on_slow_links_and_leave_the_same_weights(self):
        first, *others = self.of("tried")
        self.assertAllEqual(first["auto/weights"], first["allgather/weights"])
        for name in ("auto", "allgather"):
            for other in others:
                self.assertAllEqual(other[f"{name}/weights"], first[f"{name}/weights"])
        self.assertContainsSubset(["sparse"], first["auto/wires"])
        self.assertGreater(len(first["auto/wires"]), 1)
        self.assertRegex(
            str(first["auto/reasons"][0]), r"takes \w+ for .* gradients: measured times of an"
        )

    def test_float_steps_are_float_on_all_processes_and_the_others_ternary(self):
        results = self.of("float_steps")
        gradients = [gradients_of(worker) for worker in range(4)]
        expected = reduce_once(TernGradStrategy(4, quantization=Quantization(seed=5)), gradients)
        for result in results:
            for index, want in enumerate(expected):
                np.testing.assert_array_equal(result[f"mixed/0/{index}"], want)
                np.testing.assert_array_equal(
                    result[f"mixed/7/{index}"], result[f"float/7/{index}"]
                )
            step, negative, zero, positive = result["statistics"]
            self.assertEqual(step, 0)
            self.assertEqual(negative + zero + positive, gradients[0][3].size)
        self.assertNotAllEqual(results[0]["statistics"], results[1]["statistics"])

    def test_dropout_masks_match_those_of_virtual_workers(self):
        expected, states = draw_masks(TernGradStrategy(4))
        for rank, result in enumerate(self.of("masks")):
            self.assertAllEqual(result["masks"], expected[:, 2 * rank : 2 * rank + 2])
            self.assertAllEqual(result["states"][0], states[0])


@pytest.mark.long
class ThreeProcessesTest(ClusterTest):
    # Two have the same remainder and could be mistaken for one shape.
    SIZES = (1, 7, 20000, 2**18, 2**20)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        wires = {"num_local": 1, "wires": ["alltoall", "bidirectional"]}
        cls.run_jobs(3, {"collectives": {"sizes": cls.SIZES}, "reduce": wires})

    def test_few_numbers_and_many_are_exchanged_alike(self):
        for result in self.of("collectives"):
            for size in self.SIZES:
                counted = np.arange(size)
                every = np.stack([counted * (rank + 1) for rank in range(3)])
                np.testing.assert_array_equal(result[f"gathered/{size}"], every)
                np.testing.assert_array_equal(result[f"sum/{size}"], -6.0 * counted)
                np.testing.assert_array_equal(result[f"max/{size}"], -1.0 * counted)

    def test_hosts_agree_with_three_virtual_workers(self):
        self.check_wires(1, ["alltoall", "bidirectional"])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
