"""Programs parse flags, print help, and report user errors in one line."""

import contextlib
import errno
import importlib
import io
import os
import pathlib
import subprocess
import sys
from xml.etree import ElementTree

import pytest
import tensorflow as tf
from absl import flags as absl_flags

import slim_data
import terngrad_tf
from terngrad_tf import distribute, models, training
from terngrad_tf.bin import (
    average_snapshots,
    export,
    mnist_eval,
    mnist_train,
    quickstart,
    report,
    resnet50_imagenet_stage_1,
    subspace_train,
)
from terngrad_tf.bin.common import experiments, program
from tests.bin import samples

DATASETS = ("mnist", "cifar10", "imagenet", "flowers")
TRAINING = {f"{name}_train": experiments.training(name) for name in DATASETS}
DISTRIBUTED = {
    f"{name}_distributed_train": experiments.distributed_training(name)
    for name in ("mnist", "cifar10", "imagenet")
}
EVALUATION = {f"{name}_eval": experiments.evaluation(name) for name in DATASETS}
PHASES = {
    "resnet50_imagenet_stage_1": resnet50_imagenet_stage_1,
    "subspace_train": subspace_train,
    "average_snapshots": average_snapshots,
}
OTHERS = {"export": export, "quickstart": quickstart, "report": report}
PROGRAMS = {**TRAINING, **DISTRIBUTED, **EVALUATION, **PHASES, **OTHERS}


def call(main, *arguments):
    """Returns exit status, standard output and standard error of a program."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(arguments))
    return status, out.getvalue(), err.getvalue()


def parse(module, *arguments):
    """Returns the parsed flags of a program."""
    parsed = []
    status = program.run_program("", module.define_flags, parsed.append, ["program", *arguments])
    assert status == 0
    return parsed[0]


class ProgramTest(tf.test.TestCase):
    def assert_refused(self, outcome, pattern, status=2):
        code, _, err = outcome
        self.assertRegex(err, pattern)
        self.assertEqual(err.count("\n"), 1, msg=err)
        self.assertEqual(code, status)

    def test_help_lists_every_flag(self):
        for name, module in PROGRAMS.items():
            values = absl_flags.FlagValues()
            module.define_flags(values)
            status, out, err = call(module.main, name, "--help")
            self.assertEqual((status, err), (0, ""))
            for flag in values:
                self.assertRegex(out, f"--(\\[no\\])?{flag}:")

    def test_the_conventions_of_absl_hold(self):
        _, help_text, _ = call(mnist_train.main, "mnist_train", "--help")
        for name, module in PROGRAMS.items():
            status, out, err = call(module.main, name, "--version")
            self.assertEqual((status, out, err), (0, f"{name} {terngrad_tf.__version__}\n", ""))
            status, out, err = call(module.main, name, "--helpxml")
            self.assertEqual((status, err), (0, ""))
            values = absl_flags.FlagValues()
            module.define_flags(values)
            told = {flag.findtext("name") for flag in ElementTree.fromstring(out).iter("flag")}
            self.assertContainsSubset(set(values), told)
        for flag in ("--helpshort", "--helpfull", "-h"):
            self.assertEqual(call(mnist_train.main, "mnist_train", flag), (0, help_text, ""))

    def test_control_characters_are_escaped_and_long_values_are_cut(self):
        for argument in ("\x1b[2J\u202e", "x" * 10**5, "--net=\x1b[2J", f"--seed={'9' * 5000}"):
            status, _, err = call(mnist_train.main, "mnist_train", argument, "--data_dir=/none")
            self.assertEqual((status, err.count("\n")), (2, 1))
            self.assertTrue(err.rstrip("\n").isprintable(), ascii(err))
            self.assertLess(len(err), 1100)
        outcome = call(mnist_train.main, "mnist_train", "--train_dir=/tmp/\udcff")
        self.assert_refused(outcome, r"arguments must be text in UTF-8.*'--train_dir=/tmp/\\udcff'")

    def test_the_status_is_right_on_a_full_disk(self):
        self.check_status_on_a_full_disk("--bogus")

    @pytest.mark.slow
    def test_the_status_of_a_user_error_is_right_on_a_full_disk(self):
        self.check_status_on_a_full_disk("--data_dir=/none")

    def check_status_on_a_full_disk(self, flag):
        full = self.enter_context(open("/dev/full", "w"))
        command = samples.command("mnist_train", flag)
        ended = subprocess.run(command, stdout=full, stderr=full, check=False)
        self.assertEqual(ended.returncode, 2)

    def test_flag_files_are_read_without_waiting_for_pipes(self):
        folder = pathlib.Path(self.get_temp_dir())
        (folder / "flags").write_text("--seed=7\n")
        self.assertEqual(parse(mnist_train, f"--flagfile={folder}/flags").seed, 7)
        os.mkfifo(folder / "pipe")
        (folder / "binary").write_bytes(b"\xff\xfe")
        for name, rule in (
            ("pipe", "regular file"),
            ("none", "No such file"),
            ("binary", "decode"),
        ):
            for flag in ([f"--flagfile={folder}/{name}"], ["--flagfile", f"{folder}/{name}"]):
                self.assert_refused(call(mnist_train.main, "x", *flag), rule)

    def test_help_of_training_names_every_network(self):
        _, out, _ = call(mnist_train.main, "mnist_train", "--help")
        self.assertRegex(" ".join(out.split()), f"--net: Network: {', '.join(models.available())}")

    def test_an_unknown_flag_is_refused_with_the_nearest_name(self):
        for name, module in PROGRAMS.items():
            wrong, right = (
                ("ouptut", "output")
                if name in ("export", "report")
                else ("batch_sise", "batch_size")
            )
            outcome = call(module.main, f"/usr/bin/{name}.py", f"--{wrong}=3")
            self.assert_refused(outcome, f"^{name}: error: .*'{wrong}'.*mean: {right}")

    def test_values_of_the_wrong_type_and_stray_words_are_refused(self):
        self.assert_refused(call(mnist_train.main, "x", "--seed=one"), "--seed=one")
        self.assert_refused(call(mnist_train.main, "x", "word"), "Received: 'word'")

    def test_boolean_flags_take_a_value_after_a_space_and_a_no_before_the_name(self):
        self.assertFalse(parse(mnist_train).quantize_logits)
        for given in (["--quantize_logits", "True"], ["--quantize_logits"]):
            self.assertTrue(parse(mnist_train, *given, "--seed", "5").quantize_logits)
        self.assertTrue(parse(mnist_eval).restore_avg_var)
        for given in (["--norestore_avg_var"], ["--restore_avg_var", "False"]):
            self.assertFalse(parse(mnist_eval, *given, "--run_once", "True").restore_avg_var)

    def test_errors_end_with_their_status_and_one_line(self):
        errors = {
            training.UserError("two\nlines"): (2, "^x: error: two lines$"),
            slim_data.DataError("no data"): (2, "^x: error: no data$"),
            training.DivergedError("the loss", 7, "c-6"): (1, "at step 7: .*good checkpoint: c-6"),
            training.PreemptedError("worker 1 (b:2)", 7): (
                75,
                "step 7, .*: worker 1 .b:2. was told",
            ),
            distribute.PeerError("lost worker 1"): (
                3,
                r"^x: error: lost worker 1 \[terngrad explain E11\]$",
            ),
            OSError(errno.ENOSPC, "No space left", "/run/a"): (4, "x: error: /run/a cannot be wr"),
            KeyboardInterrupt(): (130, "interrupted"),
            RuntimeError("ORIGINAL A REPLACED BY KeyboardInterrupt: "): (130, "interrupted"),
        }
        for error, (status, pattern) in errors.items():

            def fail(values, error=error):
                raise error

            def main(argv, fail=fail):
                return program.run_program("", lambda values: None, fail, argv)

            self.assert_refused(call(main, "x"), pattern, status)

    def test_nothing_shows_that_tensorflow_loads(self):
        result = subprocess.run(
            [sys.executable, "-m", mnist_train.__name__, "--data_dir=/nonexistent"],
            env={key: os.environ[key] for key in {*os.environ} - {"TF_CPP_MIN_LOG_LEVEL"}},
            capture_output=True,
            text=True,
        )
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, r"\A\S*mnist_train: error: No train files.*\n\Z")

    def test_threads_write_nothing_after_the_last_line_of_a_program(self):
        # TensorFlow's threads write directly to standard error until the process is gone.
        source = """if True:
            import os, threading, time
            from terngrad_tf import training
            from terngrad_tf.bin.common import program

            def chatter():
                while True:
                    os.write(2, b"E0000 native.cc:1] chatter\\n")
                    time.sleep(0.0001)

            def body(values):
                print("not flushed")
                threading.Thread(target=chatter, daemon=True).start()
                raise training.UserError("this is the reason")

            program.Program("", lambda values: None, body).run()
        """
        result = subprocess.run(
            [sys.executable, "-c", source],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        *before, last = result.stdout.splitlines()
        self.assertEqual((result.returncode, last), (2, "-c: error: this is the reason"))
        self.assertIn("not flushed", before)

    def test_an_error_of_the_program_itself_keeps_its_traceback(self):
        def fail(values):
            raise ValueError("a bug")

        with self.assertRaisesRegex(ValueError, "a bug"):
            program.run_program("", lambda values: None, fail, ["x"])

    def test_programs_take_the_backend_of_keras_that_they_need(self):
        # PyTorch is not installed here, so Keras would fail with that backend.
        result = subprocess.run(
            [sys.executable, "-m", "terngrad_tf.bin.mnist_train", "--data_dir=/none"],
            env=dict(os.environ, KERAS_BACKEND="torch"),
            capture_output=True,
            text=True,
        )
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertRegex(result.stderr, "mnist_train: error: No train files .*/none")

    def test_each_program_has_the_defaults_of_its_data_set(self):
        for name, net, subset in (
            ("mnist", "lenet", "test"),
            ("cifar10", "cifar10_alexnet", "test"),
            ("imagenet", "alexnet", "validation"),
            ("flowers", "alexnet", "validation"),
        ):
            train = importlib.import_module(f"terngrad_tf.bin.{name}_train")
            evaluate = importlib.import_module(f"terngrad_tf.bin.{name}_eval")
            values = parse(train)
            self.assertEqual((values.dataset_name, values.net), (name, net))
            self.assertEqual(parse(evaluate).subset, subset)
            self.assertIn(subset, slim_data.info(name).splits)

    def test_errors_name_argument_rule_and_value(self):
        folder = pathlib.Path(self.get_temp_dir())
        data = ["--data_dir", str(folder / "data"), "--dataset_name", "digits"]
        slim_data.convert("digits", str(folder / "data"))
        (folder / "file").write_text("x")
        (folder / "foreign").mkdir()
        (folder / "foreign" / "thesis.tex").write_text("x")
        (folder / "empty").mkdir()
        for arguments, pattern in (
            (["--num_nodes", "0"], "`num_nodes` must be .*num_nodes=0"),
            (["--num_nodes=-2"], "`num_nodes` must be .*num_nodes=-2"),
            (["--num_nodes=64"], "`num_nodes` must be .*num_nodes=64, batch_size=32"),
            (["--save_tower=1"], "`save_tower` must be .*save_tower=1"),
            (["--save_tower=-2"], "`save_tower` must be .*save_tower=-2"),
            (["--nouse_encoding"], "`use_encoding` must be True.*use_encoding=False"),
            (["--num_nodes=5"], "`batch_size` must be divisible .*num_nodes=5"),
            (["--net=lennet"], "`net` must be one of .*'lennet'.*mean 'lenet'"),
            (["--net=alexnet", "--image_size=28"], "`image_size` must be at least 57 .*=28"),
            (["--dropout_keep_prob=0"], "`dropout_keep_prob` must be .*=0"),
            (["--optimizer=momentun"], "`optimizer` must be one of .*mean 'momentum'"),
            (["--learning_rate_decay_type=liner"], "decay_type` must be one of .*'linear'"),
            (["--rounding=odd"], "`rounding` must be .*odd"),
            (["--wire=barbed"], "`wire` must be .*barbed"),
            (["--grad_bits=9"], "`grad_bits` must be .*9"),
            (["--bits_per_element=0.3"], "`bits_per_element` must be .*=32.*grad_bits=1 takes"),
            (["--wire=sparse", "--clip_factor=0"], "`wire` must be .*=32; grad_bits=1 takes"),
            (["--clip_factor=-1"], "`clip_factor` must .*-1"),
            (["--dataset_name=minst"], "`dataset_name` must be one of .*'minst'"),
            (["--subset=validation"], "`subset` must be one of .*'validation'"),
            ([f"--data_dir={folder}/none"], "No train files .*none"),
            ([f"--data_dir={folder}/empty"], "No train files .*empty"),
            ([f"--train_dir={folder}/file"], "`train_dir` must be .*file"),
            ([f"--train_dir={folder}/foreign"], "`train_dir` must be .*'thesis.tex'"),
        ):
            train_dir = ["--train_dir", str(folder / "run")]
            outcome = call(mnist_train.main, "mnist_train", *data, *train_dir, *arguments)
            self.assert_refused(outcome, f"^mnist_train: error: .*{pattern}")
        self.assertFalse((folder / "run").exists())


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
