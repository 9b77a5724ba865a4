"""Files of a benchmark's figures and finished runs."""

import json
import os
import pathlib
import platform


def write_json(path, figures):
    """Writes figures to another file and renames it: a broken run leaves no half file.

    Adds the machine and its number of cores.
    """
    path = pathlib.Path(path)
    content = {"machine": platform.platform(), "cores": os.cpu_count(), **figures}
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(content, indent=2) + "\n")
    part.replace(path)


def read_finished(path, settings, name="runs"):
    """Reads the finished runs of a file of `write_json`, if it exists.

    Args:
        settings: those that all runs of a file share.
        name: name of the list in the file.

    Raises:
        SystemExit: the file's runs had other settings, so that no table can hold both.
    """
    path = pathlib.Path(path)
    if not path.exists():
        return []
    content = json.loads(path.read_text())
    if content.get("settings") != settings:
        raise SystemExit(f"{path} holds {name} with other settings: use another file")
    return content[name]
