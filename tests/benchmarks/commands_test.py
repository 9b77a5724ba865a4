"""Each command that README.md and docs/results/ name for figures runs, in its shortest form."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import pytest

from tests.slim_data import samples

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Shortest forms, by module. FOLDER stands for an empty folder, and RAW for 300 images.
ALONE = {
    "codec": "--elements=65536 --rounds=1",
    "emulation": "--net=lenet --replicas=1,2 --batch_sizes=16 --steps=2 --rounds=1",
    "input": "--rounds=1 --photos=64 --images=1024 --only=mnist",
    "many_processes": "--processes=2 --steps=2",
    "sparsity": "--raw_dir=RAW --replicas=2 --clip_factors=0 --steps=3 --told_steps=1",
    "subspace.pca": "--weights=1000 --rounds=1 --snapshots=5 --components=3",
    "subspace.step": "--nets=lenet --batch_sizes=16 --steps=2",
}
# These make hosts of network namespaces, as root.
HOSTS = {
    "cluster": "--models=digits --hosts=2 --rates=none --modes=no_exchange --rounds=1"
    " --seconds=1 --json=FOLDER/cluster.json",
    "overlap": "--rate=none --layers=2 --units=64 --batch_size=8",
    "scaling": "--workers=2,4 --hosts= --rounds=1",
    "wire": "--hosts=2 --rates=none --elements=4096 --rounds=1",
}
# Tests of these, in other files.
ELSEWHERE = {
    "chaos": "bin/chaos_test.py",
    "cluster.picture": "docs/readme_test.py",
    "compare": "benchmarks/compare_test.py",
    "embeddings": "benchmarks/embeddings_results_test.py",
    "fidelity": "benchmarks/fidelity_test.py",
    "fidelity.budget_picture": "benchmarks/fidelity_test.py",
    "fidelity.default": "benchmarks/fidelity_test.py",
    "fidelity.summary": "benchmarks/fidelity_test.py",
    "language": "benchmarks/language_test.py",
    "local_steps": "benchmarks/local_steps_results_test.py",
    "time_to_accuracy": "benchmarks/time_to_accuracy_test.py",
}
# Minutes to hours in any form. The tests of the programs that they start stand for them.
TOO_LONG = {"accuracy", "large", "soak", "subspace", "subspace.residual"}


class BenchmarkCommandsTest(unittest.TestCase):
    def test_each_command_of_a_figure_is_listed(self):
        named = set()
        for path in (ROOT / "README.md", *(ROOT / "docs/results").glob("*.md")):
            text = path.read_text(encoding="utf-8")
            named |= set(re.findall(r"python -m benchmarks\.([a-z_]+(?:\.[a-z_]+)?)", text))
        self.assertEqual(named - {*ALONE, *HOSTS, *ELSEWHERE}, TOO_LONG | {"first_step"} & named)
        for module, test in ELSEWHERE.items():
            text = (ROOT / "tests" / test).read_text(encoding="utf-8")
            self.assertIn(module.split(".")[0], text)

    @pytest.mark.long
    def test_commands_of_one_machine_run(self):
        self.run_all(ALONE)

    @pytest.mark.long
    @unittest.skipUnless(sys.platform == "linux" and os.geteuid() == 0, "makes namespaces")
    def test_commands_of_several_hosts_run(self):
        self.run_all(HOSTS)

    def run_all(self, commands):
        with tempfile.TemporaryDirectory() as folder:
            raw = pathlib.Path(folder, "raw")
            samples.write_mnist(raw, 300, 50)
            for module, options in commands.items():
                with self.subTest(module):
                    options = options.replace("RAW", str(raw)).replace("FOLDER", folder)
                    done = subprocess.run(
                        [sys.executable, "-m", f"benchmarks.{module}", *options.split()],
                        cwd=ROOT,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT,
                        text=True,
                        timeout=300,
                        check=False,
                    )
                    self.assertEqual(done.returncode, 0, done.stdout[-2000:])
                    self.assertRegex(done.stdout, r"\d")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
