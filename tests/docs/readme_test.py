"""README.md is correct: its example trains, its figures match benchmarks, and its links work."""

import collections
import json
import pathlib
import re
import sys
import tempfile
import unittest

import pytest

from benchmarks.cluster import picture
from benchmarks.lib import pages
from tests import forks
from tests.docs import guides

ROOT = forks.ROOT
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Names and columns of the README's table.
README_MODES = {
    "terngrad_tf": "ternary",
    "`MultiWorkerMirroredStrategy`": "tensorflow",
    "PyTorch DDP": "ddp_float32",
    "DDP, fp16 hook": "ddp_fp16",
    "DDP, PowerSGD": "ddp_powersgd",
    "nothing sent": "no_exchange",
}
README_COLUMNS = [
    (model, hosts, rate)
    for model, hosts in (("digits", 2), ("alexnet", 4))
    for rate in ("100mbit", "1gbit")
]
# Columns of the table in the docs.
PAGE_MODES = (
    "no_exchange",
    "ternary",
    "bidirectional",
    "four_bits",
    "unrotated",
    "auto",
    "local_steps",
    "float32",
    "tensorflow",
    "ddp_float32",
    "ddp_fp16",
    "ddp_powersgd",
)


# Figures of the benchmark.
ROWS = json.loads((ROOT / "benchmarks/results/cluster.json").read_text())["rows"]


def scripts_of_the_example():
    """Returns the README's example, and the same without the lines marked as new."""
    (ternary,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    stock, inner = [], False
    for line in ternary.splitlines():
        if "# new" in line:
            inner = line.startswith("with")
        else:
            inner = inner and line.startswith("    ")
            stock.append(line.removeprefix("    ") if inner else line)
    return {"stock": "\n".join(stock), "ternary": ternary}


def milliseconds(text, modes):
    """Returns {(model, hosts, rate, mode): ms} of a Markdown table of step times."""
    models = {"2.1 M weights": "digits", "61 M weights": "alexnet"}
    rates = {name: rate for rate, name in picture.RATES.items()} | {"any": "none"}
    found = {}
    for line in re.findall(r"^\| (.* M weights \| .*) \|$", text, re.MULTILINE):
        model, hosts, rate, *values = map(str.strip, line.split("|"))
        for mode, value in zip(modes, values, strict=True):
            key = models[model], int(hosts), rates[rate], mode
            if value:
                found[key] = int(value.replace(",", ""))
    return found


class ReadmeTest(unittest.TestCase):
    @pytest.mark.slow
    def test_the_example_trains_with_the_new_lines_and_without(self):
        with tempfile.TemporaryDirectory() as folder:
            results = forks.run_all(scripts_of_the_example(), pathlib.Path(folder))
        for name, (status, output) in results.items():
            with self.subTest(name):
                self.assertEqual(status, 0, output[-2000:])
                loss = [float(value) for value in re.findall(r"loss: ([0-9.]+)", output)]
                self.assertLess(loss[-1], loss[0])
        self.assertIn("num_members=4", results["ternary"][1])

    def test_is_short(self):
        self.assertLessEqual(len(README.encode()), 6_000)

    def test_files_that_it_and_its_neighbours_link_to_exist(self):
        for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
            text = (ROOT / name).read_text(encoding="utf-8")
            links = re.findall(r"\]\(([^)\s]+)\)|srcset=\"(.*?)\"|src=\"(.*?)\"", text)
            for link in map("".join, links):
                path, _, anchor = link.partition("#")
                if not path.startswith(("http:", "https:")):
                    with self.subTest(file=name, link=link):
                        target = ROOT / path if path else ROOT / name
                        self.assertTrue(target.exists())
                        if anchor:
                            self.assertIn(anchor, guides.anchors(target))

    def test_tables_of_steps_hold_the_figures_of_the_benchmark(self):
        measured = {
            (row["model"], row["hosts"], row["rate"], row["mode"]): round(row["milliseconds"])
            for row in ROWS
        }
        page = (ROOT / "docs/results/steps.md").read_text(encoding="utf-8")
        self.assertEqual(milliseconds(page, PAGE_MODES), measured)
        for name, mode in README_MODES.items():
            wanted = [f"{measured[(*column, mode)]:,}" for column in README_COLUMNS]
            row = rf"(?m)^\| {re.escape(name)} \|.*\| {re.escape(' | '.join(wanted))} \|$"
            self.assertRegex(README, row)

    def test_ratios_beside_the_table_follow_from_the_figures_of_the_benchmark(self):
        cells = collections.defaultdict(dict)
        for row in ROWS:
            cells[row["model"], row["hosts"], row["rate"]][row["mode"]] = row["milliseconds"]

        def ratios(mode, others, digits, rates=("100mbit", "1gbit", "none")):
            found = [
                cell[mode] / min(cell[other] for other in others)
                for (*_, rate), cell in cells.items()
                if rate in rates and {mode, *others} <= cell.keys()
            ]
            return f"{min(found):.{digits}f} to {max(found):.{digits}f}"

        page = (ROOT / "docs/results/steps.md").read_text(encoding="utf-8")
        exact = ("ternary", "bidirectional", "four_bits", "float32")
        of_1_gbit = (
            ratios(f"ddp_{hook}", ["ternary"], 1, ["1gbit"])
            for hook in ("powersgd", "fp16", "float32")
        )
        for text in (
            "ternary gradients are {} times as fast as PowerSGD, {} times as fast as fp16, and {}"
            " times as fast as plain DDP".format(*of_1_gbit),
            f"{ratios('ddp_fp16', ['ternary'], 1, ['100mbit'])} times as fast as fp16. PowerSGD",
            f"takes {ratios('ddp_powersgd', ['ternary'], 2, ['100mbit'])} of ternary's time",
            f"{ratios('auto', exact, 2)} times the time of the quickest",
            f"{ratios('float32', ['tensorflow'], 2)} times TensorFlow's time,"
            f" {ratios('float32', ['tensorflow'], 2, ['1gbit'])} times at 1 Gbit/s",
        ):
            self.assertIn(text, page)

    def test_picture_shows_the_figures_of_the_benchmark(self):
        for page in pages.PAGES:
            figure = picture.draw(ROWS, page)
            for panel, model in zip(figure.axes, picture.MODELS, strict=True):
                drawn = {line.get_label(): list(line.get_ydata()) for line in panel.get_lines()}
                for mode, (label, *_) in picture.MODES.items():
                    wanted = [
                        row["milliseconds"]
                        for rate in picture.RATES
                        for row in ROWS
                        if (row["model"], row["hosts"], row["rate"], row["mode"])
                        == (model, picture.HOSTS, rate, mode)
                    ]
                    self.assertEqual(drawn[label], wanted)
            written = (ROOT / f"docs/images/step_time_{page}.svg").read_text(encoding="utf-8")
            for label, *_ in picture.MODES.values():
                self.assertIn(f">{label}</text>", written)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
