"""Messages that end a program have a heading in docs/troubleshooting.md; `explain` prints it."""

import contextlib
import errno
import functools
import io
import os
import re
import sys
import unittest

import pytest

from slim_data import DataError
from terngrad_tf.bin.command import explain
from terngrad_tf.common import addresses, messages, preemption
from terngrad_tf.distribute.communication import failures, peers
from terngrad_tf.distribute.elastic.join import NewcomersError
from terngrad_tf.launcher import nodes, tasks
from terngrad_tf.training.errors import DivergedError

ssh_failed = functools.partial(nodes.explain_ssh, nodes.ENDED_BY_SSH, python="python")
WORKER = tasks.Task("worker", 1)
TASKS = peers.Tasks(("worker 0", "worker 1"), ("a:2222", "b:2222"), 0)


class MessagesTest(unittest.TestCase):
    def test_page_has_a_heading_for_each_code_and_advice_below_it(self):
        page = messages.PATH.read_text(encoding="utf-8")
        codes = re.findall(r"^### (E\d+): ", page, re.M)
        self.assertEqual(list(messages.messages()), codes)
        self.assertEqual(codes, sorted(set(codes)))
        for heading in re.findall(r"^### (.*`.*)$", page, re.M):
            self.assertRegex(heading, r"^E\d+: `")
        for message in messages.messages().values():
            self.assertGreater(len(message.text.split()), 5, message.code)

    def test_each_form_of_a_heading_has_its_own_code(self):
        for message in messages.messages().values():
            found = messages.find(message.title.replace("...", "x"))
            self.assertIsNotNone(found, message.title)
            self.assertEqual(found.code, message.code, message.title)

    def test_lines_of_programs_get_their_code(self):
        refused = {1: "connection refused"}
        for code, line in {
            "E11": peers.lost(TASKS, refused),
            "E12": peers.lost(TASKS, {1: "no route to host"}),
            "E13": peers.ended(TASKS, ValueError("no data")),
            "E14": peers.ended(TASKS, KeyboardInterrupt()),
            "E15": peers.alone(TASKS, [1]),
            "E16": preemption.PreemptedError("worker 1 (b:2222)", 12),
            "E18": NewcomersError("worker 1", 12),
            "E20": failures.explain("Collective has timed out", TASKS),
            "E21": peers.not_started(TASKS, refused),
            "E25": peers.port_in_use(TASKS),
            "E29": addresses.not_for_others(["localhost:2222", "b:2222"]),
            "E46": peers.at_different_places(TASKS, {0: "`fit`", 1: "`evaluate`"}),
            "E72": DivergedError("loss", 7, None),
            "E73": peers.ended(TASKS, DataError("No train files of digits: data_dir='x'")),
            "E81": f"b: {ssh_failed('ssh: connect to host b port 22: No route to host')}",
            "E85": f"b: {ssh_failed('Host key verification failed.')}",
            "E87": f"b: {nodes.explain_ssh(127, '', '/opt/python')}",
            "E89": f"b: {nodes.explain_ssh(1, 'No module named terngrad_tf', '/opt/python')}",
            "E92": tasks.end_of(WORKER, "b", 1, f"OSError: {os.strerror(errno.ENOSPC)}")[1],
            "E93": f"lost b: {nodes.explain_ssh(nodes.ENDED_BY_SSH, '', 'python', True)}",
            "E94": nodes.clock_remark("b", -60),
        }.items():
            with self.subTest(code):
                self.assertEqual(
                    messages.with_code(f"train: error: {line}"),
                    f"train: error: {line} [terngrad explain {code}]",
                )

    def test_other_lines_and_lines_with_a_code_stay(self):
        for line in ("`num_nodes` must be a positive integer. Received: num_nodes=0", "", "lost"):
            self.assertEqual(messages.with_code(line), line)
        once = messages.with_code("lost worker 1 (b:2222: connection refused)")
        self.assertEqual(messages.with_code(once), once)


class ExplainTest(unittest.TestCase):
    def call(self, *words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = explain.run(words)
        return status, out.getvalue(), err.getvalue()

    def test_a_code_and_a_message_print_the_same_section(self):
        status, by_code, _ = self.call("e11")
        self.assertEqual(status, 0)
        self.assertStartsWith(by_code, "E11: `lost worker")
        self.assertIn("Read its log", by_code)
        self.assertNotIn("](", by_code)
        message = "x: error: lost worker 3 (c:22: connection refused) [terngrad explain E11]"
        self.assertEqual(self.call(message)[1], by_code)
        self.assertEqual(self.call(*message.split())[1], by_code)
        # The code in a line takes precedence over its words.
        message = "worker 1 on b ended with status 3: lost b: x [terngrad explain E11]"
        self.assertEqual(self.call(message)[1], by_code)

    def test_list_holds_all_codes(self):
        self.assertEqual(self.call("--list")[1].count("\n"), len(messages.messages()))

    def test_unknown_words_are_refused_in_one_line(self):
        for words in ((), ("E99",), ("no such message",)):
            status, out, err = self.call(*words)
            self.assertEqual((status, out, err.count("\n")), (2, "", 1), err)
            self.assertRegex(err, "^terngrad explain: error: WORDS must be a code or the text")

    def assertStartsWith(self, text, start):  # noqa: N802 - as unittest names it from 3.14 on
        self.assertEqual(text[: len(start)], start)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
