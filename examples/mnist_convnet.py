"""A convolutional network on handwritten digits, with ternary gradients on 4 replicas.

    python examples/mnist_convnet.py

Uses scikit-learn's digits of 8 x 8 pixels, which need no download; `keras.datasets.mnist` works
too. Compare with `grad_bits=32`, which is float.
"""

import keras
import sklearn.datasets
import sklearn.model_selection

import terngrad_tf

strategy = terngrad_tf.TernGradStrategy(num_nodes=4)

digits = sklearn.datasets.load_digits()
images = digits.images[..., None].astype("float32") / 16.0
x_train, x_test, y_train, y_test = sklearn.model_selection.train_test_split(
    images, digits.target, test_size=0.2, random_state=0
)

with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input(shape=(8, 8, 1)),
            keras.layers.Conv2D(32, kernel_size=3, activation="relu"),
            keras.layers.Conv2D(64, kernel_size=3, activation="relu"),
            keras.layers.MaxPooling2D(pool_size=2),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])

model.fit(x_train, y_train, batch_size=64, epochs=12, validation_split=0.1)

loss, accuracy = model.evaluate(x_test, y_test, verbose=0)
print(f"test loss {loss:.3f}, test accuracy {accuracy:.1%}")
traffic = strategy.traffic
print(f"a replica receives {traffic.received_bytes:,.0f} bytes a step,", end=" ")
print(f"{traffic.compression_ratio:.1f} times fewer than float32")
