"""A cluster program as users write it; all processes but the chief fail while they train."""

import sys

import keras
import numpy as np

from terngrad_tf.distribute import ClusterOptions, TernGradStrategy, exit_on_peer_error

with exit_on_peer_error():
    strategy = TernGradStrategy(cluster_options=ClusterOptions(start_timeout=float(sys.argv[1])))

    class Fails(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2:
                raise ValueError("no data on this process")

    with strategy.scope():
        model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(
        *(np.ones((64, 2)), np.ones(64)),
        batch_size=2,
        verbose=0,
        callbacks=[] if strategy.is_chief else [Fails()],
    )
