"""Trains a network on ImageNet with ternary or float gradients.

Example:
    python -m terngrad_tf.bin.imagenet_train --data_dir ~/imagenet --train_dir /tmp/imagenet \\
        --num_gpus 8 --grad_bits 1 --clip_factor 2.5 --batch_size 1024 --size_to_binarize 9217 \\
        --initial_learning_rate 0.04 --dropout_keep_prob 0.8 --max_steps 92500
"""

from terngrad_tf.bin.common import experiments

PROGRAM = experiments.training("imagenet")
define_flags, main, run = PROGRAM.define_flags, PROGRAM.main, PROGRAM.run

if __name__ == "__main__":
    run()
