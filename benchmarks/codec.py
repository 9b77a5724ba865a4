"""Compares the speed of encoding and decoding with `x * 2` and with ops that are not fused.

    python -m benchmarks.codec --elements=16777216 --rounds=15 --json=codec.json

All candidates run in turn, round after round, so that other work of the machine meets all of them
alike. A ratio is the median over rounds of a candidate's time divided by the time of `x * 2` in the
same round. `x * 2` is the eager TensorFlow op, on all cores or on the GPU if there is one: the op
reads and writes every element once, and XLA compiles it to nothing better. The others are functions
as in a training step; their words stay on the device. "rotated" is ternary codes of blocks that are
rotated before rounding, rotation included. "4-bit" is codes of four bits. "sparse" is the streams
of the sparse wire with a share of `--nonzero` nonzero codes: rounding and compressing, and the way
back. "largest" is the work of error feedback for the same number of codes. The unfused sequence is
the usual way to write TernGrad in single ops (draw, compare, select, add four quarters into bytes;
divide, join, cut), run as one graph.
"""

import math
import os
import statistics
import time

import tensorflow as tf
from absl import flags

from benchmarks.lib import figures, program
from terngrad_tf import ternary

_ELEMENTS = flags.DEFINE_integer("elements", 2**24, "Elements of the tensor.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 15, "Timed rounds.", lower_bound=1)
_CLIP_FACTOR = flags.DEFINE_float("clip_factor", 2.5, "Standard deviations to clip at.")
_BASE = flags.DEFINE_integer("base", 3, "Base of the digits: 3, or 4 for two bits each.")
_NONZERO = flags.DEFINE_float(
    "nonzero", 0.016, "Share of nonzero codes in sparse streams.", 1e-6, 0.7
)
_JSON = flags.DEFINE_string("json", None, "File to write the figures to.")
# Levels of four-bit codes.
_FINER = 7


@tf.function(autograph=False)
def unfused_encode(gradient, scale):
    """Ternarizes, then adds four quarters of 2-bit codes in float32 and casts to bytes."""
    size = gradient.shape[0]
    threshold = tf.random.uniform([size]) * scale
    ternary_gradient = tf.where(
        threshold < tf.abs(gradient), scale * tf.sign(gradient), tf.zeros_like(gradient)
    )
    code = tf.sign(ternary_gradient) + 1.0
    first, second, third, fourth = tf.split(tf.concat([code, tf.ones([-size % 4])], 0), 4)
    return tf.cast((first + second * 4.0) + (third * 16.0 + fourth * 64.0), tf.uint8)


@tf.function(autograph=False)
def unfused_decode(packed, size, scale):
    """Inverts `unfused_encode` with int32 divisions and remainders."""
    packed = tf.cast(packed, tf.int32)
    quarters = [packed // 4**place % 4 for place in range(4)]
    return (tf.cast(tf.concat(quarters, 0), tf.float32)[:size] - 1.0) * scale


def in_a_step(function):
    """Returns a function without arguments as a graph; casts int32 results to uint32."""

    def run():
        result = function()
        is_words = tf.is_tensor(result) and result.dtype == tf.int32
        return tf.bitcast(result, tf.uint32) if is_words else result

    return tf.function(run, autograph=False)


def candidates(size, clip_factor, base, nonzero):
    """Returns the functions to time, without arguments, by name."""
    gradient = tf.random.stateless_normal([size], [1, 2])
    scales = ternary.local_scales([gradient], clip_factor)
    kwargs = {"seed": 0, "num_replicas": 4}
    kwargs |= {"step": tf.constant(7, tf.int64), "replica": tf.constant(1)}

    def encode():
        return ternary.encode([gradient], scales, base=base, **kwargs)

    def encode_sparse():
        # The mean of |g| is sqrt(2 / pi).
        large_scales = tf.constant([math.sqrt(2 / math.pi) / nonzero])
        codes = ternary.encode([gradient], large_scales, base=4, **kwargs)
        return ternary.compress(codes)

    def decode_sparse():
        codes = ternary.decompress(tf.bitcast(stream, tf.int32), ternary.num_words(size, 4))
        return ternary.decode(
            codes[tf.newaxis], scales, [[size]], [tf.float32], base=4, total_bias=1
        )

    def encode_finer():
        return ternary.encode([gradient], scales, base=2 * _FINER + 1, levels=_FINER, **kwargs)

    def decode_finer():
        of_sender = tf.bitcast(finer_words, tf.int32)[tf.newaxis]
        how = {"base": 2 * _FINER + 1, "total_bias": _FINER}
        return ternary.decode(of_sender, scales, [[size]], [tf.float32], **how)

    # Unsigned: functions return int32 in the host's memory, for every device.
    stream = in_a_step(encode_sparse)()
    words, finer_words = in_a_step(encode)(), in_a_step(encode_finer)()

    def decode():
        of_sender = tf.bitcast(words, tf.int32)[tf.newaxis]
        return ternary.decode(of_sender, scales, [[size]], [tf.float32], base=base, total_bias=1)

    rotation = ternary.Rotation([[size]], levels=1, num_replicas=4)
    signs = {"seed": 0, "step": kwargs["step"], "tensor": 0}
    measured = in_a_step(lambda: rotation.measure([gradient]))()
    ones = tf.ones([len(rotation.sizes)])

    def encode_rotated():
        vectors = rotation.rotate([gradient], measured, measured[0], **signs)
        return ternary.encode(vectors, ones, base=base, **kwargs)

    rotated_words = in_a_step(encode_rotated)()

    def decode_rotated():
        vectors = ternary.decode(
            tf.bitcast(rotated_words, tf.int32)[tf.newaxis],
            ones,
            [[length] for length in rotation.sizes],
            [tf.float32] * len(rotation.sizes),
            base=base,
            total_bias=1,
        )
        return rotation.rotate_back(vectors, measured[0], [tf.float32], **signs)

    packed = unfused_encode(gradient, scales[0])
    return {
        "x * 2": lambda: gradient * 2,
        "encode": in_a_step(encode),
        "decode": in_a_step(decode),
        "encode rotated": in_a_step(encode_rotated),
        "decode rotated": in_a_step(decode_rotated),
        "scale rotated": in_a_step(lambda: rotation.measure([gradient])),
        "encode 4-bit": in_a_step(encode_finer),
        "decode 4-bit": in_a_step(decode_finer),
        "encode sparse": in_a_step(encode_sparse),
        "decode sparse": in_a_step(decode_sparse),
        "largest": in_a_step(lambda: ternary.largest_as_codes([gradient], nonzero)),
        "scale": in_a_step(lambda: ternary.local_scales([gradient], clip_factor)),
        "unfused encode": lambda: unfused_encode(gradient, scales[0]),
        "unfused decode": lambda: unfused_decode(packed, tf.constant(size), scales[0]),
    }


def time_rounds(functions, rounds):
    """Returns the seconds of each function in each round, after one that compiles."""
    seconds = {name: [] for name in functions}
    for timed in range(-1, rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            result = function()
            tf.test.experimental.sync_devices()
            elapsed = time.perf_counter() - start
            del result
            if timed >= 0:
                seconds[name].append(elapsed)
    return seconds


def summarize(seconds, size):
    """Returns medians, and ratios to `x * 2` and the unfused sequence, a row per function."""

    def ratio(name, other):
        return statistics.median(a / b for a, b in zip(seconds[name], seconds[other], strict=True))

    rows = []
    for name, times in seconds.items():
        median = statistics.median(times)
        row = {
            "name": name,
            "milliseconds": 1e3 * median,
            "million_elements_per_second": size / median / 1e6,
            "time_against_x2": ratio(name, "x * 2"),
        }
        if name in ("encode", "decode"):
            row["times_faster_than_unfused"] = ratio(f"unfused {name}", name)
        rows.append(row)
    return rows


def table(rows):
    """Returns the rows as text."""
    lines = [f"{'':16}{'ms':>10}{'M elem/s':>12}{'/ x * 2':>10}{'unfused /':>12}"]
    for row in rows:
        faster = row.get("times_faster_than_unfused")
        lines.append(
            f"{row['name']:16}{row['milliseconds']:10.2f}"
            f"{row['million_elements_per_second']:12.0f}{row['time_against_x2']:10.2f}"
            + (f"{faster:12.1f}" if faster else "")
        )
    return "\n".join(lines)


def main():
    """Runs all candidates and prints their table."""
    size = _ELEMENTS.value
    functions = candidates(size, _CLIP_FACTOR.value, _BASE.value, _NONZERO.value)
    bits = 32 * functions["encode sparse"]().shape[0] / size
    seconds = time_rounds(functions, _ROUNDS.value)
    rows = summarize(seconds, size)
    devices = ", ".join(d.device_type for d in tf.config.list_logical_devices())
    print(
        f"{size:,} float32 elements, base {_BASE.value}, median of {_ROUNDS.value} rounds,"
        f" {os.cpu_count()} cores ({devices}), TensorFlow {tf.__version__}"
    )
    print(table(rows))
    print(f"sparse: {_NONZERO.value:.2%} nonzero, {bits:.3f} bits per element")
    if _JSON.value:
        figures.write_json(
            _JSON.value,
            {
                "elements": size,
                "base": _BASE.value,
                "rounds": _ROUNDS.value,
                "nonzero": _NONZERO.value,
                "sparse_bits": bits,
                "tensorflow": tf.__version__,
                "rows": rows,
            },
        )


if __name__ == "__main__":
    program.run(main)
