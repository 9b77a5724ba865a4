"""From shards to batches: the one builder of `tf.data` pipelines.

A training stream without end is the concatenation of epochs 0, 1, 2, ... Each epoch is a function
of (seed, number of the epoch) alone: its order of files, the interleaving of the readers and the
shuffle buffer's draws. So a stream can start at any step: whole epochs are left out by counting,
the rest of one by skipping records before they are decoded.
"""

import logging

from slim_data.common.arguments import check_at_least
from slim_data.common.errors import DataError
from slim_data.common.lazy import tf
from slim_data.datasets import registry
from slim_data.input import corrupt_records, data_files
from slim_data.input.batching import Batching
from slim_data.tfrecord import reading, record_files

# Up to this size, in bytes, the framing of all files is read before the first record.
_CHECKED_SIZE = 2**30
# With at least so many files for each pipeline, their unequal sizes hardly matter.
_FILES_FOR_EACH_PIPELINE = 10

_LOG = logging.getLogger(__name__)


def load(
    name,
    data_dir,
    split,
    batch_size,
    image_size,
    training,
    *,
    preprocessing=None,
    num_readers=4,
    shuffle_buffer=16 * 1024,
    seed=1,
    start_step=0,
    drop_remainder=None,
    repeat=False,
    num_input_pipelines=1,
    input_pipeline_id=0,
    num_parallel_calls=None,
    skip_corrupt_records=False,
):
    """Returns batches of images and labels as a `tf.data.Dataset`.

    Each example comes once in a pass over the dataset, which is an epoch of `model.fit`, and the
    last batch may be smaller. For training, examples are shuffled, anew in each pass; otherwise
    their order depends on the files and `num_readers` alone. With `repeat` the dataset has no end,
    and batches run on over the end of an epoch. Equal arguments give equal batches, whatever the
    number of threads and the global random seed.

    In a cluster each process can take its own part of the examples: give `num_input_pipelines`
    and `input_pipeline_id`, and the batch size of one process. The parts are disjoint and make
    up the whole in each epoch. They are whole files where the files divide evenly or there are
    ten for each process, and every n-th record otherwise. The dataset then tells
    `tf.distribute` to shard no further (AutoShardPolicy.OFF). With one pipeline it tells it to
    shard by batches (AutoShardPolicy.DATA), for the batch size of all processes together.

    Styles of preprocessing, the default of a data set first:

    | data sets | style | in training | otherwise | values |
    |---|---|---|---|---|
    | mnist, digits | lenet | central part | the same | -1 to 1 |
    | cifar10 | cifarnet | random part, mirrored, contrast | central part | standardized |
    | | resnet | shifted by up to 4 pixels, mirrored | central part | normalized |
    | imagenet, flowers | inception | random part, mirrored, colours | central 87.5 % | -1 to 1 |
    | | alexnet | random part of 256 x 256, mirrored | its centre | less the mean |
    | | vgg | random part of a random size, mirrored | centre of size 256 | less the mean |
    | | resnet | random part resized, mirrored | centre of size 256 | normalized |

    Each has a module in `slim_data/preprocessing` (`cifar_resnet.py` for CIFAR-10's resnet) that
    gives the formulas. Resizing is described in its `resizing.py`.

    Args:
        name: name of the data set, one of `DATASETS`.
        data_dir: folder that `convert` wrote to.
        split: one of the data set's splits.
        batch_size: examples a batch.
        image_size: height and width of the images in pixels.
        training: whether to shuffle and distort.
        preprocessing: style of preprocessing, see above; the data set's default if None.
        num_readers: files read at once, in turns; with one, files are read one after the other.
        shuffle_buffer: examples (not decoded) to draw from in training.
        seed: int, of the order in training.
        start_step: batches to leave out at the beginning, as if they had been consumed.
        drop_remainder: whether to drop a last, smaller batch; `repeat`, which has none, by default.
        repeat: whether to start over at the end of the examples. Default False.
        num_input_pipelines: number of processes that divide the examples among them.
        input_pipeline_id: number of this process, from 0.
        num_parallel_calls: threads that decode; TensorFlow chooses by default.
        skip_corrupt_records: whether to leave out records that cannot be read. All are read once
            beforehand to find them (see `corrupt_records`), so that order, position and number of
            examples are as exact as without. Each is logged as a warning, and their number.

    Returns:
        A dataset of (images, labels): float32 of shape [batch, image_size, image_size, channels],
        and int32 of shape [batch].

    Raises:
        DataError: an argument is out of range, or files are missing, incomplete, empty or
            truncated. A damaged record raises a `tf.errors.OpError` during iteration: see
            `explained`.

    Example:
        >>> test = slim_data.load("digits", "/data/digits", "test", 100, 28, training=False)
        >>> sum(len(labels) for images, labels in test)
        360
    """
    check_at_least(
        1,
        batch_size=batch_size,
        image_size=image_size,
        num_readers=num_readers,
        shuffle_buffer=shuffle_buffer,
        num_input_pipelines=num_input_pipelines,
        **({} if num_parallel_calls is None else {"num_parallel_calls": num_parallel_calls}),
    )
    check_at_least(-(2**63), seed=seed)
    check_at_least(0, start_step=start_step, input_pipeline_id=input_pipeline_id)
    if input_pipeline_id >= num_input_pipelines:
        raise DataError(
            f"`input_pipeline_id` must be less than num_input_pipelines={num_input_pipelines}. "
            f"Received: input_pipeline_id={input_pipeline_id}"
        )
    dataset = registry.info(name, data_dir)
    style = _style(dataset, preprocessing, image_size)
    drop_remainder = repeat if drop_remainder is None else drop_remainder

    files = data_files.find_files(name, data_dir, split)
    corrupt = _skipped(name, data_dir, split) if skip_corrupt_records else None
    # (n, i): of the records read, this pipeline takes every n-th from the i-th on.
    part = (num_input_pipelines, input_pipeline_id)
    if shards_by_file(len(files), num_input_pipelines):
        files, part = files[input_pipeline_id::num_input_pipelines], (1, 0)
    num_examples = None
    # TensorFlow takes a file that ends inside a record's header (12 bytes) for whole. In large
    # data sets records are large as well: a cut hardly ever falls there, but looking takes long.
    if record_files.total_size(files) <= _CHECKED_SIZE or (repeat and (start_step or part[0] > 1)):
        num_examples = _num_examples(files, corrupt, part, repeat)
    first_epoch, num_skipped = 0, start_step * batch_size
    if repeat and start_step:
        first_epoch, num_skipped = divmod(num_skipped, num_examples)

    read = reading.reader(files, corrupt or [])

    def epoch(number):
        if not training:
            return reading.in_order(files, read, num_readers).shard(*part)
        # Every pipeline must agree on the order of files for their parts to be disjoint.
        common_seed = tf.stack([seed, number])
        records = reading.in_random_order(files, read, num_readers, common_seed)
        own_seed = tf.random.experimental.stateless_fold_in(
            common_seed, input_pipeline_id, alg="philox"
        )
        return reading.shuffled(records.shard(*part), shuffle_buffer, own_seed)

    if repeat:
        epochs = tf.data.Dataset.range(first_epoch, tf.int64.max)
    else:
        epochs = _one_epoch(seed)
    records = epochs.flat_map(epoch)
    if num_skipped:
        records = records.skip(num_skipped)
    batching = Batching(
        dataset=dataset,
        style=style,
        image_size=image_size,
        distorted=training and style.distort is not None,
        batch_size=batch_size,
        drop_remainder=drop_remainder,
        num_parallel_calls=num_parallel_calls or tf.data.AUTOTUNE,
    )
    own_seed = tf.constant([seed, input_pipeline_id], tf.int64)
    own_seed = tf.random.stateless_uniform([], own_seed, None, None, tf.int64, alg="philox")
    batches = batching.batches(records, own_seed, start_step)
    # Keras asks for the number of batches; TensorFlow cannot tell it by itself.
    if repeat:
        num_batches = tf.data.INFINITE_CARDINALITY
    elif num_examples is None:
        num_batches = tf.data.UNKNOWN_CARDINALITY
    else:
        num_left = max(num_examples - num_skipped, 0)
        num_batches = (num_left if drop_remainder else num_left + batch_size - 1) // batch_size
    batches = batches.apply(tf.data.experimental.assert_cardinality(num_batches))
    return batches.prefetch(tf.data.AUTOTUNE).with_options(_options(num_input_pipelines))


def shards_by_file(num_files, num_input_pipelines):
    """Whether pipelines divide a split by whole files, which costs no reading in vain.

    If the files do not divide evenly, the pipelines that hold fewer show their examples more
    often than the others do; with ten files each, by a tenth at most.
    """
    return (
        num_files % num_input_pipelines == 0
        or num_files >= _FILES_FOR_EACH_PIPELINE * num_input_pipelines
    )


def _style(dataset, name, image_size):
    """Returns the `Preprocessing` of a data set that has a name, the default's for None."""
    styles = dataset.preprocessings
    name = next(iter(styles)) if name is None else name
    if name not in styles:
        raise DataError(
            f"`preprocessing` must be one of {', '.join(styles)} for {dataset.name}. "
            f"Received: preprocessing={name!r}"
        )
    largest = styles[name].largest_size
    if largest is not None and image_size > largest:
        raise DataError(
            f"`image_size` must be at most {largest} with preprocessing={name!r}. "
            f"Received: image_size={image_size}"
        )
    return styles[name]


def _skipped(name, data_dir, split):
    """Returns the `CorruptRecord`s of a split, after reporting them."""
    found = corrupt_records.corrupt_records(name, data_dir, split)
    for record in found:
        rest = " and all that follows in this file" if record.ends_file else ""
        _LOG.warning("skipped%s: %s", rest, record.error())
    _LOG.warning("%d corrupt %s records of %s skipped", len(found), split, name)
    return found


def _one_epoch(seed):
    """Returns a dataset of one number, another one in each pass over it."""

    @tf.function
    def draw():
        # As in `reading.shuffled`: the global seed would be mixed in.
        tf.compat.v1.set_random_seed(1)
        return tf.data.Dataset.random(seed, rerandomize_each_iteration=True).take(1)

    return draw()


def _num_examples(files, corrupt, part, repeat):
    """Returns how many records of `files` this pipeline takes in an epoch."""
    num_pipelines, pipeline = part
    num_examples = len(range(pipeline, reading.count(files, corrupt), num_pipelines))
    if num_examples == 0 and repeat:
        # Repeating nothing would never yield a batch, nor end.
        raise DataError(
            f"`num_input_pipelines` must be at most the number of examples. "
            f"Received: num_input_pipelines={num_pipelines}"
        )
    return num_examples


def _options(num_input_pipelines):
    options = tf.data.Options()
    options.deterministic = True
    policy = tf.data.experimental.AutoShardPolicy
    options.experimental_distribute.auto_shard_policy = (
        policy.DATA if num_input_pipelines == 1 else policy.OFF
    )
    return options
