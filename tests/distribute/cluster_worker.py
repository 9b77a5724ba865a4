"""One process of a cluster: runs the jobs that its argument names and saves the results.

Run by `cluster_test.py` with TF_CONFIG set: `python cluster_worker.py OUTPUT.npz JSON`.
"""

import contextlib
import hashlib
import os
import time
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.distribute import Quantization, Telemetry, TernGradStrategy, advise
from terngrad_tf.distribute.wire_selection import links, mode_choice, wire_choice, wire_trial
from tests.distribute import optimizer_cases, processes, uneven_cases
from tests.distribute.samples import build, data, draw_masks, gradients_of, reduce_once


def reduce_gradients(config):
    """The reduced tensors for each wire, with one strategy per wire."""
    results = {}
    for wire in config["wires"]:
        strategy = TernGradStrategy(
            config["num_local"],
            wire=wire,
            telemetry_freq=1,
            quantization=Quantization(rotate=False, seed=5),
        )
        num_workers = strategy.num_replicas_in_sync
        gradients = [gradients_of(worker) for worker in range(num_workers)]
        for index, value in enumerate(reduce_once(strategy, gradients)):
            results[f"{wire}/{index}"] = value
        results[f"{wire}/received_bytes"] = strategy.traffic.received_bytes
        last = strategy.telemetry.last
        results[f"{wire}/quality"] = [last.nonzero_share, last.cosine, last.relative_error]
        phases = (last.encode_seconds, last.exchange_seconds, last.decode_seconds)
        results[f"{wire}/seconds"] = [last.scale_seconds or 0.0, *phases]
        results[f"{wire}/measured_bytes"] = last.received_bytes
    for wire in config.get("finer_wires", []):
        strategy = TernGradStrategy(
            config["num_local"], wire=wire, quantization=Quantization(seed=5, grad_bits=4)
        )
        gradients = [gradients_of(worker) for worker in range(strategy.num_replicas_in_sync)]
        for index, value in enumerate(reduce_once(strategy, gradients)):
            results[f"{wire}/finer/{index}"] = value
    return results


def choose(config):
    """Results of a step with "auto" on measured and on slow links, and with "allgather"."""
    slow = links.Link(8 / 1e6, 1e-3)
    rng = np.random.default_rng(0)
    # Few elements are large, so few codes are nonzero.
    gradients = [
        [(rng.standard_normal(shape) ** 5).astype(np.float32) for shape in config["shapes"]]
        for _ in range(2)
    ]
    results = {}
    for name, wire, link in (
        ("measured", "auto", None),
        ("slow", "auto", slow),
        ("usual", "allgather", None),
    ):
        found = mock.patch.object(links, "measure", return_value=link)
        with found if link else contextlib.nullcontext():
            strategy = TernGradStrategy(
                1, wire=wire, quantization=Quantization(rotate=False, seed=5)
            )
            reduced = reduce_once(strategy, gradients)
        results[f"{name}/wire"] = strategy.traffic.wire
        results[f"{name}/received_bytes"] = strategy.traffic.received_bytes
        results[f"{name}/sums"] = np.concatenate([np.ravel(total) for total in reduced])
    return results


def choose_mode(config):
    """Results of a step in the mode that measurements choose, and in 4-bit mode."""
    del config
    seconds = {mode.name: 1.0 + (mode.name != "4 bits") for mode in mode_choice.AUTO_MODES}
    expected = mock.patch.object(mode_choice, "expected_seconds", return_value=seconds)
    results = {}
    for name, found in (("measured", contextlib.nullcontext()), ("finer", expected)):
        with found:
            strategy = TernGradStrategy(1, grad_bits="auto", quantization=Quantization(seed=5))
            gradients = [gradients_of(worker) for worker in range(2)]
            for index, value in enumerate(reduce_once(strategy, gradients)):
                results[f"{name}/{index}"] = value
        results[f"{name}/choice"] = strategy.wire_choices[0]
    return results


class Wires(keras.callbacks.Callback):
    """Records the wires that steps take."""

    def __init__(self, strategy):
        super().__init__()
        self._strategy = strategy
        self.wires = set()

    def on_train_batch_end(self, batch, logs=None):
        self.wires.add(self._strategy.traffic.wire)


def tried(config):
    """Results of `fit` with wires that steps try and with one wire, and the wires taken."""
    del config
    slow = links.Link(8 / 1e3, 1e-6)
    x, y = data()
    results = {}
    with (
        mock.patch.object(links, "measure", return_value=slow),
        mock.patch.object(wire_choice, "MIN_ELEMENTS", 1),
        mock.patch.multiple(wire_trial, REST=1, TRIES=2, PERIOD=8),
    ):
        for wire in ("auto", "allgather"):
            strategy = TernGradStrategy(
                1,
                wire=wire,
                telemetry_freq=2,
                quantization=Quantization(
                    rotate=False, seed=5, float_steps=lambda step: step % 5 == 4
                ),
            )
            model = build(strategy, steps_per_execution=3)
            seen = Wires(strategy)
            model.fit(x, y, batch_size=16, epochs=2, verbose=0, callbacks=[seen])
            results[f"{wire}/weights"] = np.concatenate(
                [np.ravel(weight) for weight in model.get_weights()]
            )
            results[f"{wire}/wires"] = sorted(seen.wires)
            results[f"{wire}/reasons"] = strategy.wire_choices
    return results


def collectives(config):
    """The results of collectives; each process brings other multiples of 0, 1, 2..."""
    group = TernGradStrategy().extended.process_group
    results = {}
    for size in config["sizes"]:
        words = tf.range(size) * (group.rank + 1)
        numbers = -tf.cast(words, tf.float32)
        for name, function, brought in (
            ("gathered", group.all_gather, words),
            ("sum", group.all_reduce_sum, numbers),
            ("max", group.all_reduce_max, numbers),
        ):
            run = tf.function(lambda f=function, b=brought: f(b), autograph=False)
            results[f"{name}/{size}"] = run().numpy()
    return results


def float_steps(config):
    """Reduced tensors of a ternary and a float step of one strategy, and of a float strategy."""
    strategies = {
        "mixed": TernGradStrategy(
            config["num_local"],
            statistics_freq=4,
            quantization=Quantization(seed=5, float_steps=lambda step: step == 7),
        ),
        "float": TernGradStrategy(config["num_local"], grad_bits=32),
    }
    results = {}
    for name, strategy in strategies.items():
        gradients = [gradients_of(worker) for worker in range(strategy.num_replicas_in_sync)]
        for step in (0, 7):
            with strategy.scope():
                optimizer = keras.optimizers.SGD(1.0)
                optimizer.iterations.assign(step)
            for index, value in enumerate(reduce_once(strategy, gradients, optimizer=optimizer)):
                results[f"{name}/{step}/{index}"] = value
    recorded = strategies["mixed"].gradient_statistics["v3"]
    results["statistics"] = [recorded.step, recorded.negative, recorded.zero, recorded.positive]
    return results


def optimizers(config):
    """Trains every case's optimizer with float gradients."""
    return optimizer_cases.train(TernGradStrategy(config["num_local"], grad_bits=32))


def uneven(config):
    """Trains on batches that do not divide evenly."""
    return uneven_cases.train(TernGradStrategy(config["num_local"], grad_bits=32))


def masks(config):
    """The dropout masks of each local worker in two steps, and the final states."""
    strategy = TernGradStrategy(config["num_local"])
    drawn, states = draw_masks(strategy)
    return {"masks": drawn, "states": states}


def train(config):
    """Stock fit, evaluate, predict and save, with batch norm, dropout and uneven batches."""
    strategy = TernGradStrategy(config["num_local"], telemetry_freq=2)
    model = build(strategy, steps_per_execution=config["steps_per_execution"])
    x, y = data()
    telemetry = Telemetry(os.path.join(config["folder"], "telemetry"), every=2)
    fitted = {"epochs": 2, "validation_data": (x, y), "callbacks": [telemetry]}
    history = model.fit(x, y, batch_size=64, verbose=0, **fitted)
    advice, slow_advice = advise(strategy), advise(strategy, bits_per_second=1e4)
    loss, accuracy = model.evaluate(x, y, batch_size=43, verbose=0)
    predictions = model.predict(x, batch_size=64, verbose=0)
    weights = [v.numpy() for v in model.variables + model.optimizer.variables]
    if strategy.is_chief:
        # Saving must not wait for the other processes.
        model.save(os.path.join(config["folder"], "model.keras"))
        model.save_weights(os.path.join(config["folder"], "model.weights.h5"))
        tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(
            os.path.join(config["folder"], "checkpoint")
        )
    digest = hashlib.sha256(b"".join(w.tobytes() for w in weights)).hexdigest()
    return {
        "digest": digest,
        "advice": str(advice),
        "links": [advice.link.seconds_per_byte, advice.link.message_seconds],
        "float32_seconds": [advice.seconds["float32"], slow_advice.seconds["float32"]],
        "loss": loss,
        "accuracy": accuracy,
        "history_loss": history.history["loss"],
        "validation_loss": history.history["val_loss"],
        "predictions": predictions,
    }


def compiled(config):
    """Weights after float steps that XLA compiles."""
    strategy = TernGradStrategy(config["num_local"], grad_bits=32)
    model = build(strategy, synchronized=True, dropout=0.0, jit_compile=True)
    model.fit(*data(), batch_size=64, shuffle=False, verbose=0)
    return {str(i): w for i, w in enumerate(model.get_weights())}


def overflow(config):
    """Trains in mixed precision; only the last worker overflows."""
    strategy = TernGradStrategy(config["num_local"])
    keras.mixed_precision.set_global_policy("mixed_float16")
    model = build(strategy, dropout=0.0)
    keras.mixed_precision.set_global_policy("float32")
    x, y = data(64)
    model.fit(x, y, batch_size=64, shuffle=False, verbose=0)
    x[-1] = 1e9
    model.fit(x, y, batch_size=64, shuffle=False, verbose=0)
    return {
        "iterations": model.optimizer.iterations.numpy(),
        "finite": all(np.isfinite(v.numpy()).all() for v in model.trainable_variables),
    }


def overlap(config):
    """Makes the first layer's gradient wait until the last layer's scale is shared."""
    del config
    strategy = TernGradStrategy(1, statistics_freq=1, quantization=Quantization(rotate=False))

    def wait(gradient):
        deadline = time.monotonic() + 60
        while "last" not in strategy.gradient_statistics and time.monotonic() < deadline:
            time.sleep(0.01)
        return gradient if "last" in strategy.gradient_statistics else np.nan * gradient

    @tf.custom_gradient
    def waiting(x):
        return tf.identity(x), lambda g: tf.ensure_shape(
            tf.numpy_function(wait, [g], g.dtype, stateful=False), g.shape
        )

    with strategy.scope():
        first = keras.Variable(tf.ones([2048]), name="first")
        last = keras.Variable(tf.ones([2048, 2048]), name="last")
        optimizer = keras.optimizers.SGD(1.0)
        optimizer.build([first, last])

    @tf.function
    def step():
        def replica():
            with tf.GradientTape() as tape:
                hidden = waiting(first.value[tf.newaxis] * 2.0)
                loss = tf.reduce_sum(hidden @ last.value)
            optimizer.apply(tape.gradient(loss, [first, last]), [first, last])

        strategy.run(replica)

    step()
    return {"first": first.numpy()}


if __name__ == "__main__":
    # One thread may wait in the first layer's gradient in `overlap`.
    tf.config.threading.set_inter_op_parallelism_threads(4)
    jobs = {
        "collectives": collectives,
        "reduce": reduce_gradients,
        "choose": choose,
        "choose_mode": choose_mode,
        "tried": tried,
        "float_steps": float_steps,
        "masks": masks,
        "optimizers": optimizers,
        "uneven": uneven,
        "train": train,
        "compiled": compiled,
        "overflow": overflow,
        "overlap": overlap,
    }
    processes.main(jobs)
