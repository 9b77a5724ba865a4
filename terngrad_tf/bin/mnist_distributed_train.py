"""Trains a network on MNIST with a process on each of several hosts.

Example, on the first host; with --task_id 1 on the second:
    python -m terngrad_tf.bin.mnist_distributed_train --data_dir ~/mnist --batch_size 32 \\
        --worker_hosts a:2222,b:2222 --task_id 0 --train_dir /tmp/mnist --max_steps 10000
"""

from terngrad_tf.bin.common import experiments

PROGRAM = experiments.distributed_training("mnist")
define_flags, main, run = PROGRAM.define_flags, PROGRAM.main, PROGRAM.run

if __name__ == "__main__":
    run()
