"""The script that makes the virtual environment, interrupted, with a small package."""

import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "venv.sh"
NUM_MODULES = 300
TIMEOUT_SECONDS = 120
# A project that needs the package below and no build tool.
BACKEND = """
import zipfile

def build_editable(folder, settings=None, metadata=None):
    file = "project-1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{file}", "w") as wheel:
        info = "project-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA",
            "Metadata-Version: 2.1\\nName: project\\nVersion: 1.0\\n"
            "Provides-Extra: dev\\nRequires-Dist: needed\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        names = [*wheel.namelist(), f"{info}/RECORD"]
        wheel.writestr(f"{info}/RECORD", "".join(f"{name},,\\n" for name in names))
    return file
"""
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def write_wheel(folder):
    """Writes a package of many modules; pip unpacks its metadata first."""
    with zipfile.ZipFile(folder / "needed-1.0-py3-none-any.whl", "w") as wheel:
        info = "needed-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: needed\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        for number in range(NUM_MODULES):
            wheel.writestr(f"needed/m{number}.py", "pass;" * 100)
        names = [*wheel.namelist(), f"{info}/RECORD"]
        wheel.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in names))


class VenvTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.root = self.folder / "a checkout"
        (self.root / "scripts").mkdir(parents=True)
        shutil.copy(SCRIPT, self.root / "scripts")
        (self.root / "backend.py").write_text(BACKEND, "utf-8")
        (self.root / "pyproject.toml").write_text(PYPROJECT, "utf-8")
        write_wheel(self.folder)

    def start(self, **values):
        process = subprocess.Popen(
            ["bash", "-c", 'source "$1/scripts/venv.sh"; echo "PYTHON=$PYTHON"', "-", self.root],
            env={
                **os.environ,
                "PYTHON3": sys.executable,
                "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": str(self.folder),
                "PIP_NO_CACHE_DIR": "1",
                "TERNGRAD_VENV": "",
                **values,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def run_script(self, **values):
        """Returns (exit status, standard output, standard error)."""
        process = self.start(**values)
        output, errors = process.communicate(timeout=TIMEOUT_SECONDS)
        return process.returncode, output, errors

    def interrupt(self, process, number):
        """Sends a signal to the script's process group, as Ctrl-C does, and waits for the end."""
        os.killpg(process.pid, number)
        return process.communicate(timeout=TIMEOUT_SECONDS)

    def unpacked(self):
        """Returns the names of the installed modules."""
        return {path.stem for path in self.root.glob(".venv/lib/*/site-packages/needed/*.py")}

    def wait_until_half_unpacked(self, process):
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not self.unpacked():
            self.assertIsNone(process.poll(), "the script ended first")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.001)

    def check_complete(self):
        status, output, errors = self.run_script()
        self.assertEqual(status, 0, errors)
        python = self.root / ".venv" / "bin" / "python"
        self.assertIn(f"PYTHON={python}", output)
        imports = "; ".join(f"import needed.m{number}" for number in range(NUM_MODULES))
        subprocess.run([python, "-I", "-c", imports], check=True)
        return errors

    @pytest.mark.slow
    def test_an_installation_killed_within_a_package_is_made_anew(self):
        process = self.start()
        self.wait_until_half_unpacked(process)
        _, errors = self.interrupt(process, signal.SIGKILL)
        self.assertIn("installing", errors)
        self.assertLess(len(self.unpacked()), NUM_MODULES)
        self.assertIn("was interrupted; making it anew", self.check_complete())
        # A second run changes no files.
        self.assertEqual(self.check_complete(), "")
        self.assertFalse((self.root / ".venv.unfinished").exists())

    @pytest.mark.slow
    def test_an_installation_interrupted_at_any_moment_is_made_anew(self):
        process = self.start()
        time.sleep(random.uniform(0.0, 4.0))
        self.interrupt(process, random.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL]))
        self.check_complete()

    @pytest.mark.slow
    def test_a_foreign_environment_is_not_cleared(self):
        own = self.folder / "own"
        subprocess.run([sys.executable, "-m", "venv", own], check=True)
        (own / "kept").touch()
        values = {"TERNGRAD_VENV": str(own)}
        status, _, _ = self.run_script(**values, PIP_FIND_LINKS=str(self.root))
        self.assertEqual(status, 1)
        status, _, errors = self.run_script(**values)
        self.assertEqual(status, 1)
        self.assertEqual(errors.count("\n"), 1)
        self.assertIn(f"remove {own}.unfinished", errors)
        (self.folder / "own.unfinished").unlink()
        self.assertEqual(self.run_script(**values)[0], 0)
        self.assertTrue((own / "kept").exists())


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
