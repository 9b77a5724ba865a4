"""What `python -m terngrad_tf.bin.jobs.launch` runs on other hosts, and what it refuses."""

import contextlib
import io
import sys
import unittest

import pytest

from terngrad_tf.bin.jobs import launch

GIVEN = (
    "--worker_host=a:1",
    "--worker_device=-",
    "--data_dir=/data",
    "--workspace=/home/me/my checkout",
    "--worker_script=run.sh",
    "--experiment_id=one",
)


def commands(*more):
    return launch.commands(launch.parser().parse_args([*GIVEN, *more]))


class LaunchTest(unittest.TestCase):
    def test_a_job_runs_in_the_workspace(self):
        ((description, command),) = commands()
        self.assertEqual(description, "worker 0 on a")
        self.assertEqual(command[-3:-1], ["--", "a"])
        self.assertRegex(command[-1], "^cd -- '/home/me/my checkout' && exec bash run.sh '' a:1 ")

    def test_what_is_no_path_from_the_root_is_refused(self):
        for workspace in ("-", "", "~", "checkout", "../checkout", " /checkout", "-/x"):
            with self.assertRaisesRegex(ValueError, "^`workspace` must start with /. Received: '"):
                commands(f"--workspace={workspace}")
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as told:
            commands("--workspace=--")
        self.assertRegex(told.getvalue(), "\nlaunch: error: argument --workspace: .*\n$")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
