"""The script that gets Fashion-MNIST uses a package's archives, or downloads them."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import tensorflow as tf

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "get_fashion_mnist.sh"


class GetFashionMnistTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.get_temp_dir())
        # The real script, with a Python that prints its arguments and no way to install packages.
        shutil.copy(SCRIPT, self.folder)
        (self.folder / "venv.sh").write_text("PYTHON=echo\n")
        (self.folder / "packages.sh").write_text(
            'install_packages() {\n  echo "no $*"\n  return 1\n}\n'
        )

    def lines(self, *arguments, raw_dir):
        result = subprocess.run(
            ["bash", str(self.folder / SCRIPT.name), *arguments],
            env={**os.environ, "RAW_DIR": str(raw_dir)},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        return result.stdout.splitlines()

    def test_the_packages_archives_are_used_or_others_downloaded(self):
        command = "-m slim_data.download_and_convert_data --dataset_name fashion_mnist"
        command += " --dataset_dir out --shard True --train_shards 4"
        self.assertEqual(
            self.lines("out", raw_dir=self.folder),
            [f"{command} --raw_dir {self.folder} --source files"],
        )
        self.assertEqual(
            self.lines("out", "--num_processes", "1", raw_dir=self.folder / "none"),
            ["no dataset-fashion-mnist", "== downloading instead", f"{command} --num_processes 1"],
        )
        for source in (["--source", "tfds"], ["--source=tfds"]):
            self.assertEqual(
                self.lines("out", *source, raw_dir=self.folder),
                [f"{command} {' '.join(source)}"],
            )


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
