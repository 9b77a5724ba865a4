"""Arguments of strategies for tests that vary options of several kinds."""

import dataclasses

from terngrad_tf.distribute import ClusterOptions, Quantization

_KINDS = {"quantization": Quantization, "cluster_options": ClusterOptions}


def arguments(**options):
    """Arguments of `TernGradStrategy`; groups options of `Quantization` and `ClusterOptions`.

    >>> arguments(wire="alltoall", seed=5)["quantization"].seed
    5
    """
    for argument, kind in _KINDS.items():
        names = {field.name for field in dataclasses.fields(kind)} & options.keys()
        if names - {"grad_bits"}:
            options[argument] = kind(**{name: options.pop(name) for name in names})
    return options
