"""The settings of a call of `fit`, `evaluate` or `predict` that processes compare before it."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from terngrad_tf.distribute import private
from terngrad_tf.distribute.consistency.callback_settings import callback_settings
from terngrad_tf.distribute.consistency.descriptions import describe, flatten
from terngrad_tf.distribute.consistency.handshake import diff

_MOST_PHRASES = 3
# Of data, only the presence is compared.
_COMPARED = (
    "batch_size",
    "epochs",
    "initial_epoch",
    "steps_per_epoch",
    "steps",
    "shuffle",
    "class_weight",
    "validation_split",
    "validation_steps",
    "validation_batch_size",
    "validation_freq",
)
_GIVEN = ("y", "sample_weight", "validation_data")

# By section, then by key.
Settings = Mapping[str, Mapping[str, Any]]


def settings_of_call(
    method: str,
    model: keras.Model,
    arguments: Mapping[str, Any],
    layers: Mapping[str, Any],
    rates: Mapping[str, float],
) -> Settings:
    """Returns all settings of a call that must be equal.

    Args:
        layers: flat description of the model.
        rates: learning rates given to `compile`, as in `learning_rates`. Current rates are
            variables, taken from the chief.
    """
    compiled = private.compiled_with(model)

    def given(*names):
        return flatten(describe({name: compiled.get(name) for name in names}))

    optimizers = _optimizers(model)
    now = _rates(optimizers)
    optimizers |= {key: rate for key, rate in rates.items() if key in now}
    return {
        "models": layers,
        "optimizers": optimizers,
        "losses": given("loss", "loss_weights") | _held(model, keras.losses.Loss),
        "metrics": given("metrics", "weighted_metrics") | _held(model, keras.metrics.Metric),
        "arguments of `compile`": given("run_eagerly", "steps_per_execution", "jit_compile"),
        "callbacks": callback_settings(arguments.get("callbacks")),
        **settings_of_arguments(method, arguments),
    }


def settings_of_arguments(method: str, arguments: Mapping[str, Any]) -> Settings:
    """Returns the arguments of a call that must be equal."""
    given = {name: "given" for name in _GIVEN if arguments.get(name) is not None}
    compared = {name: arguments[name] for name in _COMPARED if name in arguments}
    return {f"arguments of `{method}`": given | flatten(describe(compared))}


def learning_rates(model: keras.Model) -> dict[str, float]:
    """Returns the learning rates of a model's optimizers that are numbers, by key."""
    return _rates(_optimizers(model))


def differences(settings: Sequence[Settings], names: Sequence[str]) -> list[str]:
    """Returns one line for each differing section of the processes' `{section: {key: value}}`."""
    lines = []
    for section in settings[0]:
        phrases = diff([one[section] for one in settings], names)
        # A missing object has no options either.
        of_options = [key for key in phrases if key.rpartition(".")[0] in phrases.keys() - {key}]
        told = [phrase for key, phrase in phrases.items() if key not in of_options]
        if told:
            more = len(told) - _MOST_PHRASES
            told[_MOST_PHRASES:] = [f"{more} more"] if more > 0 else []
            lines.append(f"{section} differ: {', '.join(told)}")
    return lines


def _optimizers(model):
    """Returns the options of all optimizers of a model, by key."""
    main = getattr(model, "optimizer", None)
    found = flatten(describe(main)) if isinstance(main, keras.optimizers.Optimizer) else {}
    return found | _held(model, keras.optimizers.Optimizer, but_for=main)


def _held(model, kind, but_for=None):
    """Returns options of a model's attributes of a kind, as from an overridden `compile`."""
    found = {}
    for name, value in sorted(vars(model).items()):
        if isinstance(value, kind) and value is not but_for:
            found |= flatten(describe(value), name)
    return found


def _rates(options):
    return {
        key: value
        for key, value in options.items()
        if key.rpartition(".")[2] == "learning_rate" and isinstance(value, float)
    }
