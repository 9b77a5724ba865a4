"""Evaluates the checkpoints of a run of flowers_train.

Example:
    python -m terngrad_tf.bin.flowers_eval --data_dir ~/flowers --checkpoint_dir /tmp/flowers \\
        --run_once
"""

from terngrad_tf.bin.common import experiments

PROGRAM = experiments.evaluation("flowers")
define_flags, main, run = PROGRAM.define_flags, PROGRAM.main, PROGRAM.run

if __name__ == "__main__":
    run()
