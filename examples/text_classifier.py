"""A text classifier with a learnt vocabulary and an embedding, on 4 replicas.

    python examples/text_classifier.py

The program makes its sentences: one word in each shows a good or a bad day. Gradients of an
embedding hold only the rows of the words in a batch. They travel as rounded rows or as a whole
rounded table, whichever takes fewer bytes; all other gradients travel as ternary codes, too.
"""

import keras
import numpy as np
import tensorflow as tf

import terngrad_tf

GOOD = ["fine", "bright", "lovely", "happy", "calm", "sweet"]
BAD = ["awful", "gloomy", "dreadful", "sad", "stormy", "bitter"]
TEMPLATES = ["it was a {} day", "what a {} morning we had", "the evening felt {} to all", "so {} !"]


def sentences(number, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, number)
    texts = [rng.choice(TEMPLATES).format(rng.choice(GOOD if label else BAD)) for label in labels]
    return np.array(texts), labels


# Create the strategy before the first use of TensorFlow.
strategy = terngrad_tf.TernGradStrategy(num_nodes=4)

texts, labels = sentences(2000, seed=0)
vectorize = keras.layers.TextVectorization(max_tokens=1000, output_sequence_length=8)
vectorize.adapt(texts)


def dataset(texts, labels):
    return (
        tf.data.Dataset.from_tensor_slices((texts, labels))
        .batch(64)
        .map(lambda text, label: (vectorize(text), label))
    )


with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input(shape=(8,), dtype="int64"),
            keras.layers.Embedding(vectorize.vocabulary_size(), 16),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(1),
        ]
    )
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(
        keras.optimizers.Adam(0.01), loss, metrics=[keras.metrics.BinaryAccuracy(threshold=0)]
    )

model.fit(dataset(texts, labels), epochs=4)

loss, accuracy = model.evaluate(dataset(*sentences(500, seed=1)), verbose=0)
print(f"test loss {loss:.3f}, test accuracy {accuracy:.1%}")
