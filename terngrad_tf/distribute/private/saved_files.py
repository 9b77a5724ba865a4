"""Keeps files that Keras saves whole, although several processes save to one path."""

import contextlib
import os
import shutil
import tempfile
from typing import Any

from keras.src.legacy.saving import legacy_h5_format
from keras.src.saving import saving_lib

from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.replicas.devices import cluster_is_joined


@patch(saving_lib, "save_model", "save_weights_only")
@patch(legacy_h5_format, "save_model_to_hdf5")
def _save_whole(stock: Any, model: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
    """Writes files beside their place and renames them, in a process of a cluster.

    Keras writes in place: if all processes of a machine call `model.save`, one reads what another
    writes, or finds it locked.
    """
    if not cluster_is_joined() or not isinstance(filepath, str | os.PathLike):
        return stock(model, filepath, *args, **kwargs)
    folder, name = os.path.split(os.path.realpath(filepath))
    is_new = not os.path.exists(filepath)
    is_file = kwargs.get("zipped", True) and (is_new or os.path.isfile(filepath))
    # Remote files have no such folder.
    if not is_file or not os.access(folder, os.W_OK):
        return stock(model, filepath, *args, **kwargs)
    with tempfile.TemporaryDirectory(prefix=f".{name[:50]}.", dir=folder) as beside:
        stock(model, os.path.join(beside, name), *args, **kwargs)
        for file in os.listdir(beside):  # several for `max_shard_size`
            new, place = os.path.join(beside, file), os.path.join(folder, file)
            with contextlib.suppress(FileNotFoundError):
                # Others may not be allowed to read a file that is written again.
                shutil.copymode(place, new)
            os.replace(new, place)
