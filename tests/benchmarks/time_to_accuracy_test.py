"""`benchmarks.time_to_accuracy`: its tables follow from its rows, and its workers train."""

import itertools
import json
import os
import pathlib
import sys
import tempfile
import unittest

import numpy as np
import pytest

from benchmarks.lib import cluster_hosts, pages
from benchmarks.time_to_accuracy import picture, tables, workload
from tests.distribute import processes

ROOT = cluster_hosts.ROOT
LEVELS = (0.84, 0.85, 0.86)
# Accuracies that the page lists for each number of hosts.
PAGE_LEVELS = {2: (0.84, 0.86), 4: (0.84, 0.86, 0.88), 8: (0.84, 0.86, 0.88)}


def training(mode, rate, seed, accuracy, held_out, link="none"):
    return {
        **{"kind": "training", "hosts": 2, "link": link, "mode": mode, "rate": rate, "seed": seed},
        **{"steps": [32, 64], "accuracy": accuracy, "seconds": [1.0, 2.0], "held_out": held_out},
    }


def step(mode, milliseconds):
    return {
        **{"kind": "step", "hosts": 2, "link": "10mbit", "mode": mode},
        **{"milliseconds": milliseconds, "received_bytes": 1000.0, "rounds": 3},
    }


def measured(name="time_to_accuracy"):
    """Returns the rows of a results file in the checkout."""
    path = ROOT / f"benchmarks/results/{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))["rows"]


class TablesTest(unittest.TestCase):
    def test_rate_is_the_best_on_images_held_out_on_average_over_seeds(self):
        rows = [
            training("ternary", 0.01, 1, [0.7, 0.9], 0.85),
            training("ternary", 0.03, 1, [0.7, 0.8], 0.82),
            training("ternary", 0.01, 2, [0.7, 0.9], 0.78),
            training("ternary", 0.03, 2, [0.7, 0.8], 0.82),
        ]
        self.assertEqual(tables.best_rate(rows, 2, "ternary"), 0.03)
        self.assertIsNone(tables.best_rate(rows, 2, "sparse"))
        # A seed missing for one rate does not count.
        rows.append(training("ternary", 0.01, 3, [0.7, 0.9], 0.99))
        self.assertEqual(tables.best_rate(rows, 2, "ternary"), 0.03)

    def test_seeds_that_a_mode_lacks_count_in_differences_alone(self):
        rows = [
            *(training("ternary", 0.01, seed, [0.5, 0.8], 0.8) for seed in (1, 2)),
            training("ternary", 0.01, 3, [0.5, 0.7], 0.8),
            *(training("ddp_float32", 0.01, seed, [0.5, 0.8], 0.8) for seed in (1, 2, 3)),
            *(training("local_8", 0.01, seed, [0.9, 0.9], 0.8) for seed in (1, 2)),
        ]
        self.assertEqual(tables.common_seeds(rows, 2), {1, 2})
        self.assertIn("| 80.00 ± 0.00 | -3.33 | 3 | 0.423 |", tables.accuracies(rows, 2, LEVELS))
        self.assertEqual(tables.mean_steps(rows, 2, "ternary", 0.8), 64)

    def test_time_is_steps_times_the_time_of_a_step(self):
        rows = [
            training("ternary", 0.01, 1, [0.86, 0.87], 0.8),
            training("ternary", 0.01, 2, [0.84, 0.87], 0.8),
            step("ternary", 50.0),
        ]
        self.assertEqual(tables.mean_steps(rows, 2, "ternary", 0.85), 48)
        self.assertEqual(tables.seconds_to(rows, 2, "10mbit", "ternary", 0.85), 2.4)
        self.assertIsNone(tables.seconds_to(rows, 2, "1gbit", "ternary", 0.85))
        # One of two seeds does not reach the accuracy.
        rows[1]["accuracy"][1] = 0.85
        self.assertIsNone(tables.seconds_to(rows, 2, "10mbit", "ternary", 0.86))
        self.assertIn("| 86.00 ± 1.41 |", tables.accuracies(rows, 2, LEVELS))
        # Steps of 50 ms over one link.
        self.assertIn("| 1.0 | 50.0 |", tables.step_times(rows, 2))
        self.assertIn("| 1.6/2.4/- |", tables.times(rows, 2, LEVELS))

    def test_steps_without_trainings_have_a_table_and_no_times(self):
        rows = [step("ternary", 50.0)]
        self.assertIn("| 1.0 | 50.0 |", tables.step_times(rows, 2))
        self.assertNotIn("ternary", tables.accuracies(rows, 2, LEVELS))
        self.assertNotIn("ternary", tables.times(rows, 2, LEVELS))

    def test_accuracies_are_compared_with_ddp_by_seed(self):
        rows = [
            *(training("ternary", 0.01, seed, [0.5, 0.80 + seed / 100], 0.8) for seed in (1, 2, 3)),
            *(training("ddp_float32", 0.01, seed, [0.5, 0.8], 0.8) for seed in (1, 3)),
        ]
        self.assertIn("| +2.00 | 2 | 0.295 |", tables.accuracies(rows, 2, LEVELS))

    def test_first_steps_of_powersgd_are_float32(self):
        rows = [training("ddp_powersgd_1", 0.01, 1, [0.8, 0.9], 0.8), step("ddp_powersgd_1", 10.0)]
        self.assertIsNone(tables.seconds_to(rows, 2, "10mbit", "ddp_powersgd_1", 0.85))
        rows.append(step("ddp_float32", 5000.0))
        self.assertEqual(tables.seconds_to(rows, 2, "10mbit", "ddp_powersgd_1", 0.85), 10.62)

    def test_trainings_over_a_link_are_checks_and_choose_nothing(self):
        rows = [
            training("local_32", 0.01, 1, [0.8, 0.9], 0.8),
            training("local_32", 0.03, 1, [0.8, 0.9], 0.9, "10mbit") | {"first_seconds": 0.5},
            step("local_32", 25.0),
        ]
        self.assertEqual(tables.best_rate(rows, 2, "local_32"), 0.01)
        self.assertIn("| 10 Mbit/s | 1.6 | 2.0 | 0.5 |", tables.checks(rows, 0.85))

    @pytest.mark.slow
    def test_page_and_picture_show_the_figures_of_the_benchmark(self):
        rows = measured()
        links = tables.measured_links(rows, 2)
        page = (ROOT / "docs/results/time_to_accuracy.md").read_text(encoding="utf-8")
        for hosts in PAGE_LEVELS:
            # Means are over the seeds of all modes: a mode with one seed would leave one.
            self.assertGreaterEqual(len(tables.common_seeds(rows, hosts)), 3, hosts)
        shown = [
            table
            for hosts, levels in PAGE_LEVELS.items()
            for table in (
                tables.accuracies(rows, hosts, levels),
                tables.step_times(rows, hosts),
                tables.times(rows, hosts, levels),
            )
        ]
        shown.append(tables.accuracies(measured("time_to_accuracy_adamw"), 2, (0.84, 0.86)))
        for table in shown:
            self.assertIn(table, page)
        for name in pages.PAGES:
            figure = picture.draw(rows, LEVELS[0], name)
            drawn = {line.get_label(): list(line.get_ydata()) for line in figure.axes[0].lines}
            written = ROOT / f"docs/images/time_to_accuracy_{name}.svg"
            text = written.read_text(encoding="utf-8")
            for mode in picture.MODES:
                wanted = [tables.seconds_to(rows, 2, link, mode, LEVELS[0]) for link in links]
                wanted = [seconds for seconds in wanted if seconds is not None]
                if wanted:
                    self.assertEqual(drawn.pop(tables.NAMES[mode]), wanted)
                    self.assertIn(f">{tables.NAMES[mode]}</text>", text)
            self.assertEqual(drawn, {})


class WorkloadTest(unittest.TestCase):
    def test_workers_share_each_pass_through_the_images(self):
        size = workload.BATCH_SIZE
        alone = [
            list(itertools.islice(workload.batches(6 * size, 1, worker, 2), 4)) for worker in (0, 1)
        ]
        chosen = np.concatenate([*alone[0][:3], *alone[1][:3]])
        self.assertEqual(sorted(chosen), list(range(6 * size)))
        self.assertNotEqual(list(alone[0][0]), list(alone[0][3]))

    def test_a_single_worker_takes_all_images(self):
        of_two = [next(workload.batches(1000, 1, worker, 2)) for worker in (0, 1)]
        alone = next(workload.batches(1000, 1, 0, 1, num_shares=2))
        np.testing.assert_array_equal(alone, np.concatenate(of_two))

    def test_rate_rises_and_falls(self):
        rates = [workload.learning_rate(0.1, step, 512) for step in range(513)]
        self.assertEqual(max(rates), rates[workload.WARM_UP])
        self.assertEqual((rates[15], rates[31], rates[512]), (0.05, 0.1, 0))
        self.assertGreater(rates[0], 0)
        self.assertAlmostEqual(rates[272], 0.05)

    def test_momentum_of_pytorch_takes_the_steps_of_keras(self):
        gradients = np.random.default_rng(0).standard_normal(64)
        velocity = buffer = 0.0
        last = None
        for step, gradient in enumerate(gradients):
            rate = workload.learning_rate(0.1, step, 64)
            velocity = workload.MOMENTUM * velocity + rate * gradient
            buffer = workload.momentum(rate, last) * buffer + gradient
            self.assertAlmostEqual(rate * buffer, velocity)
            last = rate

    @pytest.mark.long
    def test_a_worker_learns_an_easy_task(self):
        images = np.zeros([320, 28, 28, 1], "float32")
        labels = np.arange(320) % 2
        images[labels == 1, 8:20] = 1
        (port,) = processes.free_ports(1)
        config = {
            "cluster": {"worker": [f"127.0.0.1:{port}"]},
            "task": {"type": "worker", "index": 0},
        }
        environment = dict(os.environ, TF_CONFIG=json.dumps(config))
        with tempfile.TemporaryDirectory() as folder:
            for split in ("train", "test"):
                np.save(pathlib.Path(folder, f"{split}_images.npy"), images)
                np.save(pathlib.Path(folder, f"{split}_labels.npy"), labels)
            module = "benchmarks.time_to_accuracy.tensorflow_worker"
            command = [sys.executable, "-m", module, "0", "1", "lo", folder, "1"]
            worker = cluster_hosts.Process(command, environment)
            self.addCleanup(worker.kill)
            self.assertEqual(worker.answer(), {"ready": 0})

            def ask(**what):
                worker.ask(json.dumps(what))
                return worker.answer()

            options = {"optimizer": "adamw", "rate": 0.001, "seed": 1, "num_steps": 64}
            ask(do="begin", mode="local_8", **options)
            self.assertGreater(ask(do="steps", mode="local_8", count=32)["seconds"], 0)
            found = ask(do="test", mode="local_8", split="test")
            self.assertEqual(found, {"right": 320, "images": 320})


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
