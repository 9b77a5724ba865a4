"""Reports of runs show the figures of the logs; they load and run nothing from files."""

import html.parser
import json
import os
import pathlib
import re
import shlex
import shutil
import sys
import tempfile

import keras
import plotly.graph_objects
import pytest
import tensorflow as tf

import slim_data
from terngrad_tf.bin import export, mnist_eval, mnist_train, report
from terngrad_tf.common import tags
from terngrad_tf.training.logs.report import plot, read_scalars
from tests import runs
from tests.bin import samples
from tests.slim_data.samples import small_disk

SECTIONS = (
    *("Summary", "Configuration", "Curves", "Bytes", "Where a step's time goes", "Codes"),
    *("Stragglers", "Phase 2", "Checkpoints", "Resume, evaluate, export"),
)
PROGRAMS = {"mnist_train": mnist_train, "mnist_eval": mnist_eval, "export": export}
HOSTILE = "<img src=http://x onerror=a()>"
VOID = ("meta", "img")


class Report(html.parser.HTMLParser):
    """A report as a browser reads it.

    Attributes:
        tags: names of all elements.
        addresses: values of all attributes that can name a resource to load.
        headings: texts of h2.
        rows: dict from the first cell of each table row to the other cells.
        commands: texts of pre.
        figures: data of the charts.
    """

    def __init__(self, path):
        super().__init__()
        self.tags, self.addresses, self.headings, self.commands = set(), [], [], []
        self.rows, self.figures = {}, []
        self._open, self._text = [], ""
        self.feed(pathlib.Path(path).read_text(encoding="utf-8"))
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.addresses += [v for k, v in attributes if k in ("src", "href", "srcset", "data")]
        self._text = ""
        if tag == "tr":
            self._cells = []
        if tag not in VOID:
            self._open.append(tag)

    def handle_data(self, data):
        self._text += data

    def handle_endtag(self, tag):
        assert self._open.pop() == tag
        if tag == "h2":
            self.headings.append(self._text)
        elif tag == "pre":
            self.commands.append(self._text)
        elif tag in ("th", "td"):
            self._cells.append(self._text)
        elif tag == "tr":
            self.rows[self._cells[0]] = self._cells[1:]
        elif tag == "script" and self._text.startswith("const FIGURES = "):
            self.figures, _ = json.JSONDecoder().raw_decode(self._text[len("const FIGURES = ") :])

    def curve(self, label, name=None):
        """Returns {x: y} of the line or bars `name` in the chart with an axis titled `label`."""
        for figure in self.figures:
            axes = figure["layout"]["xaxis"], figure["layout"]["yaxis"]
            if label in (axis["title"]["text"] for axis in axes):
                for line in figure["data"]:
                    if name in (None, line["name"]):
                        return dict(zip(line["x"], line["y"], strict=True))
        raise KeyError(label, name)


class ReportTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = runs.class_folder(cls)
        slim_data.convert("digits", str(cls.root / "data"), shard=True, train_shards=2)
        ternary = ("--grad_bits", 1, "--clip_factor", 2.5, "--num_nodes", 2, "--save_iter", 10)
        ternary += ("--telemetry_freq", 5, "--snapshot_every_steps", 5)
        here = os.getcwd()
        os.chdir(cls.root)
        cls.run_output = cls.train("ternary", *ternary, "--max_steps", 20, "--data_dir", "data")
        os.chdir(here)
        cls.train("float", "--max_steps", 10, "--telemetry_freq", 0)
        _, cls.evaluated, _ = samples.call(
            mnist_eval.main,
            *("mnist_eval", "--data_dir", cls.root / "data", "--run_once"),
            *("--checkpoint_dir", cls.root / "ternary", "--eval_dir", cls.root / "ternary_eval"),
        )

    @classmethod
    def train(cls, name, *arguments):
        """Trains in the folder `name`; returns the standard output."""
        status, out, err = samples.call(
            mnist_train.main,
            *("mnist_train", "--dataset_name", "digits", "--data_dir", cls.root / "data"),
            *("--train_dir", cls.root / name, "--batch_size", 8, "--image_size", 12),
            *("--input_queue_memory_factor", 1, *arguments),
        )
        assert status == 0, err
        return out

    def new_folder(self):
        """Returns the path of an empty folder that the test removes."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return pathlib.Path(folder.name)

    def write(self, *arguments):
        """Writes a report with the program, and returns it."""
        output = self.new_folder() / "report.html"
        status, out, err = samples.call(report.main, "report", *arguments, "--output", output)
        self.assertEqual((status, out, err), (0, f"Report: {output}\n", ""))
        self.assertEqual(os.listdir(output.parent), ["report.html"])
        return Report(output)

    @pytest.mark.slow
    def test_a_run_leaves_its_report_beside_its_logs_and_says_where(self):
        path = self.root / "ternary" / "report.html"
        self.assertEndsWith(self.run_output, f": report: {path}\n")
        self.assertEqual(tuple(Report(path).headings), SECTIONS)

    def test_numbers_equal_those_of_the_logs(self):
        found = self.write(self.root / "ternary")
        self.assertEqual(tuple(found.headings), SECTIONS)
        scalars = read_scalars(self.root / "ternary")
        for label, tag, name in (
            ("cross-entropy", tags.CROSS_ENTROPY, "loss"),
            ("learning rate", tags.LEARNING_RATE, None),
            ("examples/s", tags.EXAMPLES_PER_SECOND, None),
        ):
            self.assertEqual(found.curve(label, name), scalars[tag], tag)
        received, ratio = (
            scalars[tag][20] for tag in (tags.RECEIVED_BYTES, tags.COMPRESSION_RATIO)
        )
        self.assertEqual(found.rows["bytes received a step by each member"], [f"{received:,.0f}"])
        self.assertEqual(found.rows["ratio"], [f"{ratio:.4g}"])
        self.assertEqual(found.rows["steps"], ["20 of 20"])
        precision = re.search(r"precision @ 1 = ([\d.]+)", self.evaluated)[1]
        accuracy = found.curve("accuracy / %", "eval")
        self.assertEqual(f"{accuracy[20] / 100:.4f}", precision)
        self.assertEqual(found.rows["accuracy at the last step"], [f"{accuracy[20]:.2f} %"])
        zeros = {
            tag.split("/", 1)[1].removesuffix("/sparsity"): 100 * curve[max(curve)]
            for tag, curve in scalars.items()
            if tag.startswith("ternary/") and tag.endswith("/sparsity")
        }
        self.assertNotEmpty(zeros)
        self.assertEqual({y: x for x, y in found.curve("zeros / %").items()}, zeros)
        saved = [p.stem for p in (self.root / "ternary").glob("model.ckpt-*.index")]
        self.assertEqual(sorted(saved), ["model.ckpt-10", "model.ckpt-20"])

    def test_bars_of_a_step_are_the_records_of_telemetry(self):
        lines = (self.root / "ternary" / "telemetry.jsonl").read_text().splitlines()
        records = {record["step"]: record for record in map(json.loads, lines)}
        self.assertEqual(list(records), [5, 10, 15, 20])
        found = self.write(self.root / "ternary")
        told = found.curve("ms a step", "encode")
        expected = {step: 1e3 * record["encode_seconds"] for step, record in records.items()}
        self.assertAllClose(told, expected)

    def test_several_runs_are_compared_by_their_different_options(self):
        found = self.write(self.root / "ternary", self.root / "float")
        self.assertIn("Differences in options", found.headings)
        self.assertEqual(found.rows["grad_bits"], ["1", "32"])
        self.assertEqual(found.rows["gradients"], ["ternary", "float32"])
        for name in ("ternary", "float"):
            curve = read_scalars(self.root / name)[tags.CROSS_ENTROPY]
            self.assertEqual(found.curve("cross-entropy", name), curve)

    def test_missing_measurements_come_with_a_hint(self):
        text = (self.root / "float" / "report.html").read_text(encoding="utf-8")
        for hint in ("--telemetry_freq=10", "--grad_bits=1", "--num_nodes", "subspace_train draws"):
            self.assertIn(hint, text)
        self.assertEqual(tuple(Report(self.root / "float" / "report.html").headings), SECTIONS)

    def test_asynchronous_runs_get_no_hint_at_measurements_that_they_do_not_make(self):
        folder = self.new_folder()
        described = json.loads((self.root / "float" / "run.json").read_text())
        described["identity"] |= {"asynchronous": True, "num_hosts": 2, "grad_bits": 1}
        (folder / "run.json").write_text(json.dumps(described))
        output = folder / "report.html"
        status, _, err = samples.call(report.main, "report", folder, "--output", output)
        self.assertEqual(status, 0, err)
        text = output.read_text(encoding="utf-8")
        self.assertEqual(text.count("Not measured: asynchronous workers exchange nothing"), 3)
        for hint in ("--telemetry_freq=10", "every --save_iter steps", "means of 100 steps"):
            self.assertNotIn(hint, text)

    def test_workers_that_come_and_go_get_no_command_of_a_single_process(self):
        folder = self.new_folder()
        described = json.loads((self.root / "float" / "run.json").read_text())
        described["identity"] |= {"shares_batches": True}
        (folder / "run.json").write_text(json.dumps(described))
        first = self.write(folder).commands[0]
        self.assertEqual(first, "Repeat the command that started the run.")

    def test_figures_are_valid_for_the_library_and_nothing_is_loaded(self):
        found = self.write(self.root / "ternary", self.root / "float")
        self.assertGreater(len(found.figures), 5)
        for figure in found.figures:
            plotly.graph_objects.Figure(figure)
        self.assertEqual(found.addresses, [])

    def test_contents_of_files_are_shown_as_text(self):
        folder = self.new_folder() / HOSTILE.replace("/", "")
        shutil.copytree(self.root / "ternary", folder)
        described = json.loads((folder / "run.json").read_text())
        end = f"</script></pre>{HOSTILE}"
        described["options"] |= {"data_dir": end, "\x1b[2J": end, end: [end]}
        described["identity"]["dataset_name"] = end
        (folder / "run.json").write_text(json.dumps(described))
        with open(folder / "telemetry.jsonl", "a", encoding="utf-8") as file:
            for step, wire in ((30, end), (end, "a"), (40, [end])):
                record = {"step": step, "wire": wire, "rest_seconds": end, "encode_seconds": 1e400}
                file.write(f"{json.dumps(record)}\n[]\n{{\n")
        writer = tf.summary.create_file_writer(str(folder))
        with writer.as_default():
            tf.summary.scalar(tags.ternary_sparsity(end), 0.5, step=5)
            tf.summary.scalar(tags.CROSS_ENTROPY, float("nan"), step=30)
            tf.summary.scalar(tags.EXAMPLES_PER_SECOND, 0.0, step=30)
        writer.close()
        plot(folder / "subspace.png", {"a": ("b", "log", {"c": {1: 2.0}})})
        found = self.write(folder)
        self.assertEqual(tuple(found.headings), SECTIONS)
        self.assertEqual(found.rows["data set"], [end])
        self.assertEqual(found.rows["\\x1b[2J"], [end])
        (picture,) = found.addresses
        self.assertStartsWith(picture, "data:image/png;base64,")
        # The library renders names in charts as HTML.
        self.assertNotIn("<", json.dumps(found.figures))

    def test_wrong_runs_and_paths_are_one_line_and_nothing_is_written(self):
        folder = self.new_folder()
        (folder / "damaged").mkdir()
        (folder / "damaged" / "run.json").write_text("{")
        run, output = self.root / "ternary", folder / "out.html"
        for arguments, rule in (
            ([], "RUN must be given"),
            ([folder / "none"], "RUN must be the --train_dir.*none' holds nothing"),
            ([self.root / "data"], "RUN must be the --train_dir.*run.json is missing"),
            ([run, folder / "damaged"], ".*run.json is damaged"),
            ([run, run], "RUN must be given once each"),
            ([run, "--output", folder / "no" / "out.html"], "`output` must be a file in a folder"),
            ([run, "--output", folder], "`output` must be a file in a folder"),
            ([run, "--eval_dir", "a,b"], "`eval_dir` must name a folder for each RUN, 1"),
            ([run, "--eval_dir", folder / "none"], "`eval_dir` must be a folder"),
            ([run, "--eval_dir=~/none"], f"`eval_dir` must be .*'{pathlib.Path.home()}/none'"),
        ):
            given = ["report", "--output", output, *arguments]
            status, out, err = samples.call(report.main, *given)
            self.assertEqual((status, out, err.count("\n")), (2, "", 1), err)
            self.assertRegex(err, f"^report: error: {rule}")
        self.assertEqual(os.listdir(folder), ["damaged"])

    @pytest.mark.slow
    def test_a_full_disk_has_its_own_status(self):
        with small_disk(self, 64) as folder:
            output = f"{folder}/report.html"
            status, _, err = samples.call(
                report.main, "report", self.root / "ternary", "--output", output
            )
            self.assertEqual(status, 4, err)
            self.assertIn(f"error: {output} cannot be written: No space left on device", err)

    @pytest.mark.slow
    def test_a_run_whose_report_cannot_be_written_ends_well(self):
        (self.root / "blocked" / "report.html").mkdir(parents=True)
        (self.root / "blocked" / "run.json").symlink_to(self.root / "float" / "run.json")
        out = self.train("blocked", "--max_steps", 10, "--telemetry_freq", 0)
        self.assertRegex(
            out, r"finished at step 10.*\n.*: no report could be written: `output`.*\n$"
        )

    def test_commands_in_the_report_work(self):
        commands = self.write(self.root / "ternary").commands
        before = read_scalars(self.root / "ternary")
        self.addCleanup(os.chdir, os.getcwd())
        for command in commands:
            os.chdir(self.new_folder())
            python, *words = shlex.split(command.replace("\\\n", ""))
            if python == "cd":
                folder, python, *words = words
                os.chdir(folder)
            _, module, *arguments = words
            self.assertEqual(python, "python")
            program = module.removeprefix("terngrad_tf.bin.")
            status, out, err = samples.call(PROGRAMS[program].main, program, *arguments)
            self.assertEqual((status, err), (0, ""))
            self.assertRegex(out, "finished at step 20|precision @ 1 = |ternary.keras")
        self.assertLen(commands, 3)
        self.assertEqual(read_scalars(self.root / "ternary"), before)
        keras.models.load_model(self.root / "ternary.keras")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
