"""The command `terngrad`: its subcommands, options from a file, and shell completion."""

import contextlib
import importlib
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import pytest

from slim_data.common.version import __version__
from terngrad_tf.bin.command import check, completion, config_file, terngrad
from terngrad_tf.bin.command.commands import ALL
from terngrad_tf.bin.command.options import options_of

FILE = """\
# Ours.
[run]
hosts = ["host1", "host2"]  # two
max_restarts = 3
sync = true

[run.env]
A = "1"
B = "x y"

[mnist_train]
grad_bits = 1
clip_factor = 2.5
rotate = false
benchmark_mode = true
net = "lenet"

["convert folder"]
skip_bad = true
"""


class TerngradTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)

    def call(self, *words):
        """Returns exit status, standard output and standard error of the command."""
        out, err, before = io.StringIO(), io.StringIO(), sys.argv
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = terngrad.main(["terngrad", *map(str, words)])
            except SystemExit as ending:
                status = ending.code
            finally:
                sys.argv = before
        return status, out.getvalue(), err.getvalue()

    def assert_refused(self, pattern, *words):
        status, _, err = self.call(*words)
        self.assertEqual((status, err.count("\n")), (2, 1), err)
        self.assertRegex(err, pattern)

    def test_help_names_every_subcommand_and_each_has_its_own(self):
        status, text, _ = self.call("--help")
        self.assertEqual(status, 0)
        for name in ALL:
            with self.subTest(name):
                self.assertRegex(text, rf"(?m)^  {name}  +[A-Z].*\.$")
                status, out, err = self.call(*name.split(), "--help")
                self.assertIn(status, (0, None))
                self.assertIn("--", out)
                self.assertEqual(err, "")
        self.assertEqual(self.call("--version")[1], f"terngrad {__version__}\n")
        self.assert_refused("no command 'repot' .did you mean 'report'", "repot")

    def test_a_closed_output_ends_commands_without_a_traceback(self):
        # As in `terngrad explain --list | head -1`.
        for words in ("--help", "explain --list", "mnist_train --help"):
            with self.subTest(words):
                read, write = os.pipe()
                os.close(read)
                with os.fdopen(write) as output:
                    ended = subprocess.run(
                        [sys.executable, "-m", "terngrad_tf", *words.split()],
                        stdout=output,
                        stderr=subprocess.PIPE,
                        text=True,
                    )
                self.assertEqual((ended.returncode, ended.stderr), (141, ""))

    def test_letters_that_the_output_lacks_are_escaped(self):
        path = pathlib.Path(tempfile.mkdtemp(), "a.toml")
        self.addCleanup(shutil.rmtree, path.parent)
        path.write_text('[mnist_train]\ndata_dir = "\u732b"\n', "utf-8")
        shown = subprocess.run(
            [sys.executable, "-m", "terngrad_tf", "--config", path, "config"],
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
            stdout=subprocess.PIPE,
            check=True,
        )
        self.assertIn(b'data_dir = "\\u732b"', shown.stdout)

    def test_an_interrupted_command_ends_with_one_line(self):
        with mock.patch.object(check, "check", side_effect=KeyboardInterrupt):
            status, _, err = self.call("check", "-H", "host1,host2")
        self.assertEqual((status, err), (130, "terngrad check: interrupted\n"))

    def test_messages_name_the_subcommand(self):
        for name in ("convert", "convert folder", "split", "find_records"):
            self.assert_refused(f"^terngrad {name}: error: ", *name.split(), "--bogus")
        self.assertRegex(self.call("mnist_train", "--help")[1], "^terngrad mnist_train: ")

    def test_options_of_each_subcommand_are_known(self):
        for name in ALL:
            with self.subTest(name):
                options = options_of(name)
                self.assertFalse(set(options) & {"help", "helpxml", "version", "flagfile"})
        self.assertTrue({"hosts", "np", "max-restarts", "sync"} <= set(options_of("run")))
        self.assertNotIn("module", options_of("run"))
        self.assertTrue(options_of("run")["sync"].is_switch)
        self.assertTrue(options_of("mnist_train")["rotate"].can_be_off)
        self.assertEqual(
            set(options_of("convert folder")),
            {"validation", "seed", "skip_bad", "num_processes"}
            | {f"{split}_shards" for split in ("train", "validation")},
        )

    def test_a_file_gives_options(self):
        tables = config_file.parse("x", FILE.encode())
        for name, expected in (
            (
                "run",
                ["--hosts=host1,host2", "--max-restarts=3", "--sync", "--env=A=1", "--env=B=x y"],
            ),
            (
                "mnist_train",
                ["--grad_bits=1", "--clip_factor=2.5", "--norotate", "--benchmark_mode"]
                + ["--net=lenet"],
            ),
            ("convert folder", ["--skip_bad"]),
        ):
            self.assertEqual(config_file.arguments("x", tables[name], name), expected)
        # A list is one value, unless the option may be given several times.
        table = {"hosts": ["a", "b"], "each": ["DATA=/a", "DATA=/b"]}
        words = ["--hosts=a,b", "--each=DATA=/a", "--each=DATA=/b"]
        self.assertEqual(config_file.arguments("x", table, "run"), words)

    def test_the_file_in_the_working_folder_is_read_and_the_command_line_wins(self):
        pathlib.Path("terngrad.toml").write_text("[validate]\ndataset_name = 'mnist'\n")
        pathlib.Path("other.toml").write_text("[validate]\ndataset_name = 'cifar10'\n")
        for words, name in (
            (["validate"], "mnist"),
            (["--config", "other.toml", "validate"], "cifar10"),
            (["validate", "--dataset_name", "digits"], "digits"),
        ):
            status, _, err = self.call(*words, "--dataset_dir", self.folder)
            told, *_, last = err.splitlines()
            self.assertRegex(told, "^terngrad: with --dataset_name=.* of .*\\.toml$")
            self.assertEqual(status, 2)
            self.assertIn(f"No train files of {name}", last)
        # A command without a table logs no options.
        self.assertEqual(self.call("export", "--version")[2], "")

    def test_bad_files_are_refused_in_one_line(self):
        for text, pattern in (
            ("x = 1", "'x' must be in a table such as"),
            ("[run", "x.toml must be TOML"),
            ("\xff", "x.toml must be TOML"),
            ("[rn]", r"no command \[rn\] \(did you mean 'run'\?\)"),
            ("[mnist_train]\nbatch_sise = 3", r"\[mnist_train\] has no option 'batch_sise' .*size"),
            ("[mnist_train]\nbatch_size = true", "batch_size must be given a value"),
            ("[mnist_train]\nrotate = 1", "rotate must be true or false"),
            ("[mnist_train]\nmodule = 'x'", "no option 'module'"),
            ("[mnist_train.seed]\na = 1", "seed must be one value. Received: a table"),
            ("[explain]\nlist = true", r"\[explain\] must not be given: terngrad explain takes"),
            ("[config]\nfile = 'x'", r"\[config\] must not be given"),
            ("[completion]", r"\[completion\] must not be given"),
            (
                "[mnist_train]\nmax-steps = 3\nmax_steps = 4",
                "must have max_steps once. Received: max-steps and max_steps",
            ),
        ):
            with self.subTest(text):
                pathlib.Path("x.toml").write_text(text, encoding="latin-1")
                status, _, err = self.call("--config", "x.toml", "mnist_train")
                self.assertEqual(status, 2)
                self.assertRegex(err.splitlines()[-1], pattern)
        self.assert_refused("nowhere: No such file", "--config", "nowhere", "run")
        self.assert_refused("must be followed by a file", "--config")

    def test_config_writes_one_table_and_keeps_the_others(self):
        pathlib.Path("terngrad.toml").write_text(FILE)
        words = ["--data_dir", "/data/ü", "--norotate", "--batch_size=64", "--clip_factor", "0.5"]
        status, out, err = self.call("config", "mnist_train", *words, "--benchmark_mode")
        self.assertEqual((status, out), (0, "terngrad.toml: 5 options of terngrad mnist_train\n"))
        text = pathlib.Path("terngrad.toml").read_text(encoding="utf-8")
        new = (
            '[mnist_train]\ndata_dir = "/data/ü"\nrotate = false\nbatch_size = 64\n'
            "clip_factor = 0.5\nbenchmark_mode = true\n\n"
        )
        begin, _, rest = FILE.partition("[mnist_train]")
        self.assertEqual(text, begin + new + rest[rest.index('["convert') :])
        self.assertEqual(self.call("config")[1], text)
        for words, pattern in (
            (["mnist_train", "--batch_sise", "3"], "no option '--batch_sise'.*--batch_size"),
            (["mnist_train", "word"], "no option 'word'"),
            (["mnist_train", "--help"], "terngrad mnist_train --help tells its options"),
            (["mnist_train", "--seed"], "--seed must be followed by a value"),
            (["mnist_train", "--rotate=2"], "--rotate must be True or False"),
            (["mnist_trian", "--seed", "3"], "no command 'mnist_trian' .*mnist_train"),
            # Rewriting the table would lose its sub-table.
            (["run", "-H", "a,b"], r"cannot be changed, as \[run\]"),
            (["explain", "--list"], r"terngrad.toml: \[explain\] must not be given"),
        ):
            with self.subTest(words):
                self.assert_refused(f"^terngrad config: error: .*{pattern}", "config", *words)
        self.assertEqual(pathlib.Path("terngrad.toml").read_text(encoding="utf-8"), text)
        self.call("config", "--file", "new.toml", "run", "-H", "a,b", "--np", "007", "--sync")
        table = config_file.read("new.toml")["run"]
        self.assertEqual(table, {"hosts": "a,b", "np": "007", "sync": True})
        with mock.patch.dict(os.environ, HOME=os.getcwd()):
            self.call("config", "--file=~/new.toml", "run", "--np", "3")
        self.assertEqual(config_file.read("new.toml")["run"]["np"], 3)
        error = "^terngrad config: error: none/x.toml: No such file"
        self.assert_refused(error, "config", "--file", "none/x.toml", "run", "--np", "2")

    def test_config_writes_every_value_of_an_option_that_repeats(self):
        for variables in (["A=1", "B=x=y", "C"], ["A=1"]):
            words = [word for variable in variables for word in ("--env", variable)]
            self.call("config", "run", *words, "--each=D=1", "--each=D=2")
            written = config_file.read("terngrad.toml")["run"]
            self.assertEqual(written, {"env": variables, "each": ["D=1", "D=2"]})

    def test_config_takes_a_switch_with_a_value_after_a_space(self):
        for words, expected in (
            (["--fine_tune", "True", "--seed", "2"], {"fine_tune": True, "seed": 2}),
            (["--rotate", "false", "--benchmark_mode"], {"rotate": False, "benchmark_mode": True}),
        ):
            self.call("config", "mnist_train", *words)
            self.assertEqual(config_file.read("terngrad.toml")["mnist_train"], expected)

    def test_config_keeps_comments_of_head_and_next_table(self):
        text = "[run]\nnp = 2\n# One.\nport = 3\n\n# Two.\n[validate]\n# Three.\n"
        for before, after in (
            (text, "[run]\nnp = 4\n\n# Two.\n[validate]\n# Three.\n"),
            ("[run]  # Zero.\nnp = 2\n", "[run]  # Zero.\nnp = 4\n"),
            ("[run]", "[run]\nnp = 4"),
            ("", "[run]\nnp = 4\n"),
        ):
            pathlib.Path("terngrad.toml").write_text(before)
            self.assertEqual(self.call("config", "run", "--np", "4")[0], 0)
            self.assertEqual(pathlib.Path("terngrad.toml").read_text(), after)

    def test_config_refuses_a_table_that_is_not_a_head_and_plain_lines(self):
        for text in ("[ run ]\nnp = 2\n", "run.np = 2\n"):
            pathlib.Path("terngrad.toml").write_text(text)
            refusal = r"terngrad.toml cannot be changed, as \[run\] is not a table of plain lines"
            self.assert_refused(refusal, "config", "run", "--np", "3")
            self.assertEqual(pathlib.Path("terngrad.toml").read_text(), text)

    def test_config_of_another_file_reads_and_writes_that_file(self):
        pathlib.Path("terngrad.toml").write_text("[run]\nnp = 2\n")
        self.call("--config", "other.toml", "config", "run", "--np", "3")
        self.assertEqual(pathlib.Path("other.toml").read_text(), "[run]\nnp = 3\n")
        self.assertEqual(self.call("--config", "other.toml", "config")[1], "[run]\nnp = 3\n")
        self.assertEqual(pathlib.Path("terngrad.toml").read_text(), "[run]\nnp = 2\n")

    def test_words_are_completed(self):
        for typed, expected in (
            (["mnist_t"], ["mnist_train"]),
            (["convert", ""], ["folder"]),
            (["convert", "folder", "--sk"], ["--skip_bad"]),
            (["mnist_train", "--noro"], ["--norotate"]),
            (["mnist_train", "--data_dir", ""], []),
            (["run", "--max"], ["--max-restarts"]),
            (["run", "train.py", "--max"], []),
            (["config", "mnist_train", "--grad"], ["--grad_bits"]),
            (["--config", "x.toml", "expo"], ["export"]),
            (["none", "--x"], []),
        ):
            self.assertEqual(completion.complete(typed), expected, typed)
        self.assertEqual(completion.complete([]), list(dict.fromkeys(n.split()[0] for n in ALL)))

    def test_shells_complete(self):
        scripts = {
            "bash": 'eval "$(terngrad completion bash)"; COMP_WORDS=(terngrad mnist_train --grad);'
            ' COMP_CWORD=2; _terngrad; echo "${COMPREPLY[@]}"',
            "zsh": 'compdef() {}; compadd() { echo "$2" }; eval "$(terngrad completion zsh)";'
            " words=(terngrad mnist_train --grad); CURRENT=3; _terngrad",
            "fish": "terngrad completion fish | source; complete -C 'terngrad mnist_train --grad'",
        }
        command = self.folder / "terngrad"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m terngrad_tf "$@"\n')
        command.chmod(0o755)
        environment = {
            **os.environ,
            "HOME": str(self.folder),
            "PATH": os.pathsep.join([str(self.folder), os.environ["PATH"]]),
        }
        for shell, script in scripts.items():
            if shutil.which(shell):
                done = subprocess.run(
                    [shell, "-c", script],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                self.assertEqual(done.stdout.strip(), "--grad_bits", (shell, done.stderr))

    def test_modules_of_subcommands_match_the_table(self):
        for name, command in ALL.items():
            module = importlib.import_module(command.module)
            self.assertEqual(command.takes_arguments, hasattr(module, "parser"), name)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
