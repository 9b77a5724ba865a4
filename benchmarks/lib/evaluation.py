"""Loss and accuracy of classifiers, without their weight decay."""

import keras
import numpy as np
import tensorflow as tf

_BATCH = 1000


def loss_and_accuracy(logits_of, images, labels):
    """Returns the mean cross-entropy and the accuracy of a function from images to logits."""
    pieces = range(0, len(images), _BATCH)
    logits = np.concatenate([logits_of(images[i : i + _BATCH]) for i in pieces])
    losses = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    right = np.argmax(logits, axis=-1) == labels
    return float(tf.reduce_mean(losses)), float(np.mean(right))


def evaluate(model, *datasets):
    """Yields the mean cross-entropy and the accuracy of a model on each data set."""
    bare = keras.Model(model.inputs, model.outputs)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    entropy = keras.metrics.SparseCategoricalCrossentropy("cross_entropy", from_logits=True)
    bare.compile(loss=loss, metrics=["accuracy", entropy])
    for dataset in datasets:
        found = bare.evaluate(dataset, verbose=0, return_dict=True)
        yield found["cross_entropy"], found["accuracy"]
