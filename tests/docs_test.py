"""What the pages of docs/ say is so: their code runs, their commands and files exist."""

import ast
import dataclasses
import importlib
import inspect
import json
import pathlib
import re
import shlex
import sys
import tempfile
import unittest

import pytest
from absl import flags

import terngrad_tf
from benchmarks.lib import index as benchmark_index
from terngrad_tf import parameter_server, phase_2
from terngrad_tf.bin.command import check, run
from terngrad_tf.bin.command.commands import ALL, find
from terngrad_tf.distribute import ClusterOptions, Quantization, TernGradStrategy
from tests import forked_scripts
from tests.distribute import processes

ROOT = forked_scripts.ROOT
PAGES = sorted((ROOT / "docs").rglob("*.md"))
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]

# Clusters become one of a single process. By page, what is put in place of what.
CLUSTER_OF_ONE = {
    "two_machines": {"10.0.0.1:2222,10.0.0.2:2222": "127.0.0.1:{port}"},
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


def blocks(path, language):
    """The code blocks of a language in a Markdown file."""
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S)


def commands():
    """(file, words) of every command line in a block of shell code, continued lines joined."""
    for path in TEXTS:
        for block in blocks(path, "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                try:
                    words = shlex.split(line, comments=True)
                except ValueError:  # a script in quotes over several lines
                    continue
                if words:
                    yield path, words


def cluster_of_one(page, code):
    """Code of a page for a cluster, for one that has a single process on this machine."""
    (port,) = processes.free_ports(1)
    for old, new in CLUSTER_OF_ONE[page].items():
        code = code.replace(old, new.replace("{port}", str(port)))
    return code


def programs():
    """(file, module, words) of every command line that starts a program built on absl."""
    for path, words in commands():
        words = words[1:] if words[0] == "srun" else words
        module = words[2] if words[:2] == ["python", "-m"] else ""
        if words[0] == "terngrad":
            module = ALL[find(words[1:])[0]].module
        if module.startswith("terngrad_tf.bin."):
            found = importlib.import_module(module)
            if hasattr(found, "define_flags"):
                yield path, found, words


class DocsTest(unittest.TestCase):
    @pytest.mark.slow
    def test_code_of_the_pages_runs(self):
        scripts = {}
        for path in PAGES:
            code = blocks(path, "python")
            if path.stem in CLUSTER_OF_ONE:
                for number, block in enumerate(code):
                    scripts[f"{path.stem}_{number}"] = cluster_of_one(path.stem, block)
            elif code:
                scripts[path.stem] = "\n".join(code)
        with tempfile.TemporaryDirectory() as folder:
            table = pathlib.Path(folder, "two_machines_1", "rank_table_8pcs.json")
            table.parent.mkdir()
            table.write_text(json.dumps(RANK_TABLE), encoding="utf-8")
            results = forked_scripts.run_all(scripts, pathlib.Path(folder))
        for name, (status, output) in results.items():
            with self.subTest(page=name):
                self.assertEqual(status, 0, output[-3000:])

    def test_commands_have_the_flags_that_pages_give_them(self):
        found = 0
        for path, module, words in programs():
            values = flags.FlagValues()
            module.define_flags(values)
            given = [word[2:].partition("=")[0] for word in words if word.startswith("--")]
            unknown = [flag for flag in given if flag not in values]
            self.assertEqual(unknown, [], f"{path}: {words}")
            found += 1
        self.assertGreater(found, 2)

    def test_commands_of_terngrad_have_the_options_that_pages_give_them(self):
        parsers, found = {"run": run.parser, "check": check.parser}, 0
        for path, words in commands():
            words = words[1:] if words[0] == "srun" else words
            if words[0] == "terngrad" and words[1] in parsers:
                with self.subTest(path=path.name, words=words):
                    parsers[words[1]]().parse_args(words[2:])
                found += 1
        self.assertGreater(found, 2)

    def test_modules_and_scripts_that_pages_name_exist(self):
        files = {str(p.relative_to(ROOT)) for p in ROOT.glob("[!.]*/**/*.py")}
        for path in TEXTS:
            text = path.read_text(encoding="utf-8")
            named = set(re.findall(r"\bscripts/[a-z0-9_]+\.sh\b", text))
            missing = {name for name in named if not (ROOT / name).exists()}
            for module in re.findall(
                r"python -m ((?:terngrad_tf|slim_data|benchmarks)[\w.]*)", text
            ):
                name = module.replace(".", "/")
                if not {f"{name}.py", f"{name}/__main__.py"} & files:
                    missing.add(module)
            for name in re.findall(r"`([\w/]+/\w+\.py)`", text):
                if not any(f == name or f.endswith("/" + name) for f in files):
                    missing.add(name)
            with self.subTest(path=path.name):
                self.assertEqual(missing, set())

    def test_tables_of_options_hold_all_with_their_defaults(self):
        text = (ROOT / "docs/strategy.md").read_text(encoding="utf-8")
        parameters = inspect.signature(TernGradStrategy.__init__).parameters.values()
        options = {p.name: p.default for p in parameters if p.name != "self"}
        self.assertLessEqual(len(options), 10)
        for section, wanted in (
            ("## Options", options),
            *(
                (f"### {kind.__name__}", {f.name: f.default for f in dataclasses.fields(kind)})
                for kind in (Quantization, ClusterOptions)
            ),
        ):
            _, _, part = text.partition(f"\n{section}\n")
            part = re.split(r"^##", part, flags=re.M)[0]
            shown = dict(re.findall(r"^\| `(\w+)` \| `?(.*?)`? \| ", part, re.M))
            texts = {k: f'"{v}"' if isinstance(v, str) else str(v) for k, v in wanted.items()}
            self.assertEqual(shown, texts)

    def test_each_benchmark_and_each_file_of_figures_has_a_page(self):
        programs = benchmark_index.commands()
        self.assertEqual([name for name in programs if not benchmark_index.pages(name)], [])
        shown = {file for path in programs.values() for file in benchmark_index.files(path)}
        files = {path.name for path in (ROOT / "benchmarks/results").iterdir()}
        self.assertEqual(sorted(files - shown), [])

    def test_reference_holds_every_public_name(self):
        names = (n for n in terngrad_tf.__all__ if inspect.ismodule(getattr(terngrad_tf, n)))
        for package in (*names, "slim_data"):
            page = ROOT / "docs" / "reference" / f"{package}.md"
            self.assertTrue(page.exists(), page)
        for package in (
            terngrad_tf.training,
            terngrad_tf.distribute,
            phase_2,
            parameter_server,
        ):
            (_, name) = package.__name__.split(".")
            text = (ROOT / f"docs/reference/{name}.md").read_text(encoding="utf-8")
            shown = re.findall(r"^::: terngrad_tf\.(?:\w+\.)+(\w+)$", text, re.M)
            self.assertEqual(sorted(shown), sorted(package.__all__))
        # All others re-export names that their `__init__` imports, which the generator follows.
        for package in ("terngrad_tf/subspace", "slim_data"):
            tree = ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))
            names = {
                a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names
            }
            self.assertEqual(
                names, set(__import__(package.replace("/", "."), fromlist=["x"]).__all__)
            )


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
