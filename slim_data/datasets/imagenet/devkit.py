"""The classes of ImageNet (ILSVRC 2012) and of its validation images, from the devkit.

Source: the development kit of tasks 1 and 2, `ILSVRC2012_devkit_t12.tar.gz`. It has its own order
of classes; everywhere else, classes are numbered by WordNet id.
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
    """Content of the devkit.

    Attributes:
        names: {WordNet id: names}, sorted by id.
        validation: WordNet ids of the validation images, by their numbers from 1.
    """

    names: dict[str, str]
    validation: list[str]


def read_devkit(path: str) -> Devkit:
    """Returns the content of a devkit archive."""
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
        # Crafted files can crash SciPy.
        classes = isolation.call_isolated(_parse, meta)
    # SciPy raises many kinds of errors.
    except Exception as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: {_META} is no list of classes ({reason})") from None
    for synset, words in classes.values():
        wordnet.check_wordnet_id(synset, f"{path}: {_META}")
        # Names become lines of a file.
        if len(words.splitlines()) != 1:
            raise DataError(f"{path}: {_META}: the names of {synset} must be text on one line")
    return classes


def _parse(meta):
    synsets = import_extra("scipy.io").loadmat(io.BytesIO(meta), squeeze_me=True)["synsets"]
    # The other entries are groups of classes.
    leaves = [synset for synset in synsets if synset["num_children"] == 0]
    return {int(s["ILSVRC2012_ID"]): (str(s["WNID"]), str(s["words"])) for s in leaves}
