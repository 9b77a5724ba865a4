"""Evaluates the checkpoints of a run of imagenet_train.

Example:
    python -m terngrad_tf.bin.imagenet_eval --data_dir ~/imagenet --checkpoint_dir /tmp/imagenet \\
        --run_once
"""

from terngrad_tf.bin.common import experiments

PROGRAM = experiments.evaluation("imagenet")
define_flags, main, run = PROGRAM.define_flags, PROGRAM.main, PROGRAM.run

if __name__ == "__main__":
    run()
