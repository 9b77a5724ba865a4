"""Evaluates the checkpoints of a run of mnist_train.

Example:
    python -m terngrad_tf.bin.mnist_eval --data_dir ~/mnist --checkpoint_dir /tmp/mnist \\
        --run_once
"""

import functools
import sys

from terngrad_tf.bin import flags, program

DESCRIPTION = "Evaluates the checkpoints of a run of mnist_train, once or as they appear."

# MNIST has no part named "validation".
define_flags = functools.partial(flags.define_eval, subset="test")


def main(argv):
    """Runs the program; `argv` is its command line. Returns the exit status."""
    return program.run(DESCRIPTION, define_flags, _main, argv)


def _main(values):
    from terngrad_tf import training

    training.evaluate(flags.options(values, training.EvalOptions))


def run():
    """Entry point of the console command."""
    sys.exit(main(sys.argv))


if __name__ == "__main__":
    run()
