"""One process of a cluster that trains with `grad_bits="auto"` and with the mode that it took.

Run by `mode_choice_test.py` with TF_CONFIG set: `python mode_choice_worker.py OUTPUT.npz JSON`.
"""

import os
from unittest import mock

import keras
import numpy as np

import terngrad_tf
from terngrad_tf.distribute import Quantization, TernGradStrategy, advise, all_gather_object
from terngrad_tf.distribute.wire_selection import links, mode_choice
from tests.distribute import processes
from tests.distribute.samples import build, data

OTHERS = {"quantize_logits": False, "seed": 5}
OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.01),
    "local_steps": lambda: terngrad_tf.DiLoCo(keras.optimizers.SGD(0.1), sync_every=2),
}


def quickest(name):
    """Patches expectations so that one mode is by far the quickest."""
    seconds = {mode.name: 1.0 + (mode.name != name) for mode in mode_choice.MODES}
    return mock.patch.object(mode_choice, "expected_seconds", return_value=seconds)


def strategies_of(mode, **options):
    """Yields the strategy that chooses, and one with the options of a mode."""
    rounding = {**OTHERS, **options}
    auto = {"grad_bits": "auto", "quantization": Quantization(**rounding)}
    fixed = {
        "wire": mode.wire,
        "quantization": Quantization(grad_bits=mode.grad_bits, **rounding),
    }
    for name, arguments in (("auto", auto), ("fixed", fixed)):
        yield name, TernGradStrategy(1, sparse_as_dense=True, telemetry_freq=2, **arguments)


def state_of(model):
    """The model's weights and its optimizer's variables in one vector."""
    variables = [*model.variables, *model.optimizer.variables]
    return np.concatenate([np.ravel(v.numpy()).astype(np.float64) for v in variables])


def advice_of(strategy):
    """The advice, or the refusal to give one."""
    try:
        return str(advise(strategy))
    except ValueError as error:
        return str(error)


def fixed_modes(config):
    """Results of `fit` with a chosen mode and with the same mode given."""
    x, y = data()
    results = {}
    for mode in mode_choice.MODES:
        if mode.name not in config["modes"]:
            continue
        with quickest(mode.name):
            for name, strategy in strategies_of(mode):
                optimizer = OPTIMIZERS[config["optimizer"]]
                model = build(strategy, optimizer=optimizer)
                model.fit(x, y, batch_size=16, epochs=1, verbose=0)
                results[f"{mode.name}/{name}/state"] = state_of(model)
                results[f"{mode.name}/{name}/bytes"] = strategy.traffic.received_bytes
                results[f"{mode.name}/{name}/wire"] = strategy.telemetry.last.wire
                # Rows of a later model's embeddings use this wire.
                results[f"{mode.name}/{name}/next_wire"] = (
                    strategy.extended.gradient_ops.options.wire
                )
                results[f"{mode.name}/{name}/choices"] = strategy.wire_choices
                results[f"{mode.name}/{name}/advice"] = advice_of(strategy)
    return results


def classifier(strategy):
    """A network with an embedding, whose gradient is sparse."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [keras.Input([4]), keras.layers.Embedding(50, 8), keras.layers.Flatten()]
        model = keras.Sequential([*layers, keras.layers.Dense(1, name="logits")])
        model.compile("adam", "mse")
    return model


def rows(config):
    """Results with whole tensors of an embedding and a float step; the refusal of its rows."""
    del config
    x, y = np.arange(64).reshape(16, 4) % 50, np.ones([16, 1])
    (ternary,) = (mode for mode in mode_choice.MODES if mode.name == "ternary")
    results = {}
    with quickest(ternary.name):
        for name, strategy in strategies_of(ternary, float_steps=lambda step: step == 1):
            model = classifier(strategy)
            model.fit(x, y, batch_size=4, verbose=0)
            results[f"{name}/state"] = state_of(model)
    model = classifier(TernGradStrategy(1, grad_bits="auto"))
    try:
        model.fit(x, y, batch_size=4, verbose=0)
    except ValueError as error:
        results["refusal"] = str(error)
    return results


def measured(config):
    """The choices on real links of a run and of a resumed run, which chooses anew."""
    x, y = data()
    path = os.path.join(config["folder"], "measured.weights.h5")
    lines = []
    for _ in range(2):
        strategy = TernGradStrategy(1, grad_bits="auto")
        model = build(strategy, optimizer=OPTIMIZERS["adam"])
        if lines:
            model.load_weights(path)
        with mock.patch.object(links, "measure", wraps=links.measure) as found:
            model.fit(x, y, batch_size=16, epochs=1, verbose=0)
            # Another model takes the same mode.
            build(strategy).fit(x, y, batch_size=16, epochs=1, verbose=0)
        lines.append(strategy.wire_choices)
        if strategy.is_chief:
            model.save_weights(path)
        all_gather_object(strategy, "saved", "saved")
    return {"lines": [line for (line,) in lines], "measurements": found.call_count}


if __name__ == "__main__":
    jobs = {"adam": fixed_modes, "local_steps": fixed_modes, "rows": rows, "measured": measured}
    processes.main(jobs)
