"""Trains a network on CIFAR-10 with a process on each of several hosts.

Example, on the first host; with --task_id 1 on the second:
    python -m terngrad_tf.bin.cifar10_distributed_train --data_dir ~/cifar10 --batch_size 64 \\
        --optimizer adam --initial_learning_rate 0.0002 --weight_decay 0.004 --grad_bits 1 \\
        --clip_factor 2.5 --worker_hosts a:2222,b:2222 --task_id 0 --train_dir /tmp/cifar10
"""

from terngrad_tf.bin.common import experiments

PROGRAM = experiments.distributed_training("cifar10")
define_flags, main, run = PROGRAM.define_flags, PROGRAM.main, PROGRAM.run

if __name__ == "__main__":
    run()
