"""Last lines: of errors that TensorFlow meets in Python code, and wherever they go."""

import shlex
import subprocess
import sys

import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.common.last_line import one_line


def failing():
    yield 1
    raise ValueError("bad record 5")


class OneLineTest(tf.test.TestCase):
    def line_of(self, function):
        with self.assertRaises(tf.errors.OpError) as caught:
            function()
        return one_line(caught.exception)

    def test_an_error_of_python_code_is_quoted_alone(self):
        def fail(value):
            raise ValueError("bad record 5")

        mapped = tf.data.Dataset.range(3).map(lambda value: tf.py_function(fail, [value], tf.int32))
        for dataset in (tf.data.Dataset.from_generator(failing, tf.int32), mapped):

            @tf.function
            def total(dataset=dataset):
                return dataset.reduce(0, lambda total, value: total + value)

            self.assertEqual(
                self.line_of(lambda data=dataset: list(data)), "ValueError: bad record 5"
            )
            self.assertEqual(self.line_of(total), "ValueError: bad record 5")


# Ends with status 3 after a last line.
PROGRAM = """
import sys
from terngrad_tf.common.last_line import write_last_line
class Tee:
    def write(self, text): pass
    def flush(self): pass
{change}
write_last_line("the reason")
sys.exit(3)
"""


class LastLineTest(parameterized.TestCase):
    @parameterized.parameters("", "sys.stderr = Tee()", "sys.stderr.close()")
    def test_whatever_a_program_did_to_its_standard_error(self, change):
        command = [sys.executable, "-c", PROGRAM.format(change=change)]
        ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual((ended.returncode, ended.stderr), (3, "the reason\n"))

    def test_a_standard_error_that_was_closed_from_the_start(self):
        command = shlex.join([sys.executable, "-c", PROGRAM.format(change="")])
        self.assertEqual(subprocess.run(f"{command} 2>&-", shell=True, check=False).returncode, 3)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
