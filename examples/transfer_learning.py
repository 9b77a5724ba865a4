"""A body trained on the digits 0 to 4 learns 5 to 9: first a new head, then all weights.

    python examples/transfer_learning.py

Frozen weights have no gradients: while the head trains, only its gradients travel.
"""

import keras
import sklearn.datasets

import terngrad_tf

strategy = terngrad_tf.TernGradStrategy(num_nodes=4)

digits = sklearn.datasets.load_digits()
images, labels = digits.images[..., None].astype("float32") / 16.0, digits.target
low = labels < 5


def classifier(body, learning_rate):
    """A new head of 5 classes on the body, compiled."""
    model = keras.Sequential([body, keras.layers.Dropout(0.2), keras.layers.Dense(5)])
    compile_at(model, learning_rate)
    return model


def compile_at(model, learning_rate):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(learning_rate), loss, metrics=["accuracy"])


with strategy.scope():
    body = keras.Sequential(
        [
            keras.Input(shape=(8, 8, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(32, activation="relu"),
        ]
    )
    first = classifier(body, 0.003)
first.fit(images[low], labels[low], batch_size=64, epochs=6, verbose=2)

# The head alone.
body.trainable = False
with strategy.scope():
    second = classifier(body, 0.01)
few = ~low
x_train, y_train = images[few][:400], labels[few][:400] - 5
x_test, y_test = images[few][400:], labels[few][400:] - 5
second.fit(x_train, y_train, batch_size=64, epochs=8, verbose=2)
head_bytes = strategy.traffic.received_bytes

# All of it, at a lower rate.
body.trainable = True
with strategy.scope():
    compile_at(second, 0.001)
second.fit(x_train, y_train, batch_size=64, epochs=5, verbose=2)

loss, accuracy = second.evaluate(x_test, y_test, verbose=0)
print(f"bytes a step: head {head_bytes:,.0f}, all {strategy.traffic.received_bytes:,.0f}")
print(f"test loss {loss:.3f}, test accuracy {accuracy:.1%}")
