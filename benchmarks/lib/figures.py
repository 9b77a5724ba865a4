"""The file that a benchmark leaves its figures in, and finds those of finished runs in."""

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


def read_finished(path, settings, name="runs"):
    """What runs before this one left in a file, if it is there.

    Args:
        path: the file, as `write_json` wrote it with `{"settings": settings, name: list}`.
        settings: what all runs of a file share.
        name: of the list. Default "runs".

    Returns:
        List, empty where there is no file.

    Raises:
        SystemExit: the file's runs had other settings, so that no table can hold both.
    """
    path = pathlib.Path(path)
    if not path.exists():
        return []
    content = json.loads(path.read_text())
    if content["settings"] != settings:
        raise SystemExit(f"{path} holds {name} with other settings: use another file")
    return content[name]
