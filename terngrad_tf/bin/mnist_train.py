"""Trains a network on MNIST with ternary or float gradients.

Example:
    python -m terngrad_tf.bin.mnist_train --data_dir ~/mnist --train_dir /tmp/mnist \\
        --num_nodes 4 --grad_bits 1 --clip_factor 2.5 --batch_size 64 --max_steps 10000
"""

import functools
import sys

from terngrad_tf.bin import flags, program

DESCRIPTION = "Trains a network on MNIST images with ternary or float gradients."

define_flags = functools.partial(flags.define_train, dataset_name="mnist", net="lenet")


def main(argv):
    """Runs the program; `argv` is its command line. Returns the exit status."""
    return program.run(DESCRIPTION, define_flags, _main, argv)


def _main(values):
    import tensorflow as tf

    from terngrad_tf import training

    if values.log_device_placement:
        tf.debugging.set_log_device_placement(True)
    training.train(flags.options(values, training.TrainOptions))


def run():
    """Entry point of the console command."""
    sys.exit(main(sys.argv))


if __name__ == "__main__":
    run()
