"""From a serialized tf.Example to the image and label that a network takes."""

from slim_data import examples
from slim_data.lazy import tf

# In the message of every error that a record causes, which tells it from a network's errors.
SCOPE = "slim_data_record"


def decode(serialized, dataset):
    """Returns the image and label of one record.

    Args:
        serialized: scalar string tensor, a tf.Example.
        dataset: `DatasetInfo`.

    Returns:
        (uint8 tensor of shape [height, width, channels], int32 scalar).

    Raises:
        tf.errors.InvalidArgumentError: a key is missing, the image is damaged or the label is not
            one of the data set's classes.
    """
    with tf.name_scope(SCOPE):
        features = tf.io.parse_single_example(serialized, examples.features())
        label = tf.cast(features[examples.LABEL], tf.int32)
        first, last = dataset.label_offset, dataset.num_classes - 1
        in_range = tf.logical_and(label >= first, label <= last)
        tf.debugging.Assert(in_range, [f"label is not {first} to {last}:", label])
        # By content, whatever image/format says.
        image = tf.io.decode_image(
            features[examples.ENCODED], dataset.channels, expand_animations=False
        )
        image.set_shape([None, None, dataset.channels])
        return image, label


def decode_strictly(serialized, dataset):
    """Returns what `decode` does, after checks that reading has no need of.

    The record must hold every key that the converters write, each of its type, and the image
    must have the data set's size, if it has one, and the one that the record states.

    Args:
        serialized: scalar string tensor, a tf.Example.
        dataset: `DatasetInfo`.

    Raises:
        tf.errors.InvalidArgumentError: as `decode`, or one of these rules is broken.
    """
    image, label = decode(serialized, dataset)
    with tf.name_scope(SCOPE):
        stated = tf.io.parse_single_example(serialized, examples.other_features())
        size = tf.stack([stated[key] for key in examples.SIZE])
        shape = tf.shape(image, tf.int64)
        if dataset.image_size is not None:
            wanted = [dataset.image_size, dataset.image_size, dataset.channels]
            rule = "image is not " + " x ".join(map(str, wanted)) + ":"
            tf.debugging.Assert(tf.reduce_all(shape == wanted), [rule, shape])
        rule = f"{', '.join(examples.SIZE)} are not those of the image:"
        tf.debugging.Assert(tf.reduce_all(size == shape), [rule, size])
        return image, label


def crop_or_pad(image, size):
    """Returns the central `size` x `size` pixels of an image, zeros around a smaller one.

    Args:
        image: tensor of shape [height, width, channels].
        size: int.
    """
    channels = image.shape[2]
    shape = tf.shape(image)[:2]
    before = tf.maximum(shape - size, 0) // 2
    image = image[before[0] : before[0] + size, before[1] : before[1] + size]
    lack = size - tf.shape(image)[:2]
    padding = tf.stack([lack // 2, lack - lack // 2], axis=1)
    image = tf.pad(image, tf.pad(padding, [[0, 1], [0, 0]]))
    image.set_shape([size, size, channels])
    return image


def normalize(images):
    """Returns `2 (images / 255 - 0.5)`, float32 in [-1, 1], of uint8 images of any shape."""
    return tf.cast(images, tf.float32) * (2 / 255) - 1.0


def standardize(images):
    """Returns `(x - mean(x)) / max(std(x), 1 / sqrt(n))` of each image x of n values.

    Args:
        images: tensor of shape [batch, height, width, channels]; uint8 ones are divided by 255.

    Returns:
        float32 tensor of the same shape.
    """
    return tf.image.per_image_standardization(tf.image.convert_image_dtype(images, tf.float32))
