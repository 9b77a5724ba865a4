"""The classes of ImageNet (ILSVRC 2012) and those of its validation images, from its devkit.

Source: the development kit of tasks 1 and 2, `ILSVRC2012_devkit_t12.tar.gz`. It numbers the classes
in an order of its own; sorted by their WordNet ids they are numbered as everywhere else.
"""

import io
from typing import NamedTuple

from slim_data.common import isolation
from slim_data.common.errors import DataError
from slim_data.common.extras import import_extra
from slim_data.datasets.imagenet import wordnet
from slim_data.files import archives

_META = "ILSVRC2012_devkit_t12/data/meta.mat"
_TRUTH = "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"
_MAX_FILE_SIZE = 2**24


class Devkit(NamedTuple):
    """What the devkit tells.

    Attributes:
        names: {WordNet id: names} of the classes, sorted by id.
        validation: WordNet ids of the validation images, by their numbers from 1.
    """

    names: dict[str, str]
    validation: list[str]


def read_devkit(path: str) -> Devkit:
    """Returns the `Devkit` of its archive.

    Raises:
        DataError: the archive cannot be read or is no devkit.
    """
    with archives.open_archive(path) as archive:
        members = archives.list_members(archive)
        for name in (_META, _TRUTH):
            if name not in members:
                raise DataError(f"{path}: the archive lacks {name}")
        meta, truth = (
            archives.read_member(archive, members[name], _MAX_FILE_SIZE) for name in (_META, _TRUTH)
        )
    classes = _classes(path, meta)
    try:
        validation = [classes[int(line)][0] for line in truth.split()]
    except (ValueError, KeyError) as error:
        raise DataError(f"{path}: {_TRUTH} must hold numbers of classes ({error})") from None
    return Devkit(dict(sorted(classes.values())), validation)


def _classes(path, meta):
    """Returns {number of a class: (WordNet id, names)}."""
    try:
        # Files that are damaged on purpose crash SciPy.
        classes = isolation.call_isolated(_parse, meta)
    # Of a file that is no such file SciPy complains in many ways.
    except Exception as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: {_META} is no list of classes ({reason})") from None
    for synset, words in classes.values():
        wordnet.check_wordnet_id(synset, f"{path}: {_META}")
        # They become lines of a file.
        if len(words.splitlines()) != 1:
            raise DataError(f"{path}: {_META}: the names of {synset} must be text on one line")
    return classes


def _parse(meta):
    synsets = import_extra("scipy.io").loadmat(io.BytesIO(meta), squeeze_me=True)["synsets"]
    # The rest of them are groups of classes.
    leaves = [synset for synset in synsets if synset["num_children"] == 0]
    return {int(s["ILSVRC2012_ID"]): (str(s["WNID"]), str(s["words"])) for s in leaves}
