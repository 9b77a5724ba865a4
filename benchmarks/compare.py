"""Shows the figures of a benchmark that moved between two of its JSON files.

Figures of different machines are hard to compare, so the output names the machines of both files.
The figures of the tables in docs/results/ are in benchmarks/results/.

    python -m benchmarks.compare benchmarks/results/cluster.json cluster.json
"""

import json
import pathlib

from absl import app, flags

from benchmarks.lib import markdown

_KEYS = flags.DEFINE_list(
    "keys",
    ["hosts", "elements", "weights", "batch", "replicas", "clip_factor", "seed"],
    "Fields that identify rows, in addition to all text fields.",
)
_LEAST = flags.DEFINE_float("least", 1.1, "Smallest factor to show, up or down.", lower_bound=1.0)


def rows_by_key(content, keys):
    """Returns {tuple of the key's values: {name: other number}} of a file's rows.

    Args:
        content: dict with one list of flat dicts, "rows", "runs" or "cells".
        keys: fields that identify rows, in addition to all text fields.

    Raises:
        ValueError: there is no such list, or two rows have the same key.
    """
    lists = [content[name] for name in ("rows", "runs", "cells") if name in content]
    if len(lists) != 1:
        raise ValueError(f"the file must hold rows, runs or cells. Received: {', '.join(content)}")
    found = {}
    for row in lists[0]:
        key = tuple(str(v) for k, v in row.items() if isinstance(v, str) or k in keys)
        if key in found:
            raise ValueError(f"`--keys` must identify rows. Received: two of {' '.join(key)}")
        numbers = {k: v for k, v in row.items() if k not in keys and not isinstance(v, str | bool)}
        found[key] = {k: v for k, v in numbers.items() if isinstance(v, int | float)}
    return found


def changes(before, after):
    """Returns a list of (key, figure, number before, number after), largest change first.

    Omits rows and figures that either result of `rows_by_key` lacks.
    """
    pairs = [
        (key, name, old, after[key][name])
        for key, row in before.items()
        for name, old in row.items()
        if name in after.get(key, {})
    ]
    return sorted(pairs, key=lambda pair: -factor(*pair[2:]))


def factor(old, new):
    """Returns the factor by which a number changed: 1 or more."""
    if old == new:
        return 1.0
    return max(old / new, new / old) if old * new > 0 else float("inf")


def main(argv):
    """Prints a table of the figures that moved."""
    if len(argv) != 3:
        raise app.UsageError(f"two files are needed. Received: {argv[1:]}")
    contents = [json.loads(pathlib.Path(path).read_text()) for path in argv[1:]]
    for path, content in zip(argv[1:], contents, strict=True):
        print(f"{path}: {content.get('machine', 'an unknown machine')}")
    try:
        before, after = (rows_by_key(content, _KEYS.value) for content in contents)
    except ValueError as error:
        raise app.UsageError(str(error)) from error
    found = changes(before, after)
    moved = [change for change in found if factor(*change[2:]) >= _LEAST.value]
    if moved:
        print(f"\n{markdown.head('row | figure | before | after | after / before')}")
    for key, name, old, new in moved:
        ratio = f"{new / old:.2f}" if old else ""
        print(markdown.row([" ".join(key), name, f"{old:,.4g}", f"{new:,.4g}", ratio]))
    print(f"\n{len(moved)} of {len(found)} figures moved by a factor of {_LEAST.value:g} or more.")
    alone = len(before.keys() ^ after.keys())
    if alone:
        print(f"{alone} rows are in only one of the files.")
    return 0


if __name__ == "__main__":
    app.run(main)
