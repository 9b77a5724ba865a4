"""Trains a network on MNIST with ternary or float gradients.

Example:
    python -m terngrad_tf.bin.mnist_train --data_dir ~/mnist --train_dir /tmp/mnist \\
        --num_nodes 4 --grad_bits 1 --clip_factor 2.5 --batch_size 64 --max_steps 10000
"""

from terngrad_tf.bin.common import experiments

PROGRAM = experiments.training("mnist")
define_flags, main, run = PROGRAM.define_flags, PROGRAM.main, PROGRAM.run

if __name__ == "__main__":
    run()
