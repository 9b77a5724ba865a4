"""Trains a network on photos of flowers with ternary or float gradients.

Example:
    python -m terngrad_tf.bin.flowers_train --data_dir ~/flowers --train_dir /tmp/flowers \\
        --pretrained_model_checkpoint_path /tmp/imagenet --fine_tune \\
        --initial_learning_rate 0.001 --input_queue_memory_factor 1 --max_steps 2000
"""

from terngrad_tf.bin.common import experiments

PROGRAM = experiments.training("flowers")
define_flags, main, run = PROGRAM.define_flags, PROGRAM.main, PROGRAM.run

if __name__ == "__main__":
    run()
