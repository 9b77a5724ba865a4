"""From shards to batches: the one builder of `tf.data` pipelines.

A training stream is the concatenation of epochs 0, 1, 2, ... Each epoch is a function of (seed,
number of the epoch) alone: its order of files, the interleaving of the readers and the shuffle
buffer's draws. So a stream can start at any step: whole epochs are left out by counting, the rest
of one by skipping records before they are decoded.
"""

from slim_data import datasets, decoding, framing, shards
from slim_data.arguments import check_at_least
from slim_data.errors import DataError
from slim_data.lazy import tf

# Up to this size, in bytes, the framing of all files is read before the first record.
_CHECKED_SIZE = 2**30
# With at least so many files for each pipeline, their unequal sizes hardly matter.
_FILES_FOR_EACH_PIPELINE = 10


def load(
    name,
    data_dir,
    split,
    batch_size,
    image_size,
    training,
    *,
    num_readers=4,
    shuffle_buffer=16 * 1024,
    seed=1,
    start_step=0,
    drop_remainder=None,
    repeat=None,
    num_input_pipelines=1,
    input_pipeline_id=0,
    num_parallel_calls=None,
):
    """Returns batches of images and labels as a `tf.data.Dataset`.

    For training, examples are shuffled anew in each epoch and repeated without end; batches run on
    over the end of an epoch. Otherwise each example comes once, in the order of the files, and
    the last batch may be smaller. Equal arguments give equal batches, whatever the number of
    threads and the global random seed.

    In a cluster each process can take its own part of the examples: give `num_input_pipelines`
    and `input_pipeline_id`, and the batch size of one process. The parts are disjoint and make
    up the whole in each epoch. They are whole files where the files divide evenly or there are
    ten for each process, and every n-th record otherwise. The dataset then tells
    `tf.distribute` to shard no further (AutoShardPolicy.OFF). With one pipeline it tells it to
    shard by batches (AutoShardPolicy.DATA), for the batch size of all processes together.

    Args:
        name: name of the data set, one of `DATASETS`.
        data_dir: folder that `convert` wrote to.
        split: one of the data set's splits.
        batch_size: examples a batch.
        image_size: height and width of the images in pixels; cropped or padded to it.
        training: whether to shuffle and distort, and the default of `repeat` and `drop_remainder`.
        num_readers: files read at once in training; otherwise one is, in order.
        shuffle_buffer: examples (not decoded) to draw from in training.
        seed: int, of the order in training.
        start_step: batches to leave out at the beginning, as if they had been consumed.
        drop_remainder: whether to drop a last, smaller batch; `training` by default.
        repeat: whether to start over at the end of the examples; `training` by default.
        num_input_pipelines: number of processes that divide the examples among them.
        input_pipeline_id: number of this process, from 0.
        num_parallel_calls: threads that decode; TensorFlow chooses by default.

    Returns:
        A dataset of (images, labels): float32 of shape [batch, image_size, image_size, channels],
        and int32 of shape [batch]. Images of MNIST and digits are in [-1, 1]; those of CIFAR-10
        have mean 0 and deviation 1 each, and in training are distorted at random.

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
    dataset = datasets.info(name)
    files = shards.find_files(name, data_dir, split)
    drop_remainder = training if drop_remainder is None else drop_remainder
    repeat = training if repeat is None else repeat
    num_parallel_calls = num_parallel_calls or tf.data.AUTOTUNE

    # (n, i): of the records read, this pipeline takes every n-th from the i-th on.
    part = (num_input_pipelines, input_pipeline_id)
    if shards_by_file(len(files), num_input_pipelines):
        files, part = files[input_pipeline_id::num_input_pipelines], (1, 0)
    num_examples = None
    # TensorFlow takes a file that ends inside a record's header (12 bytes) for whole. In large
    # data sets records are large as well: a cut hardly ever falls there, but looking takes long.
    if framing.total_size(files) <= _CHECKED_SIZE or (repeat and (start_step or part[0] > 1)):
        num_examples = _num_examples(files, part, repeat)
    first_epoch, num_skipped = 0, start_step * batch_size
    if repeat and start_step:
        first_epoch, num_skipped = divmod(num_skipped, num_examples)

    def epoch(number):
        if not training:
            return tf.data.TFRecordDataset(files).shard(*part)
        return _shuffled_records(
            files, part, num_readers, shuffle_buffer, tf.stack([seed, number]), input_pipeline_id
        )

    def decode(serialized):
        image, label = decoding.decode(serialized, dataset)
        return decoding.crop_or_pad(image, image_size), label

    def distort(position, serialized):
        image, label = decoding.decode(serialized, dataset)
        own_seed = tf.random.experimental.stateless_fold_in(
            tf.stack([seed, position]), input_pipeline_id, alg="philox"
        )
        return dataset.distort(image, image_size, own_seed), label

    epochs = tf.data.Dataset.range(first_epoch, tf.int64.max if repeat else 1)
    examples = epochs.flat_map(epoch)
    distorted = training and dataset.distort is not None
    if distorted:
        # By its position in the stream, whatever step that starts at, an image gets its seed.
        examples = examples.enumerate(first_epoch * num_examples if first_epoch else 0)
    if num_skipped:
        examples = examples.skip(num_skipped)
    examples = examples.map(distort if distorted else decode, num_parallel_calls=num_parallel_calls)
    examples = examples.batch(batch_size, drop_remainder=drop_remainder)
    examples = examples.map(lambda images, labels: (dataset.normalize(images), labels))
    # Keras asks for the number of batches; TensorFlow cannot tell it by itself.
    if repeat:
        num_batches = tf.data.INFINITE_CARDINALITY
    elif num_examples is None:
        num_batches = tf.data.UNKNOWN_CARDINALITY
    else:
        num_left = max(num_examples - num_skipped, 0)
        num_batches = (num_left if drop_remainder else num_left + batch_size - 1) // batch_size
    examples = examples.apply(tf.data.experimental.assert_cardinality(num_batches))
    return examples.prefetch(tf.data.AUTOTUNE).with_options(_options(num_input_pipelines))


def shards_by_file(num_files, num_input_pipelines):
    """Whether pipelines divide a split by whole files, which costs no reading in vain.

    If the files do not divide evenly, the pipelines that hold fewer show their examples more
    often than the others do; with ten files each, by a tenth at most.
    """
    return (
        num_files % num_input_pipelines == 0
        or num_files >= _FILES_FOR_EACH_PIPELINE * num_input_pipelines
    )


def _shuffled_records(files, part, num_readers, shuffle_buffer, seed, input_pipeline_id):
    """Returns the serialized examples of the epoch that `seed`, int64 [2], stands for."""
    # tf.data mixes the global seed, as it finds it here, into the shuffle buffer's: pinned in
    # this function's graph, so that the order depends on the arguments alone.
    tf.compat.v1.set_random_seed(1)
    # Every pipeline must agree on the order of files for their parts to be disjoint.
    order = tf.random.experimental.stateless_shuffle(files, seed, alg="philox")
    records = tf.data.Dataset.from_tensor_slices(order).interleave(
        tf.data.TFRecordDataset,
        cycle_length=num_readers,
        num_parallel_calls=num_readers,
        deterministic=True,
    )
    own_seed = tf.random.experimental.stateless_fold_in(seed, input_pipeline_id, alg="philox")
    draws = tf.random.stateless_uniform([], own_seed, None, None, tf.int64, alg="philox")
    return records.shard(*part).shuffle(shuffle_buffer, draws, reshuffle_each_iteration=False)


def _num_examples(files, part, repeat):
    """Returns how many records of `files` this pipeline takes in an epoch."""
    num_pipelines, pipeline = part
    num_examples = len(range(pipeline, framing.count_examples(files), num_pipelines))
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
