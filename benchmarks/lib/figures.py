"""Files of a benchmark's figures and finished runs."""

import collections
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


class Finished(collections.UserList):
    """The finished runs of a JSON file, dicts; starts with those that the file holds.

    Args:
        path: path of the file, or None to keep runs in memory only.
        settings: those that all runs of a file share, as JSON values.
        name: name of the list in the file.
        **content: further content of the file.

    Raises:
        SystemExit: the file's runs had other settings, so that no table can hold both.
    """

    def __init__(self, path, settings, name="runs", **content):
        super().__init__()
        self._path = path and pathlib.Path(path)
        self._name, self._content = name, {**content, "settings": settings}
        if path and self._path.exists():
            found = json.loads(self._path.read_text())
            if found.get("settings") != settings:
                raise SystemExit(f"{path} holds {name} with other settings: use another file")
            self.data = found[name]

    def add(self, *runs, **content):
        """Adds runs, and further content of the file, and writes the file."""
        self.data += runs
        self._content |= content
        if self._path:
            write_json(self._path, {**self._content, self._name: self.data})

    def missing(self, chosen, *names):
        """Returns the chosen tuples of values of the fields `names` that no run has."""
        done = {tuple(run[name] for name in names) for run in self}
        missing = [values for values in chosen if values not in done]
        print(f"{len(done)} runs are done, {len(missing)} are missing", flush=True)
        return missing
