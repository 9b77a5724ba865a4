"""Compares images per second of input pipelines with their limits and with tensorflow-datasets.

    pip install 'terngrad_tf[tfds]'
    python -m benchmarks.input --rounds=7 --json=input.json

Makes its own data: photographs (smooth noise, 500 x 375 pixels, JPEG of quality 90, about 100 kB,
the mean of ImageNet), and digits of 28 x 28 and images of 32 x 32 pixels as PNG; the same files as
TFRecords of `slim_data` and as a data set of tensorflow-datasets. Each photograph is stored several
times: with few records per file, opening files would count more than in ImageNet. All candidates
run in turn, round after round, without autotuning. A stage processes one image per core at a time;
`slim_data` has one stage, which processes two, and tensorflow-datasets has two stages. The first
images of a round do not count. Figures are medians over rounds; ratios are medians of the ratios
within a round. The limits:

- photographs: decoding alone: reading, parsing and `tf.io.decode_jpeg` of the same records;
- small images: training LeNet in a compiled step on one batch in memory.

A separate line reports the share of the speed of decoding alone that remains after
`tf.image.resize` to 224 x 224 and batching, the least work of a pipeline of photographs.

tensorflow-datasets decodes with its own code; the same preprocessing follows.
"""

import contextlib
import importlib
import io
import os
import statistics
import tempfile
import time

import keras
import numpy as np
import tensorflow as tf
from absl import flags

import slim_data
from benchmarks.lib import figures, markdown, program
from slim_data.datasets import digits
from slim_data.tfrecord import encoded_image, examples
from terngrad_tf import models

_ROUNDS = flags.DEFINE_integer("rounds", 7, "Timed rounds.", lower_bound=1)
_PHOTOS = flags.DEFINE_integer("photos", 512, "Photographs to make.", lower_bound=64)
_IMAGES = flags.DEFINE_integer("images", 8192, "Small images to make.", lower_bound=1024)
_ONLY = flags.DEFINE_string("only", "", "Rows whose names contain this.")
_JSON = flags.DEFINE_string("json", None, "File to write the figures to.")

HEIGHT, WIDTH = 375, 500
NUM_SHARDS = 8
PHOTO_BATCH, SMALL_BATCH = 32, 64
SHUFFLE_BUFFER = 1024
COPIES = 8
DECODING, RESIZING = "decoding", "decoding and resizing"
STYLES = ("inception", "alexnet", "vgg", "resnet")
DATASETS = {"mnist": 28, "cifar10": 32, "imagenet": 224}
CORES = os.cpu_count()


class Decoded(encoded_image.EncodedImage):
    """A photograph with decoded pixels, as tensorflow-datasets delivers them."""

    def __init__(self, pixels):
        self._image = pixels

    @property
    def boxes(self):
        return tf.zeros([0, 4])

    def size(self):
        return tf.shape(self._image)[:2]

    def decode(self):
        return self._image

    def crop(self, top, left, height, width):
        return self._image[top : top + height, left : left + width]


def make_photograph(seed):
    """Returns a JPEG file of noise of several scales, as large as a photograph's."""
    generator = np.random.default_rng(seed)
    image = np.zeros((HEIGHT, WIDTH, 3), np.float32)
    for step, strength in ((32, 60), (8, 25), (2, 18), (1, 5)):
        noise = generator.normal(0, strength, (HEIGHT // step + 1, WIDTH // step + 1, 3))
        image += tf.image.resize(noise.astype(np.float32), (HEIGHT, WIDTH), "bicubic").numpy()
    return tf.io.encode_jpeg(np.clip(128 + image, 0, 255).astype(np.uint8), quality=90).numpy()


def make_images(name):
    """Returns [(bytes of an image file, class)]."""
    generator = np.random.default_rng(0)
    if name == "imagenet":
        return [(make_photograph(i), 1 + i % 1000) for i in range(_PHOTOS.value)] * COPIES
    if name == "mnist":
        records = list(digits.Digits().generate_examples("train"))
        images = [tf.train.Example.FromString(r).features.feature for r in records]
        encoded = [image[examples.ENCODED].bytes_list.value[0] for image in images]
        return [(encoded[i % len(encoded)], i % 10) for i in range(_IMAGES.value)]
    coarse = generator.uniform(0, 255, (_IMAGES.value, 8, 8, 3)).astype(np.float32)
    images = tf.image.resize(coarse, (32, 32), "bicubic").numpy()
    images = np.clip(images + generator.normal(0, 10, images.shape), 0, 255).astype(np.uint8)
    return [(tf.io.encode_png(image).numpy(), i % 10) for i, image in enumerate(images)]


def write_records(name, images, folder):
    """Writes the images as TFRecords that `slim_data.load` reads."""
    size = (HEIGHT, WIDTH) if name == "imagenet" else (DATASETS[name], DATASETS[name])
    size = (*size, slim_data.info(name).channels)
    image_format = "JPEG" if name == "imagenet" else "png"
    for shard in range(NUM_SHARDS):
        path = os.path.join(folder, f"train-{shard:05d}-of-{NUM_SHARDS:05d}")
        with tf.io.TFRecordWriter(path) as writer:
            for encoded, label in images[shard::NUM_SHARDS]:
                writer.write(examples.build_example(encoded, image_format, size, label, ""))


def write_tfds(name, images, folder):
    """Writes the images as a data set of tensorflow-datasets; returns its builder."""
    tfds = importlib.import_module("tensorflow_datasets")
    tfds.disable_progress_bar()
    shape = {"imagenet": (None, None, 3), "mnist": (28, 28, 1), "cifar10": (32, 32, 3)}[name]
    encoding = "jpeg" if name == "imagenet" else "png"
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=shape, encoding_format=encoding),
            "label": tfds.features.ClassLabel(num_classes=1001),
        }
    )
    rows = [
        (i, {"image": io.BytesIO(encoded), "label": label})
        for i, (encoded, label) in enumerate(images)
    ]
    return tfds.dataset_builders.store_as_tfds_dataset(
        name=f"bench_{name}",
        version="1.0.0",
        features=features,
        split_datasets={"train": rows},
        data_dir=folder,
    )


def ours(name, folder, style, training):
    """Returns batches of `slim_data`, without end."""
    return slim_data.load(
        name,
        folder,
        "train",
        PHOTO_BATCH if name == "imagenet" else SMALL_BATCH,
        DATASETS[name],
        training,
        preprocessing=style,
        shuffle_buffer=SHUFFLE_BUFFER,
        repeat=True,
        drop_remainder=True,
        # As tensorflow-datasets' two stages together, and the training programs' default.
        num_parallel_calls=2 * CORES,
    )


def theirs(name, builder, style, training):
    """Returns batches of tensorflow-datasets after the same preprocessing, without end."""
    tfds = importlib.import_module("tensorflow_datasets")
    size = DATASETS[name]
    preprocessing = slim_data.info(name).preprocessings[style]
    stream = builder.as_dataset(
        split="train",
        shuffle_files=training,
        as_supervised=False,
        read_config=tfds.ReadConfig(try_autocache=False, num_parallel_calls_for_decode=CORES),
    ).repeat()
    if training:
        stream = stream.shuffle(SHUFFLE_BUFFER)
    augmented = training and preprocessing.augment is not None

    def prepare_photo(row):
        image = Decoded(row["image"])
        if augmented:
            seed = tf.random.uniform([2], maxval=tf.int64.max, dtype=tf.int64)
            return preprocessing.augment(image, size, seed), tf.cast(row["label"], tf.int32)
        return preprocessing.evaluate(image, size), tf.cast(row["label"], tf.int32)

    def prepare_batch(rows):
        images = rows["image"]
        if augmented:
            draws = tf.random.uniform([SMALL_BATCH, preprocessing.num_random_values])
            images = preprocessing.augment(images, size, draws)
        else:
            images = preprocessing.evaluate(images, size)
        return images, tf.cast(rows["label"], tf.int32)

    if name == "imagenet":
        stream = stream.map(prepare_photo, num_parallel_calls=CORES)
        stream = stream.batch(PHOTO_BATCH, drop_remainder=True)
    else:
        stream = stream.batch(SMALL_BATCH, drop_remainder=True)
        stream = stream.map(prepare_batch, num_parallel_calls=CORES)
    return stream.prefetch(tf.data.AUTOTUNE)


def decoding_alone(folder, resized=False):
    """Returns images decoded from the same records, a batch at a time.

    Args:
        resized: True returns resized pixels, False only shapes.
    """
    files = slim_data.find_files("imagenet", folder, "train")
    size = DATASETS["imagenet"]

    def decode(record):
        encoded = tf.io.parse_single_example(record, examples.features())[examples.ENCODED]
        image = tf.io.decode_jpeg(encoded, 3)
        return tf.image.resize(image, [size, size]) if resized else tf.shape(image)

    stream = tf.data.TFRecordDataset(files, num_parallel_reads=4).repeat()
    return stream.map(decode, num_parallel_calls=CORES).batch(PHOTO_BATCH).prefetch(2)


def lenet_training():
    """Returns a stream of training steps of LeNet on one batch."""
    model = models.build("lenet", 10)
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    images, labels = tf.zeros([SMALL_BATCH, 28, 28, 1]), tf.zeros([SMALL_BATCH], tf.int32)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return value

    def steps():
        while True:
            yield step().numpy()

    return steps


def candidates(folder):
    """Returns {(row, column): (function that returns batches, batch size)}."""
    found = {}
    for name in DATASETS:
        styles = STYLES if name == "imagenet" else [next(iter(slim_data.info(name).preprocessings))]
        rows = {
            f"{name} {style}, {'training' if training else 'evaluation'}": (style, training)
            for style in styles
            for training in (True, False)
        }
        rows = {row: case for row, case in rows.items() if _ONLY.value in row}
        if not rows:
            continue
        images = make_images(name)
        records, prepared = (os.path.join(folder, kind, name) for kind in ("records", "tfds"))
        os.makedirs(records)
        write_records(name, images, records)
        builder = write_tfds(name, images, prepared)
        for row, (style, training) in rows.items():
            found[row, "slim_data"] = _without_autotuning(ours(name, records, style, training))
            found[row, "tfds"] = _without_autotuning(theirs(name, builder, style, training))
            if name == "imagenet":
                for row, resized in ((DECODING, False), (RESIZING, True)):
                    limit = decoding_alone(records, resized)
                    found[row, "limit"] = _without_autotuning(limit)
            else:
                found["LeNet", "limit"] = lenet_training()
    return found


def _without_autotuning(stream):
    options = tf.data.Options()
    options.autotune.enabled = False
    stream = stream.with_options(options)
    return lambda: stream


def images_per_second(make_stream, batch_size, num_images):
    """Returns the speed of a stream without its first images."""
    num_batches = max(num_images // batch_size, 4)
    with contextlib.closing(_closable(make_stream())) as batches:
        for _ in range(num_batches // 2):
            next(batches)
        start = time.perf_counter()
        for _ in range(num_batches):
            next(batches)
        return num_batches * batch_size / (time.perf_counter() - start)


def _closable(stream):
    yield from stream


def measure(found, rounds):
    """Returns {(row, column): images per second of each round}."""
    speeds = {key: [] for key in found}
    for timed in range(-1, rounds):
        for key, make_stream in found.items():
            is_photo = key[0].startswith(("imagenet", "decoding"))
            size = (PHOTO_BATCH, _PHOTOS.value) if is_photo else (SMALL_BATCH, _IMAGES.value)
            speed = images_per_second(make_stream, *size)
            if timed >= 0:
                speeds[key].append(speed)
    return speeds


def ratio(speeds, key, other):
    """Returns the factor by which one stream is faster than another."""
    return statistics.median(a / b for a, b in zip(speeds[key], speeds[other], strict=True))


def summarize(speeds):
    """Returns a row for each pipeline."""
    rows = []
    for row in dict.fromkeys(row for row, column in speeds if column == "slim_data"):
        limit = (DECODING if row.startswith("imagenet") else "LeNet", "limit")
        rows.append(
            {
                "pipeline": row,
                "images_per_second": statistics.median(speeds[row, "slim_data"]),
                "tfds_images_per_second": statistics.median(speeds[row, "tfds"]),
                "against_tfds": ratio(speeds, (row, "slim_data"), (row, "tfds")),
                "limit": limit[0],
                "limit_images_per_second": statistics.median(speeds[limit]),
                "against_limit": ratio(speeds, (row, "slim_data"), limit),
            }
        )
    return rows


def table(rows):
    """Returns the rows as Markdown."""
    lines = []
    for row in rows:
        cells = [row["pipeline"], f"{row['images_per_second']:,.0f}"]
        cells += [f"{row['tfds_images_per_second']:,.0f}", f"{row['against_tfds']:.2f}"]
        cells += [f"{row['limit']} {row['limit_images_per_second']:,.0f}"]
        lines.append([*cells, f"{row['against_limit']:.2f}"])
    titles = "pipeline | images/s | tfds | / tfds | decoding alone, or LeNet's training | / that"
    return markdown.table(titles, lines)


def main():
    """Measures all pipelines and prints their table."""
    with tempfile.TemporaryDirectory() as folder:
        speeds = measure(candidates(folder), _ROUNDS.value)
    found = {"tensorflow": tf.__version__, "rows": summarize(speeds)}
    print(f"median of {_ROUNDS.value} rounds, {CORES} cores, TensorFlow {tf.__version__}")
    print(table(found["rows"]))
    if (RESIZING, "limit") in speeds:
        found["resizing"] = ratio(speeds, (RESIZING, "limit"), (DECODING, "limit"))
        print(f"{RESIZING}: {found['resizing']:.2f} of decoding alone")
    if _JSON.value:
        figures.write_json(_JSON.value, found)


if __name__ == "__main__":
    program.run(main)
