"""File of the finished runs of the fidelity study."""

import dataclasses
import json
from collections.abc import Mapping

from benchmarks.fidelity.settings import Run

_FIELDS = [field.name for field in dataclasses.fields(Run)]


class Rows(Mapping):
    """Finished runs, {`Run`: row}; the file has a JSON line per run."""

    def __init__(self, path):
        self._path = path
        self._rows = {}
        if path.exists():
            for line in path.read_text().splitlines():
                row = json.loads(line)
                # Older rows lack newer fields.
                self._rows[Run(**{n: row.pop(n) for n in _FIELDS if n in row})] = row

    def add(self, run, row):
        """Appends a run's row in one write: other processes may add to the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(dataclasses.asdict(run) | row) + "\n")
        self._rows[run] = row

    def of(self, images, epochs):
        """Returns the runs with these numbers of images and epochs."""
        return {r: row for r, row in self.items() if (r.images, r.epochs) == (images, epochs)}

    def __getitem__(self, run):
        return self._rows[run]

    def __iter__(self):
        return iter(self._rows)

    def __len__(self):
        return len(self._rows)
