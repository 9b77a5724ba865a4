"""MindSpore's `boost_config_dict` as JSON: which options it sets."""

import difflib
import json
import pathlib

from terngrad_tf.training.errors import UserError

# Sections and keys that MindSpore reads; those that change nothing here have no option.
_OPTIONS = {
    "boost": {"mode": None, "dim_reduce": None},
    "common": {"device_number": "num_nodes"},
    "dim_reduce": {
        "rho": "rho",
        "gamma": "gamma",
        "alpha": "alpha",
        "sigma": "sigma",
        "n_components": "n_components",
        "pca_mat_path": "pca_mat_path",
        "weight_load_dir": "weight_load_dir",
        "timeout": "timeout",
    },
}
_TYPES = {"n_components": int, "num_nodes": int, "pca_mat_path": str, "weight_load_dir": str}
# Features of MindSpore Boost that may be mentioned, as long as they are off.
_OTHER_FEATURES = ("less_bn", "grad_freeze", "adasum", "grad_accumulation", "loss_scale_group")


def read(path):
    """Options that a file sets.

    Args:
        path: JSON file with the sections "boost", "common" and "dim_reduce", in which
            `boost.dim_reduce` is true.

    Returns:
        Dict from names of `SubspaceOptions` to values.

    Raises:
        UserError: the file cannot be read, a section or key is unknown (the nearest right one is
            named), or a value is of the wrong kind.

    Example:
        >>> folder = __import__("tempfile").mkdtemp()
        >>> path = pathlib.Path(folder, "boost.json")
        >>> _ = path.write_text('{"boost": {"dim_reduce": true}, "dim_reduce": {"rho": 0.5}}')
        >>> read(path)
        {'rho': 0.5}

    Source: the dimension-reduction training of MindSpore Boost.
    """
    try:
        config = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"`boost_config` cannot be read: {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"`boost_config` must be JSON: {path}: {error}") from error
    _check_keys(path, "", config, _OPTIONS)
    for name, section in config.items():
        known = _OPTIONS[name] | (dict.fromkeys(_OTHER_FEATURES) if name == "boost" else {})
        _check_keys(path, f"{name}.", section, known)
    boost = config.get("boost", {})
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
    options = {}
    for section, keys in _OPTIONS.items():
        for key, option in keys.items():
            if option is not None and config.get(section, {}).get(key) is not None:
                options[option] = _checked(path, f"{section}.{key}", option, config[section][key])
    return options


def _check_keys(path, prefix, section, known):
    if not isinstance(section, dict):
        raise UserError(
            f"`boost_config` must hold an object as {prefix.rstrip('.') or 'its whole'}: {path}. "
            f"Received: {json.dumps(section)}"
        )
    for key in section:
        if key not in known:
            nearest = difflib.get_close_matches(key, known, n=1)
            hint = f" (did you mean {prefix + nearest[0]!r}?)" if nearest else ""
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
