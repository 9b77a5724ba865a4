"""Trains a network on ImageNet with a process on each of several hosts.

Example, on the first host; with --task_id 1 on the second:
    python -m terngrad_tf.bin.imagenet_distributed_train --data_dir ~/imagenet --batch_size 128 \\
        --grad_bits 1 --clip_factor 2.5 --size_to_binarize 9217 --initial_learning_rate 0.02 \\
        --worker_hosts a:2222,b:2222 --task_id 0 --train_dir /tmp/imagenet --max_steps 185000
"""

from terngrad_tf.bin.common import experiments

PROGRAM = experiments.distributed_training("imagenet")
define_flags, main, run = PROGRAM.define_flags, PROGRAM.main, PROGRAM.run

if __name__ == "__main__":
    run()
