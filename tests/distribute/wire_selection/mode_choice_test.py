"""Tests of the mode that `grad_bits="auto"` takes, and of training in one and two processes."""

import pathlib
import sys
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute import Quantization, TernaryAllReduce, TernGradStrategy, virtual_devices
from terngrad_tf.distribute.exchange.plan import Job
from terngrad_tf.distribute.wire_selection import links, mode_choice
from terngrad_tf.distribute.wire_selection.links import Link
from terngrad_tf.distribute.wire_selection.mode_choice import (
    AUTO_MODES,
    expected_seconds,
    quickest_mode,
)
from tests import runs
from tests.distribute import processes
from tests.distribute.samples import build, data

WORKER = pathlib.Path(__file__).with_name("mode_choice_worker.py")
UNIT_SECONDS = 1e-9


def job_of(num_members, *sizes):
    """Ternary codes of rotated gradients, in one bucket."""
    return Job(num_members, 1, (sizes,), (), 1, True)


def taken(job, link):
    """The choice with the given link and processor as measurements."""
    group = mock.Mock(size=job.num_members)
    with (
        mock.patch.object(links, "measure", return_value=link),
        mock.patch.object(links, "slowest", return_value=lambda seconds: seconds),
        mock.patch.object(mode_choice, "seconds_of_doubling", return_value=UNIT_SECONDS),
    ):
        return quickest_mode(group, job)


class ModeChoiceTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.named_parameters(
        ("floats_on_the_fastest_links", 2, 20e9, "float32"),
        ("4_bits_where_floats_take_longer", 2, 1.9e9, "4 bits"),
        ("ternary_codes", 2, 1e9, "ternary"),
        ("ternary_codes_at_any_slower_rate", 2, 1e6, "ternary"),
        ("rounded_sums_of_many_on_slow_links", 4, 100e6, "bidirectional"),
    )
    def test_takes(self, num_members, bits_per_second, mode):
        choice = taken(job_of(num_members, 2_000_000, 100), Link(8 / bits_per_second, 0.0))
        self.assertEqual(choice.mode.name, mode)

    def test_no_mode_is_a_tenth_quicker_and_no_more_exact_one_nearly_as_quick(self):
        for num_members in (2, 3, 8):
            for bits_per_second in np.geomspace(1e6, 1e11, 51):
                job = job_of(num_members, 300_000, 5000, 1)
                link = Link(8 / bits_per_second, 1e-4)
                seconds = expected_seconds(job, link, UNIT_SECONDS)
                name = taken(job, link).mode.name
                limit = 1.1 * min(seconds.values())
                self.assertLessEqual(seconds[name], limit)
                names = [mode.name for mode in AUTO_MODES]
                for exacter in names[: names.index(name)]:
                    self.assertGreater(seconds[exacter], limit)

    def test_the_reason_names_times_and_the_options_of_the_mode(self):
        choice = taken(job_of(2, 2_000_000, 100), Link(8 / 93e6, 0.0))
        self.assertRegex(
            choice.reason,
            r'^grad_bits="auto" takes ternary for 2,000,100 gradients on links of 93 Mbit/s:'
            r" expected times of an exchange in ms are ternary [\d.]+, bidirectional [\d.]+, 4 bits"
            r" [\d.]+, float32 [\d,.]+; set grad_bits=1 for the same in every run$",
        )
        choice = taken(job_of(4, 2_000_000), Link(8 / 93e6, 0.0))
        self.assertIn('; set grad_bits=1, wire="bidirectional" for', choice.reason)

    def test_a_single_process_takes_floats(self):
        x, y = data()
        found = []
        for grad_bits in ("auto", 32):
            strategy = TernGradStrategy(2, grad_bits=grad_bits)
            model = build(strategy, optimizer=lambda: keras.optimizers.Adam(0.01))
            model.fit(x, y, batch_size=16, epochs=1, verbose=0)
            found.append(np.concatenate([np.ravel(weight) for weight in model.get_weights()]))
            if grad_bits == "auto":
                (line,) = strategy.wire_choices
                self.assertStartsWith(line, 'grad_bits="auto" takes float32: a single process')
        self.assertAllEqual(*found)

    @parameterized.named_parameters(
        ("another_wire", {"wire": "alltoall"}, '`wire` must be "auto" with grad_bits="auto"'),
        ("streams", {"wire": "sparse"}, '`wire` must be "auto" with grad_bits="auto"'),
        ("the_papers_rule", {"rotate": False}, "`quantization` must set none of grad_bits"),
        (
            "clipping",
            {"rotate": False, "clip_factor": 0.0},
            "`quantization` must set none of grad_bits, rotate=False",
        ),
        ("a_budget", {"bits_per_element": 0.3}, "`quantization` must set none of .*per_element"),
        ("other_bits", {"grad_bits": 4}, "`quantization` must set none of grad_bits"),
    )
    def test_is_refused_with(self, options, error):
        wire = options.pop("wire", "auto")
        quantization = Quantization(**options) if options else None
        with self.assertRaisesRegex(ValueError, error):
            TernaryAllReduce(grad_bits="auto", quantization=quantization, wire=wire)

    def test_is_refused_on_the_gpus_of_a_cluster(self):
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": ["127.0.0.1:1", "127.0.0.1:2"]}), "worker", 0
        )
        gpus = mock.patch.object(virtual_devices, "local_devices", return_value=["/device:GPU:0"])
        with gpus, self.assertRaisesRegex(ValueError, "`grad_bits` must be a number on the GPUs"):
            TernGradStrategy(grad_bits="auto", cluster_resolver=resolver)


# `cluster_test.py` tries one step of it in the default tests.
@pytest.mark.long
class TwoProcessesTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        jobs = {
            "adam": {"optimizer": "adam", "modes": ["float32", "4 bits", "bidirectional"]},
            "local_steps": {"optimizer": "local_steps", "modes": ["4 bits"]},
            "rows": {},
            "measured": {},
        }
        cls.results = processes.run(WORKER, 2, runs.class_folder(cls), jobs=jobs)

    def check_modes(self, job, modes, advice="^links of .*: "):
        """The mode that "auto" takes gives on all processes the results of its options."""
        for name, wire in modes.items():
            for result in self.results:
                of = {
                    key.removeprefix(f"{name}/"): value
                    for key, value in result[job].items()
                    if key.startswith(f"{name}/")
                }
                self.assertAllEqual(of["auto/state"], of["fixed/state"])
                self.assertAllEqual(of["auto/bytes"], of["fixed/bytes"])
                self.assertEqual(str(of["auto/wire"]), wire)
                self.assertEqual(str(of["fixed/wire"]), wire)
                self.assertEqual(str(of["auto/next_wire"]), str(of["fixed/next_wire"]))
                self.assertStartsWith(of["auto/choices"][0], f'grad_bits="auto" takes {name} for ')
                self.assertRegex(str(of["auto/advice"]), advice)
            first, second = (result[job][f"{name}/auto/state"] for result in self.results)
            self.assertEqual(first.shape, second.shape)

    def test_optimizers_with_squares_train_as_with_the_options_of_the_mode(self):
        modes = {"float32": "float32", "4 bits": "allgather", "bidirectional": "bidirectional"}
        self.check_modes("adam", modes)

    def test_local_steps_exchange_as_with_the_options_of_the_mode(self):
        refused = "`strategy` must be .*: telemetry measures no step of `DiLoCo`"
        self.check_modes("local_steps", {"4 bits": "allgather"}, refused)

    def test_whole_tensors_of_embeddings_and_float_steps_work_and_rows_are_refused(self):
        for result in self.results:
            found = result["rows"]
            self.assertAllEqual(found["auto/state"], found["fixed/state"])
            self.assertRegex(
                str(found["refusal"]),
                '`sparse_as_dense` must be True or False with grad_bits="auto", because the number'
                " of rows that .*embeddings would send differs by step. Received: sparse_as_dense",
            )

    def test_links_are_measured_once_and_anew_when_a_run_resumes(self):
        first, second = (result["measured"] for result in self.results)
        self.assertAllEqual(first["lines"], second["lines"])
        self.assertLen(first["lines"], 2)
        for line in first["lines"]:
            self.assertRegex(str(line), r'^grad_bits="auto" takes .*; set .* for the same')
        self.assertEqual(first["measurements"], 1)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
