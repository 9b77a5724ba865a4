"""Evaluates the checkpoints of a run of cifar10_train.

Example:
    python -m terngrad_tf.bin.cifar10_eval --data_dir ~/cifar10 --checkpoint_dir /tmp/cifar10 \\
        --run_once
"""

from terngrad_tf.bin.common import experiments

PROGRAM = experiments.evaluation("cifar10")
define_flags, main, run = PROGRAM.define_flags, PROGRAM.main, PROGRAM.run

if __name__ == "__main__":
    run()
