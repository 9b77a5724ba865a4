"""Compares when each bucket of gradients is sent with the backward pass, from a traced step.

    python -m benchmarks.overlap --rate=1gbit

Trains a stack of dense layers with stock `model.fit` on hosts of this machine (see
`lib/netns.sh`: Linux, root, iproute2) and traces the first host with TensorFlow's profiler.
Times are milliseconds since the backward pass of the last step began. A bucket first exchanges its
scales, then its words.
"""

import json
import os
import pathlib
import re
import tempfile

from absl import flags

from benchmarks.lib import cluster_hosts, figures, markdown, program

_HOSTS = flags.DEFINE_integer("hosts", 2, "Number of hosts.", lower_bound=2)
_RATE = flags.DEFINE_string("rate", "1gbit", "Rate of the links, or 'none'.")
_LAYERS = flags.DEFINE_integer("layers", 6, "Dense layers.", lower_bound=1)
_UNITS = flags.DEFINE_integer("units", 2048, "Units of each layer.", lower_bound=1)
_BATCH = flags.DEFINE_integer("batch_size", 256, "Examples per host.", lower_bound=1)
_JSON = flags.DEFINE_string("json", None, "File that receives the figures.")
_WORKER = flags.DEFINE_bool("worker", False, "Set by the benchmark itself.")

PREFIX = "tgo"
SUBNET = "10.97.0"
PORT = 4711
STEPS = 4
STEP = "overlap_step"

_BACKWARD = re.compile(r"(^|/)gradient_tape/.*:")
_COLLECTIVE = re.compile(r"(^|/)bucket_(\d+)/Collective\w+:Collective")


def _events(folder):
    """Returns (name, begin, end) of all profiled events of the last step, in milliseconds."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    (path,) = pathlib.Path(folder).rglob("*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(path.read_bytes())
    events = []
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                begin = line.timestamp_ns / 1e6 + event.offset_ps / 1e9
                name = plane.event_metadata[event.metadata_id].name
                events.append((name, begin, begin + event.duration_ps / 1e9))
    step_begin = max(begin for name, begin, _ in events if name == STEP)
    return [event for event in events if event[1] >= step_begin]


def summarize(events):
    """Returns the times of the backward pass and of each bucket's exchange.

    Args:
        events: (name, begin, end) of the events of one step.

    Returns:
        Dict with `backward_end` and `buckets`, dicts with `scales_sent`, `words_sent` and
        `received`; times count from the beginning of the backward pass.
    """
    backward, collectives = [], {}
    for name, begin, end in events:
        if match := _COLLECTIVE.search(name):
            collectives.setdefault(int(match[2]), []).append((begin, end))
        elif _BACKWARD.search(name):
            backward.append((begin, end))
    zero = min(begin for begin, _ in backward)
    buckets = []
    for _, spans in sorted(collectives.items()):
        begins = sorted(begin - zero for begin, _ in spans)
        received = max(end for _, end in spans) - zero
        buckets.append({"scales_sent": begins[0], "words_sent": begins[1], "received": received})
    return {"backward_end": max(end for _, end in backward) - zero, "buckets": buckets}


def _work():
    """Trains on one host and prints the times of a traced step."""
    import keras
    import tensorflow as tf

    import terngrad_tf

    threads = max(1, (os.cpu_count() or 1) // _HOSTS.value)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    strategy = terngrad_tf.TernGradStrategy()
    with strategy.scope():
        layers = [keras.layers.Dense(_UNITS.value, "relu") for _ in range(_LAYERS.value)]
        model = keras.Sequential([keras.layers.Input((_UNITS.value,)), *layers])
        model.compile("sgd", "mse")
    batch = tf.ones([_BATCH.value, _UNITS.value])
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    data = tf.data.Dataset.from_tensors((batch, batch)).repeat().with_options(options)

    def mark(batch, logs):
        del batch, logs
        with tf.profiler.experimental.Trace(STEP):
            pass

    marks = keras.callbacks.LambdaCallback(on_train_batch_begin=mark)
    model.fit(data, steps_per_epoch=STEPS, verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            model.fit(data, steps_per_epoch=STEPS, verbose=0, callbacks=[marks])
        print(json.dumps(summarize(_events(folder))), flush=True)


def main():
    """Traces one step and prints when its parts began and ended."""
    if _WORKER.value:
        return _work()
    network = cluster_hosts.Network(PREFIX, SUBNET, _HOSTS.value)
    options = {flag.name: flag.value for flag in (_HOSTS, _LAYERS, _UNITS, _BATCH)}
    command = cluster_hosts.command("benchmarks.overlap", worker=True, **options)
    with network.up(_RATE.value), network.processes(PORT, [command] * _HOSTS.value) as hosts:
        summary, *_ = [host.answer() for host in hosts]
    end = summary["backward_end"]
    print(f"the backward pass ends after {end:.1f} ms")
    titles = "bucket | scales sent, ms | words sent, ms | sums received, ms | words sent before"
    print(markdown.head(titles))
    for number, bucket in enumerate(summary["buckets"]):
        times = [f"{bucket[name]:.1f}" for name in ("scales_sent", "words_sent", "received")]
        before = "yes" if bucket["words_sent"] < end else "no"
        print(markdown.row([number, *times, before]))
    if _JSON.value:
        figures.write_json(_JSON.value, {"rate": _RATE.value, "hosts": _HOSTS.value, **summary})


if __name__ == "__main__":
    program.run(main)
