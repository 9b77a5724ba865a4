"""Flags of all programs with any values are accepted, or one line names the flag and the reason."""

import contextlib
import io
import os
import sys
import tempfile

import pytest
from absl import flags as absl_flags
from hypothesis import strategies as st

from terngrad_tf import phase_2, training
from terngrad_tf.bin import average_snapshots, quickstart, resnet50_imagenet_stage_1, subspace_train
from terngrad_tf.bin.common import (
    cluster_flags,
    distributed_flags,
    experiments,
    flags,
    program,
    tf1_flags,
)
from terngrad_tf.training.runs import trainer
from tests.fuzz import fuzzing

NUMBERS = (
    *("0", "1", "-1", "2", "3", "32", "64", "1e10", "10000000000", "-10000000000", "1000000"),
    *("inf", "-inf", "nan", "1e400", "1e-400", "0.5", "-0.5", "1e300", "9" * 400, "9" * 5000),
    *("0x10", "1_000", "\u0663", "", " ", "+1", "1e", "--1", "-0", "2147483648", "-2147483649"),
    *("9223372036854775807", "18446744073709551616"),
)
TEXTS = (
    *("lenet", "digits", "adam", "auto", "linear", "train", "\0", "\x1b[2J", "\u202e", "x" * 10**5),
    *("../..", "/dev/zero", "[a]", "a*b", "\udcff", "a:1,b:1", "a:99999", ",", "/gpu:0", "cpu"),
    *("True", "False", "/" + "a/" * 3000, "a" * 300),
)
VALUES = st.sampled_from(NUMBERS + TEXTS) | st.text(max_size=8) | st.floats().map(str)


def validate_training(values):
    with training.as_user_error():
        trainer.resolved(tf1_flags.train_config(values))


def validate_distributed(values):
    cluster = flags.config_of(values, distributed_flags.DistributedFlags).resolver()
    if values.async_training:
        distributed_flags.async_config(values)
    else:
        distributed_flags.sync_config(values, cluster)


def validate_evaluation(values):
    tf1_flags.eval_config(values)


def validate_subspace(values):
    with training.as_user_error():
        flags.config_of(values, phase_2.SubspaceConfig)
    cluster_flags.arguments(values)


def validate_average(values):
    with training.as_user_error():
        flags.config_of(values, phase_2.AverageConfig)


# Module, required flags, and validation of the other flags.
PROGRAMS = {
    "mnist_train": (experiments.training("mnist"), [], validate_training),
    "imagenet_train": (experiments.training("imagenet"), [], validate_training),
    "mnist_distributed_train": (
        experiments.distributed_training("mnist"),
        ["--worker_hosts=a:1,b:1"],
        validate_distributed,
    ),
    "mnist_eval": (experiments.evaluation("mnist"), [], validate_evaluation),
    "subspace_train": (subspace_train, ["--pretrained_weight_path=run"], validate_subspace),
    "average_snapshots": (average_snapshots, ["--pretrained_weight_path=run"], validate_average),
}


def names_of(module):
    values = absl_flags.FlagValues()
    module.define_flags(values)
    return sorted(set(values) - {"flagfile"})


@st.composite
def command_lines(draw, names):
    arguments = []
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(names))
        value = draw(VALUES)
        form = draw(
            st.sampled_from(["--{}={}", "--{}={}", "--{}={}", "-{}={}", "--no{}", "--{} {}"])
        )
        if form == "--{} {}":
            arguments += [f"--{name}", value]
        else:
            arguments.append(form.format(name, value))
    return arguments + draw(st.lists(st.text(max_size=9), max_size=1))


class FlagsTest(fuzzing.FuzzTest):
    def call(self, name, define_flags, main, arguments):
        """Runs a program, which must end without error or with one clear line."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = program.run_program("", define_flags, main, [name, *arguments])
        self.assertIn(status, (0, program.STATUS_ERROR))
        if status:
            line = err.getvalue()
            self.assertTrue(line.endswith("\n"))
            self.assert_clear(line[:-1].removeprefix(f"{name}: error: "))
        else:
            self.assertEqual(err.getvalue(), "")

    def test_flags_are_taken_or_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            here = os.getcwd()
            os.chdir(folder)
            self.addCleanup(os.chdir, here)
            for name, (module, needed, validate) in PROGRAMS.items():

                def check(arguments, name=name, module=module, needed=needed, validate=validate):
                    self.call(name, module.define_flags, validate, needed + arguments)

                self.fuzz(f"flags of {name}", command_lines(names_of(module)), check)
            self.assertEqual(os.listdir(folder), [])

    def test_impossible_numbers_are_refused_by_flag(self):
        programs = {
            name: (module.define_flags, needed, validate)
            for name, (module, needed, validate) in PROGRAMS.items()
        }
        for name, module in (
            ("quickstart", quickstart),
            ("resnet50_imagenet_stage_1", resnet50_imagenet_stage_1),
        ):
            programs[name] = (
                module.define_flags,
                ["--data_dir=/none"][: name != "quickstart"],
                module,
            )
        for name, (define_flags, needed, main) in programs.items():
            values = absl_flags.FlagValues()
            define_flags(values)
            for flag in sorted(values):
                if values[flag].flag_type() not in ("int", "float"):
                    continue
                for number in ("1e10", "10000000000", "-10000000000", "inf", "nan", "9" * 400):
                    given = [name, *needed, f"--{flag}={number}"]
                    err = io.StringIO()
                    with contextlib.redirect_stderr(err):
                        if callable(main):
                            status = program.run_program("", define_flags, main, given)
                        else:
                            status = main.main(given)
                    self.assertEqual(status, 2, (name, flag, number))
                    self.assertIn(flag, err.getvalue(), (name, flag, number))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
