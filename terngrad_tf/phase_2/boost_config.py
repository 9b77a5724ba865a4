"""Reads the options that MindSpore's `boost_config_dict` sets, as JSON."""

import dataclasses
import json
import os
from typing import Any

from terngrad_tf.common import strict_json
from terngrad_tf.common.arguments import did_you_mean
from terngrad_tf.training.errors import UserError

LEVELS = ("O1", "O2")

# MindSpore's keys, by section, with the option that each sets, or None.
_OPTIONS = {
    "boost": dict.fromkeys(("mode", "dim_reduce")),
    "common": {"device_number": "num_nodes", "gradient_split_groups": None},
    "less_bn": dict.fromkeys(("fn_flag", "gc_flag")),
    "grad_freeze": dict.fromkeys(("param_groups", "freeze_type", "freeze_p", "total_steps")),
    "grad_accumulation": {"grad_accumulation_step": None},
    "dim_reduce": {
        name: name
        for name in (
            *("rho", "gamma", "alpha", "sigma", "n_components"),
            *("pca_mat_path", "weight_load_dir", "timeout"),
        )
    },
}
_TYPES = {"n_components": int, "num_nodes": int, "pca_mat_path": str, "weight_load_dir": str}
# Other features of MindSpore Boost, which must be off.
_OTHER_FEATURES = ("less_bn", "grad_freeze", "adasum", "grad_accumulation", "loss_scale_group")
# Keys of MindSpore's tutorial that MindSpore ignores.
_ALIASES = {
    "common": {"device_num": "device_number"},
    "dim_reduce": {"n_component": "n_components"},
}


@dataclasses.dataclass(frozen=True)
class BoostConfig:
    """Options of `SubspaceConfig` by name, and remarks for the user on ignored and renamed keys."""

    options: dict[str, Any]
    notices: list[str]


def read_boost_config(path: str | os.PathLike) -> BoostConfig:
    """Reads the options that a JSON file sets; `boost.dim_reduce` must be true in it.

    The file may hold all of MindSpore's schema. Settings of features that are off are ignored; the
    tutorial's "device_num" and "n_component" stand for "device_number" and "n_components".

    Example:
        >>> folder = __import__("tempfile").mkdtemp()
        >>> path = __import__("pathlib").Path(folder, "boost.json")
        >>> _ = path.write_text('{"boost": {"dim_reduce": true}, "dim_reduce": {"rho": 0.5}}')
        >>> read_boost_config(path).options
        {'rho': 0.5}

    Source: the dimension-reduction training of MindSpore Boost.
    """
    config, notices = _read(path), []
    _check_keys(path, "", config, _OPTIONS)
    for name, section in config.items():
        known = _OPTIONS[name] | (dict.fromkeys(_OTHER_FEATURES) if name == "boost" else {})
        config[name] = _without_aliases(path, name, section, notices)
        _check_keys(path, f"{name}.", config[name], known)
    _check_features(path, config.get("boost", {}))
    if config.get("common", {}).get("gradient_split_groups") is not None:
        notices.append(
            "common.gradient_split_groups has no effect: gradients are sent in buckets of their own"
        )
    options = {}
    for section, keys in _OPTIONS.items():
        for key, option in keys.items():
            if option is not None and config.get(section, {}).get(key) is not None:
                options[option] = _checked(path, f"{section}.{key}", option, config[section][key])
    return BoostConfig(options, [f"{path}: {notice}" for notice in notices])


def _read(path):
    try:
        return strict_json.read_json(path)
    except OSError as error:
        raise UserError(f"`boost_config` cannot be read: {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"`boost_config` must be JSON: {path}: {error}") from error


def check_level(level: str) -> None:
    """Refuses a `boost_level` at which MindSpore would not reduce dimensions.

    O1 and O2 are alike: MindSpore omits their other features if dimensions are reduced.
    """
    if level not in LEVELS:
        raise UserError(
            f"`boost_level` must be {' or '.join(LEVELS)}, at which dimensions are reduced. "
            f"Received: boost_level={level!r}"
        )


def _without_aliases(path, name, section, notices):
    """Returns the section with the tutorial's keys renamed."""
    if not isinstance(section, dict):
        return section
    renamed = {}
    for key, value in section.items():
        right = _ALIASES.get(name, {}).get(key, key)
        if right in renamed or (right != key and right in section):
            raise UserError(
                f"`boost_config` must have {name}.{right} once: {path}. "
                f"Received: '{name}.{right}' and '{name}.{key}'"
            )
        if right != key:
            notices.append(f"{name}.{key} is taken as {name}.{right}, MindSpore's own name")
        renamed[right] = value
    return renamed


def _check_features(path, boost):
    """Refuses all features except manual dimension reduction."""
    for key, expected in (
        ("mode", "manual"),
        ("dim_reduce", True),
        *((feature, False) for feature in _OTHER_FEATURES),
    ):
        if boost.get(key, None if key == "dim_reduce" else expected) != expected:
            raise UserError(
                f"`boost_config` must have boost.{key}={json.dumps(expected)}, dimension reduction "
                f"being all that runs here: {path}. Received: {json.dumps(boost.get(key))}"
            )


def _check_keys(path, prefix, section, known):
    if not isinstance(section, dict):
        raise UserError(
            f"`boost_config` must hold an object as {prefix.rstrip('.') or 'its whole'}: {path}. "
            f"Received: {json.dumps(section)}"
        )
    for key in section:
        if key not in known:
            hint = did_you_mean(key, known, prefix)
            raise UserError(
                f"`boost_config` must have no other keys than {', '.join(known)} there: {path}. "
                f"Received: {prefix + key!r}{hint}"
            )


def _checked(path, key, option, value):
    kind = _TYPES.get(option, (int, float))
    if isinstance(value, bool) or not isinstance(value, kind):
        name = {int: "an integer", str: "text"}.get(kind, "a number")
        raise UserError(
            f"`boost_config` must have {name} as {key}: {path}. Received: {json.dumps(value)}"
        )
    return value
