"""Commands and files that docs/ names exist. `guides_test.py` runs the commands."""

import dataclasses
import importlib
import inspect
import re
import runpy
import shlex
import sys
import types
import unittest

import pytest
from absl import flags

import terngrad_tf
from benchmarks.lib import index as benchmark_index
from terngrad_tf.bin.command import check, run
from terngrad_tf.bin.command.commands import ALL, find
from terngrad_tf.distribute import ClusterOptions, Quantization, TernGradStrategy
from tests.docs import guides

ROOT = guides.ROOT
# Generates pages of the site; its code is in tools/.
reference = types.SimpleNamespace(**runpy.run_path(str(ROOT / "tools/reference.py")))
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *guides.PAGES]


def commands():
    """Yields (file, words) for each command line in a shell block, joining continued lines."""
    for path in TEXTS:
        texts = [b.text for b in guides.blocks(path) if b.language == "bash"]
        for text in texts:
            for line in text.replace("\\\n", " ").splitlines():
                try:
                    words = shlex.split(line, comments=True)
                except ValueError:  # a quoted script over several lines
                    continue
                if words:
                    yield path, words


def programs():
    """Yields (file, module, words) for each command line that starts a program built on absl."""
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

    @pytest.mark.slow
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

    def test_tables_of_options_are_complete_with_defaults(self):
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

    def test_frequent_questions_have_an_answer_with_a_link(self):
        text = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
        questions = re.findall(r"^\| ([^|]*\?) \| (.*) \|$", text.partition("\n## FAQ\n")[2], re.M)
        self.assertGreaterEqual(len(questions), 10)
        for question, answer in questions:
            with self.subTest(question):
                page, _, heading = re.search(r"\]\(([^)]+)\)", answer)[1].partition("#")
                anchors = guides.anchors(ROOT / "docs" / (page or "troubleshooting.md"))
                self.assertIn(heading or anchors[0], anchors)

    def test_each_file_of_figures_has_a_benchmark_and_a_page(self):
        programs = benchmark_index.commands().items()
        cited = [path for name, path in programs if benchmark_index.pages(name)]
        shown = {file for path in cited for file in benchmark_index.files(path)}
        files = {path.name for path in (ROOT / "benchmarks/results").iterdir()}
        self.assertEqual(sorted(files - shown), [])

    def test_reference_holds_every_public_name(self):
        names = (n for n in terngrad_tf.__all__ if inspect.ismodule(getattr(terngrad_tf, n)))
        self.assertLessEqual({*names, "slim_data"}, set(reference.packages()))
        pages = reference.pages()
        for page, package in reference.packages().items():
            written = ROOT / f"docs/reference/{page}.md"
            if written.exists():
                self.assertEqual(written.read_text("utf-8"), reference.OVERVIEW.format(package))
            else:
                self.assertIn(f"reference/{page}/index.md", pages)
            public = importlib.import_module(package).__all__
            classes, functions = reference.split(reference.names(package))
            self.assertEqual(sorted([*classes, *functions]), sorted(public))
            shown = pages.get(f"reference/{page}/functions.md", "")
            for name, (path, _) in reference.names(package).items():
                text = pages[f"reference/{page}/{name}.md"] if name in classes else shown
                self.assertRegex(text, rf"(?m)^::: {re.escape(path)}$")
                self.assertIn(f"[`{name}`]({page}/", reference.table(f"reference/{page}.md"))
        self.assertEqual(
            next(p for p in pages if p.count("/") == 2), "reference/distribute/TernGradStrategy.md"
        )


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
