"""The shortest form of each benchmark command in README.md and docs/ runs."""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

import pytest

from tests.slim_data import samples

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Shortest forms. FOLDER stands for a new folder, RAW for 6,200 images and TEXT for 700 verses.
ALONE = (
    "accuracy --nets=lenet --replicas=2 --seeds=1 --epochs=1 --json=FOLDER/accuracy.json",
    "cluster.picture --output=FOLDER",
    "codec --elements=65536 --rounds=1",
    "embeddings --text=TEXT --seeds=1 --epochs=1 --json=FOLDER/embeddings.json"
    " --ways=float --ways='ternary, default'",
    "emulation --net=lenet --replicas=1,2 --batch_sizes=16 --steps=2 --rounds=1",
    "emulation --net=lenet --replicas=1 --batch_sizes=16 --steps=2 --rounds=1 --processes=2"
    " --rotate=false",
    "fidelity --raw_dir=RAW --folder=FOLDER/fidelity --images=256 --epochs=1 --seeds=1"
    " --tables=workers --tables=kinds --tables=batches --tables=precisions"
    " --optimizers=Adam --nets=small_cnn --workers=2 --kinds=embeddings --batches=32"
    " --precisions=float32 --gradients=float --gradients=rotated",
    "fidelity.budget_picture --pictures=FOLDER",
    "fidelity.default --raw_dir=RAW --images=256 --seeds=1 --cells=0 --cells=6"
    " --file=FOLDER/default.jsonl",
    "fidelity.summary",
    "first_step --nets=lenet --steps=2 --rounds=1",
    "input --rounds=1 --photos=64 --images=1024 --only=mnist",
    "local_steps --raw_dir=RAW --epochs=0.2 --seeds=1 --learning_rates=0.05"
    """ --only='"every step, float","every 8 steps, ternary"' --json=FOLDER/local_steps.json""",
    "many_processes --processes=2 --steps=2",
    "sparsity --raw_dir=RAW --replicas=2 --clip_factors=0 --steps=3 --told_steps=1",
    "subspace --tasks=digits --lengths=1 --seeds=1 --noises=0.0 --json=FOLDER/subspace.json",
    "subspace.pca --weights=1000 --rounds=1 --snapshots=5 --components=3",
    "subspace.residual --raw_dir=RAW --seeds=1 --ways=none --ways='ternary, every step'"
    " --json=FOLDER/residual.json",
    "subspace.step --nets=lenet --batch_sizes=16 --steps=2",
)
# These run as root and create hosts in network namespaces.
SOAK = (
    "--minutes=0.3 --warm_up=0 --window=0.3 --sample_seconds=1 --save_seconds=4 --snapshot_steps=10"
)
HOSTS = (
    "advice --rates=none --rounds=1 --seconds=1",
    "asynchronous --steps=120 --seeds=1 --json=FOLDER/asynchronous.json",
    "cluster --models=digits --hosts=2 --rates=none --modes=no_exchange --rounds=1"
    " --seconds=1 --json=FOLDER/cluster.json",
    "large --nets=resnet_20 --steps=4 --batch_size=1 --modes=alone --modes=ternary",
    "local_steps.periods --links=1gbit --modes=auto,8 --rounds=1 --steps=32",
    "overlap --rate=none --layers=2 --units=64 --batch_size=8",
    "recovery --mode=synchronous --repeats=1 --json=FOLDER/recovery.json",
    "scaling --workers=2,4 --hosts= --rounds=1",
    f"soak --folder=FOLDER/a {SOAK}",
    f"soak --folder=FOLDER/b {SOAK} --kill_every=8 --seed=1 --equal_to=FOLDER/a",
    "time_to_accuracy --raw_dir=RAW --modes=keras,ternary --steps=96 --seeds=1"
    " --learning_rates=0.03 --links=1gbit --rounds=1 --json=FOLDER/time_to_accuracy.json",
    "wire --hosts=2 --rates=none --elements=4096 --rounds=1",
)
# Tests in other files run these.
ELSEWHERE = {
    "chaos": "bin/chaos_test.py",
    "compare": "benchmarks/compare_test.py",
    "language": "benchmarks/language_test.py",
}
# A row of figures in a Markdown or plain-text table.
ROW = r"(?m)^(\|(---\|)+\n\|.*\d.*\||[\w *]+ {2}[\d.]+ .*)$"
# These programs write pictures and print no table.
PICTURES = {"cluster.picture", "fidelity.budget_picture"}


def named():
    """Yields (module, flags) of the commands in the pages."""
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        for module, rest in re.findall(r"python -m benchmarks\.([a-z_.]*[a-z_])([^`\n]*)", text):
            yield module, set(re.findall(r"--([a-z_]+)", rest))


class BenchmarkCommandsTest(unittest.TestCase):
    def test_each_command_of_a_figure_is_run_by_a_test(self):
        run_here = {command.split()[0] for command in (*ALONE, *HOSTS)}
        self.assertEqual({module for module, _ in named()} - run_here - {*ELSEWHERE}, set())
        for module, test in ELSEWHERE.items():
            text = (ROOT / "tests" / test).read_text(encoding="utf-8")
            self.assertIn(f'"benchmarks.{module}"', text)

    def test_commands_of_the_pages_have_flags_of_their_programs(self):
        for module, options in named():
            path = ROOT / "benchmarks" / module.replace(".", "/")
            path = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
            for option in options:
                with self.subTest(module, option=option):
                    self.assertIn(f'"{option}"', path.read_text(encoding="utf-8"))

    def test_hosts_of_each_benchmark_and_test_have_a_prefix_of_their_own(self):
        # One that starts removes hosts with its prefix, also those of another one that runs.
        found = []
        for path in (
            file for name in ("benchmarks", "tests") for file in (ROOT / name).rglob("*.py")
        ):
            found += re.findall(r'"(t[gl][a-z]{1,4}|tfhr)"', path.read_text(encoding="utf-8"))
        self.assertGreater(len(found), 15)
        self.assertEqual(sorted(found), sorted(set(found)))

    @pytest.mark.long
    def test_commands_of_one_machine_run(self):
        self.run_all(ALONE)

    @pytest.mark.long
    @unittest.skipUnless(sys.platform == "linux" and os.geteuid() == 0, "makes namespaces")
    def test_commands_of_several_hosts_run(self):
        self.run_all(HOSTS)

    def run_all(self, commands):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            samples.write_mnist(folder / "raw", 6200, 50)
            text = folder / "verses.txt"
            verses = (f"{'Ge' if n % 2 else 'Ex'}1:{n} In word {n % 7}\n" for n in range(700))
            text.write_text("".join(verses), encoding="utf-8")
            for command in commands:
                places = {"FOLDER": folder, "RAW": folder / "raw", "TEXT": text}
                for place, path in places.items():
                    command = command.replace(place, str(path))
                module, *options = shlex.split(command)
                with self.subTest(command):
                    done = subprocess.run(
                        [sys.executable, "-m", f"benchmarks.{module}", *options],
                        cwd=ROOT,
                        capture_output=True,
                        text=True,
                        timeout=300,
                        check=False,
                    )
                    self.assertEqual(done.returncode, 0, done.stderr[-2000:])
                    if module not in PICTURES:
                        self.assertRegex(done.stdout, ROW)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
