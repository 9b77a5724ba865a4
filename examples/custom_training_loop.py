"""A custom training loop, as in TensorFlow's tutorials on strategies.

    python examples/custom_training_loop.py

The optimizer exchanges the gradients in `apply`. Keras' losses divide by the number of replicas;
`tf.nn.compute_average_loss` does so for custom losses.
"""

import keras
import sklearn.datasets
import tensorflow as tf

import terngrad_tf

BATCH_SIZE = 64
EPOCHS = 8

strategy = terngrad_tf.TernGradStrategy(num_nodes=4)

digits = sklearn.datasets.load_digits()
images = digits.images[..., None].astype("float32") / 16.0
train = tf.data.Dataset.from_tensor_slices((images[:1500], digits.target[:1500]))
test = tf.data.Dataset.from_tensor_slices((images[1500:], digits.target[1500:]))
train = strategy.experimental_distribute_dataset(train.shuffle(1500, seed=0).batch(BATCH_SIZE))
test = strategy.experimental_distribute_dataset(test.batch(BATCH_SIZE))

with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input(shape=(8, 8, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    optimizer = keras.optimizers.Adam(0.002)
    accuracy = keras.metrics.SparseCategoricalAccuracy()


def train_replica(images, labels):
    with tf.GradientTape() as tape:
        logits = model(images, training=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        loss = tf.nn.compute_average_loss(losses)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    return loss


def test_replica(images, labels):
    accuracy.update_state(labels, model(images, training=False))


@tf.function
def train_step(batch):
    losses = strategy.run(train_replica, args=batch)
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


@tf.function
def test_step(batch):
    strategy.run(test_replica, args=batch)


for epoch in range(EPOCHS):
    losses = [float(train_step(batch)) for batch in train]
    print(f"epoch {epoch + 1}: loss {sum(losses) / len(losses):.3f}")

for batch in test:
    test_step(batch)
print(f"test accuracy {float(accuracy.result()):.1%}")
