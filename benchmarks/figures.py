"""The file that a benchmark leaves its figures in."""

import json
import os
import pathlib
import platform


def write_json(path, figures):
    """Writes beside the file and renames, so that a broken run leaves no half file.

    Args:
        path: the file.
        figures: dict of JSON values; the machine and its number of cores are added.
    """
    path = pathlib.Path(path)
    content = {"machine": platform.platform(), "cores": os.cpu_count(), **figures}
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(content, indent=2) + "\n")
    part.replace(path)
