"""Evaluates the checkpoints of a run of mnist_train.

Example:
    python -m terngrad_tf.bin.mnist_eval --data_dir ~/mnist --checkpoint_dir /tmp/mnist \\
        --run_once
"""

from terngrad_tf.bin.common import experiments

PROGRAM = experiments.evaluation("mnist")
define_flags, main, run = PROGRAM.define_flags, PROGRAM.main, PROGRAM.run

if __name__ == "__main__":
    run()
