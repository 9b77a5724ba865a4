"""Figures of finished runs come from their TensorBoard logs."""

import contextlib
import pathlib
import sys
import time

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

from terngrad_tf.common import tags
from terngrad_tf.reports import reading, sections
from terngrad_tf.training.logs import board, report


class ReportTest(tf.test.TestCase):
    def write(self, folder, values):
        writer = tf.summary.create_file_writer(str(folder))
        with writer.as_default():
            for step, value in values.items():
                tf.summary.scalar("loss", value, step=step)
        writer.close()

    def test_steps_repeated_after_resuming_count_once(self):
        folder = pathlib.Path(self.get_temp_dir()) / "resumed"
        self.write(folder, {10: 1.0, 20: 2.0})
        self.write(folder, {20: 3.0, 30: 4.0})
        self.assertEqual(report.read_scalars(folder), {"loss": {10: 1.0, 20: 3.0, 30: 4.0}})

    def test_an_unfinished_log_is_read_up_to_its_end(self):
        folder = pathlib.Path(self.get_temp_dir()) / "killed"
        self.write(folder, {10: 1.0, 20: 2.0})
        (path,) = folder.iterdir()
        path.write_bytes(path.read_bytes()[:-5])
        self.assertEqual(report.read_scalars(folder), {"loss": {10: 1.0}})

    def test_tensorboard_forgets_repeated_steps(self):
        folder = pathlib.Path(self.get_temp_dir()) / "again"
        folder.mkdir()
        for first_step, steps in ((0, (10, 20, 30)), (15, (20, 40))):
            with contextlib.closing(board.Board(folder, 100, first_step)) as log:
                for step in steps:
                    log.scalars({"loss/total": step + first_step}, step)
                if not first_step:
                    log.scalars({"ternary/sparsity": 0.5}, 30)
            time.sleep(1.0)  # file names contain seconds
        events = EventAccumulator(str(folder))  # as TensorBoard reads them
        events.Reload()
        found = [
            (e.step, float(tf.make_ndarray(e.tensor_proto))) for e in events.Tensors("loss/total")
        ]
        self.assertEqual(found, [(110, 10.0), (120, 35.0), (140, 55.0)])
        with self.assertNoLogs("tensorboard", "WARNING"):
            self.assertEqual(report.read_scalars(folder), {"loss/total": dict(found)})

    def test_measurements_of_a_run_before_in_the_folder_do_not_count(self):
        path = pathlib.Path(self.get_temp_dir()) / "telemetry.jsonl"
        path.write_text("".join(f'{{"step": {step}}}\n' for step in (100, 200, 300, 150, 250)))
        self.assertEqual(list(reading._read_telemetry(path, 5)), [105, 155, 255])

    def test_time_adds_up_over_log_lines(self):
        scalars = {"speed/examples_per_second": {10: 64.0, 20: 128.0}}
        self.assertAllClose(report.training_seconds(scalars, batch_size=64), 15.0)
        self.assertAllClose(report.training_seconds(scalars, 64, steps_before=8), 7.0)

    def test_steps_of_the_run_to_start_from_take_no_time(self):
        def training_time(speeds, **options):
            description = {"identity": {"batch_size": 64, **options}, "max_steps": 2000}
            scalars = {tags.EXAMPLES_PER_SECOND: speeds}
            folder = pathlib.Path("run")
            parts = (description, scalars, {}, {}, [], 0, None)
            return sections._training_time(reading.RunData("run", folder, *parts))

        source = {"pretrained_model_checkpoint_path": "other", "fine_tune": False}
        speeds = {1010: 64.0, 1020: 64.0}
        self.assertEqual(training_time(speeds, **source), "0:00:20")
        self.assertEqual(training_time({1010: 64.0}, **source), "0:00:01")
        own = {1: 64.0, 10: 64.0, 20: 64.0}
        self.assertEqual(training_time(own, **source | {"fine_tune": True}), "0:00:20")
        self.assertEqual(training_time(own, pretrained_model_checkpoint_path=""), "0:00:20")

    def test_bytes_of_a_step_take_time_on_a_link(self):
        scalars = {
            "speed/examples_per_second": {1: 0.1, 10: 64.0, 20: 128.0},
            tags.RECEIVED_BYTES: {10: 1e6, 20: 1e6},
            tags.CROSS_ENTROPY: {0: 2.0, 5: 1.5, 20: 1.0},
        }
        # Steps of 1 and 0.5 s, and 1 s for 8 Mbit: 20 s after 10 steps and 35 s after 20.
        found = report.seconds_on_link(scalars, 64, 8e6)
        self.assertAllClose(sorted(found.items()), [(0, 2.0), (10, 1.5), (35, 1.0)])
        self.assertEqual(report.seconds_on_link({}, 64, 8e6), {})

    def test_a_checkpoint_that_is_removed_meanwhile_is_left_out(self):
        folder = pathlib.Path(self.get_temp_dir())
        for step in (1, 2):
            (folder / f"model.ckpt-{step}.data-00000-of-00001").write_bytes(b"1234")
        (folder / "model.ckpt-2.index").write_bytes(b"12")
        (folder / "model.ckpt-1.index").symlink_to("removed")
        (found,) = reading._find_checkpoints(folder)
        self.assertEqual((found.step, found.num_bytes), (2, 6))

    def test_columns_of_a_table_are_as_wide_as_their_widest_cell(self):
        text = report.table(["run", "bytes"], [["ternary", "5"], ["float", "100"]])
        self.assertEqual(text, "run      bytes\nternary      5\nfloat      100")

    def test_a_plot_is_a_png_and_leaves_nothing_beside_it(self):
        path = pathlib.Path(self.get_temp_dir()) / "plots" / "curves.png"
        path.parent.mkdir()
        report.plot(path, {"Training": ("loss", "log", {"float": {1: 2.0, 2: 1.0}})})
        self.assertEqual(path.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
        self.assertEqual(list(path.parent.iterdir()), [path])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
