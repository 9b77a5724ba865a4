"""A generative adversarial network with two optimizers, under stock `fit`, on 4 replicas.

    python examples/gan.py

The generator learns a ring of points. Each optimizer exchanges the gradients of its own network.
"""

import keras
import numpy as np
import tensorflow as tf

import terngrad_tf

NOISE = 8


class GAN(keras.Model):
    """Generator and discriminator, trained in turns."""

    def __init__(self):
        super().__init__()
        dense = keras.layers.Dense
        self.generator = keras.Sequential([dense(64, "relu"), dense(64, "relu"), dense(2)])
        self.discriminator = keras.Sequential([dense(64, "relu"), dense(64, "relu"), dense(1)])
        self.loss_fn = keras.losses.BinaryCrossentropy(from_logits=True)
        self.d_loss = keras.metrics.Mean(name="d_loss")
        self.g_loss = keras.metrics.Mean(name="g_loss")

    def compile(self, d_optimizer, g_optimizer):
        super().compile()
        self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer

    @property
    def metrics(self):
        return [self.d_loss, self.g_loss]

    def train_step(self, real):
        count = tf.shape(real)[0]
        ones, zeros = tf.ones([count, 1]), tf.zeros([count, 1])
        fake = self.generator(tf.random.normal([count, NOISE]))
        with tf.GradientTape() as tape:
            scores = self.discriminator(tf.concat([real, fake], 0))
            d_loss = self.loss_fn(tf.concat([ones, zeros], 0), scores)
        weights = self.discriminator.trainable_variables
        self.d_optimizer.apply(tape.gradient(d_loss, weights), weights)

        with tf.GradientTape() as tape:
            fake = self.generator(tf.random.normal([count, NOISE]))
            g_loss = self.loss_fn(ones, self.discriminator(fake))
        weights = self.generator.trainable_variables
        self.g_optimizer.apply(tape.gradient(g_loss, weights), weights)

        self.d_loss.update_state(d_loss)
        self.g_loss.update_state(g_loss)
        return {metric.name: metric.result() for metric in self.metrics}


strategy = terngrad_tf.TernGradStrategy(num_nodes=4)
with strategy.scope():
    gan = GAN()
    gan.compile(keras.optimizers.Adam(0.001, beta_1=0.5), keras.optimizers.Adam(0.001, beta_1=0.5))

angles = np.random.default_rng(0).uniform(0, 2 * np.pi, 4096)
ring = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype("float32")
gan.fit(ring, batch_size=256, epochs=60, verbose=2)

points = gan.generator.predict(np.random.default_rng(1).normal(size=(1000, NOISE)), verbose=0)
radius = np.linalg.norm(points, axis=1)
print(f"radius of the points: {radius.mean():.2f} on average, deviation {radius.std():.2f}")
