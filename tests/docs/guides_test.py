"""The guides run from top to bottom, and so does other code of the documentation."""

import importlib.util
import json
import pathlib
import re
import sys
import tempfile
import unittest

import pytest
import yaml

from tests import forks
from tests.distribute import processes
from tests.docs import guides

DOCS = guides.ROOT / "docs"

# Guides whose commands run here, in slow or long tests.
SLOW = ("data_on_machines", "from_pytorch", "text_classifier")
LONG = ("folder_of_images",)
# Tests of the other guides.
ELSEWHERE = {
    "command": "bin/command/terngrad_test.py",
    "encryption": "needs WireGuard on several machines",
    "from_mindspore": "scripts/run_stage_test.py",
    "from_terngrad": "bin/seed_commands_test.py",
    "getting_started": "bin/quickstart_test.py, core_install_test.py",
    "kubernetes": "cluster_files_test.py; needs a registry",
    "launching": "launcher/run_test.py",
    "phase_2": "bin/phases_test.py",
    "programs": "bin/common/program_test.py",
    "reports": "bin/report_test.py",
    "slurm": "cluster_files_test.py; needs Slurm",
    "ssh": "scripts/run_dist_test.py",
    "tensorboard": "starts a server",
    "two_machines": "docs/first_hour_test.py",
}

# Replacements in a page's code that make its cluster a single process.
CLUSTER_OF_ONE = {
    "launching": {"10.0.0.1:2222,10.0.0.2:2222": "127.0.0.1:{port}"},
    "kubernetes": {
        "socket.gethostname()": "'trainer-0'",
        "{name}-{i}.trainer:2222": "127.0.0.1:{port}",
        "import os\n": "import os\nos.environ['WORKERS'] = '1'\n",
    },
    "slurm": {
        "port_base=2222": "port_base={port}",
        "import tensorflow as tf\n": (
            "import os\nimport tensorflow as tf\n"
            "os.environ.update(SLURM_STEP_NODELIST='localhost', SLURM_PROCID='0',\n"
            "    SLURM_STEP_NUM_TASKS='1', SLURM_STEP_TASKS_PER_NODE='1')\n"
        ),
    },
}
RANK_TABLE = {
    "version": "1.0",
    "server_count": "1",
    "status": "completed",
    "server_list": [
        {
            "server_id": "127.0.0.1",
            "device": [{"device_id": "0", "device_ip": "127.0.0.1", "rank_id": "0"}],
        }
    ],
}


def cluster_of_one(page, code):
    """Returns a page's code for a cluster, changed to a single process on this machine."""
    (port,) = processes.free_ports(1)
    for old, new in CLUSTER_OF_ONE[page].items():
        code = code.replace(old, new.replace("{port}", str(port)))
    return code


def names_of_guides():
    """Returns the names of the pages below "Guides" in the site's navigation."""
    (guides_part,) = (
        part["Guides"]
        for part in yaml.safe_load((DOCS / ".nav.yml").read_text(encoding="utf-8"))["nav"]
        if "Guides" in part
    )
    return re.findall(r"'(\w+)\.md'", str(guides_part))


class GuidesTest(unittest.TestCase):
    @pytest.mark.slow
    def test_python_of_all_pages_runs(self):
        scripts = {}
        for path in guides.PAGES:
            if path.stem in CLUSTER_OF_ONE:
                for number, block in enumerate(guides.blocks(path)):
                    if block.language == "python":
                        code = cluster_of_one(path.stem, block.text)
                        scripts[f"{path.stem}_{number}"] = code
            elif code := guides.script(path):
                scripts[path.stem] = code
        with tempfile.TemporaryDirectory() as folder:
            for name in scripts:
                if name.startswith("launching"):
                    table = pathlib.Path(folder, name, "rank_table_8pcs.json")
                    table.parent.mkdir()
                    table.write_text(json.dumps(RANK_TABLE), encoding="utf-8")
            results = forks.run_all(scripts, pathlib.Path(folder))
        for name, (status, output) in results.items():
            with self.subTest(page=name):
                self.assertEqual(status, 0, output[-3000:])

    @pytest.mark.long
    def test_commands_of_guides_run(self):
        self.run_guides(SLOW)

    @pytest.mark.long
    def test_commands_of_long_guides_run(self):
        self.run_guides(LONG)

    def run_guides(self, names):
        """Runs the commands of guides, each guide in an empty folder."""
        for name in names:
            with self.subTest(guide=name), tempfile.TemporaryDirectory() as folder:
                status, output = guides.run_commands(DOCS / f"{name}.md", pathlib.Path(folder))
                self.assertEqual(status, 0, output[-3000:])

    @unittest.skipUnless(importlib.util.find_spec("keras_hub"), "needs KerasHub")
    def test_fine_tuning_runs_with_keras_hub(self):
        block = next(b for b in guides.blocks(DOCS / "fine_tuning.md") if b.title)
        self.assertIn("keras_hub", block.text)
        with tempfile.TemporaryDirectory() as folder:
            results = forks.run_all({"hub": block.text}, pathlib.Path(folder))
        self.assertEqual(results["hub"][0], 0, results["hub"][1][-3000:])

    def test_every_guide_has_a_place_where_its_commands_run(self):
        tested = {*SLOW, *LONG, *ELSEWHERE}
        names = names_of_guides()
        self.assertGreater(len(names), 25)
        self.assertEqual(len(names), len(set(names)))
        with_commands = {name for name in names if guides.commands(DOCS / f"{name}.md")}
        self.assertEqual(with_commands - tested, set())
        self.assertEqual(tested - with_commands, set())
        for file in re.findall(r"[\w/]+_test\.py", " ".join(ELSEWHERE.values())):
            self.assertTrue((guides.ROOT / "tests" / file).exists(), file)

    def test_new_guides_are_short(self):
        for name in ("batch_norm", "custom_loops", "data_on_machines", "from_pytorch"):
            with self.subTest(guide=name):
                text = re.sub(
                    r"```.*?```", "", (DOCS / f"{name}.md").read_text("utf-8"), flags=re.S
                )
                self.assertLessEqual(len(text.split()), 600)

    def test_batch_norm_shows_the_measured_accuracy(self):
        runs = [
            json.loads(line)
            for line in (guides.ROOT / "benchmarks/results/fidelity.jsonl").read_text().splitlines()
        ]
        text = (DOCS / "batch_norm.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| (\d+) \| (\d+) \| ([\d.]+) \|$", text, re.M)
        self.assertEqual([int(count) for count, *_ in rows], [1, 4, 16, 64])
        for count, images, accuracy in rows:
            found = [
                run["accuracy"]
                for run in runs
                if (run["net"], run["gradients"]) == ("resnet_20", "float")
                and (run["num_nodes"], run["batch_size"]) == (int(count), 128)
            ]
            self.assertEqual(len(found), 3)
            self.assertEqual(int(images), 128 // int(count))
            self.assertEqual(f"{100 * sum(found) / 3:.2f}", accuracy)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
