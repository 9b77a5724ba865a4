"""Trains a network on CIFAR-10 with ternary or float gradients.

Example:
    python -m terngrad_tf.bin.cifar10_train --data_dir ~/cifar10 --train_dir /tmp/cifar10 \\
        --num_nodes 2 --grad_bits 1 --clip_factor 2.5 --batch_size 128 --optimizer adam \\
        --initial_learning_rate 0.0002 --weight_decay 0.004 --max_steps 300000
"""

from terngrad_tf.bin.common import experiments

PROGRAM = experiments.training("cifar10")
define_flags, main, run = PROGRAM.define_flags, PROGRAM.main, PROGRAM.run

if __name__ == "__main__":
    run()
