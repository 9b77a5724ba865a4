"""A user's script, for the tests of `terngrad run`."""

import hashlib

import keras
import numpy as np

import terngrad_tf

strategy = terngrad_tf.TernGradStrategy()
keras.utils.set_random_seed(1)
with strategy.scope():
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
    model.compile("adam", "mse")
inputs = np.random.default_rng(0).normal(size=[16, 4]).astype("float32")
model.fit(inputs, inputs[:, :2], batch_size=8, epochs=2, verbose=0)
weights = b"".join(weight.tobytes() for weight in model.get_weights())
print(f"{strategy.num_processes} processes, weights {hashlib.sha256(weights).hexdigest()}")
