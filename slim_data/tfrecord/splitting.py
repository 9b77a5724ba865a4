"""Divides the training files among workers by folders of links, one folder per worker.

For workers that only receive a path. Others need no folders: see `num_input_pipelines` of `load`.
"""

import os
from collections.abc import Callable

from slim_data.common.arguments import check_at_least
from slim_data.common.errors import DataError, os_errors_of
from slim_data.common.progress import ignore
from slim_data.files.atomic import atomic_directory
from slim_data.tfrecord import shards

SPLIT = "train"


def split_dataset(
    data_dir: str | os.PathLike,
    num_workers: int,
    worker_id: int,
    report: Callable[[str], object] = ignore,
) -> str:
    """Creates `<data_dir>/worker_<worker_id>_of_<num_workers>`, links to a worker's files.

    The worker gets the `worker_id`-th contiguous block of the training files; if they do not divide
    evenly, some workers get one more. `load` recognizes the folder by its name, and refuses it if a
    file is missing or another one is present. The links are relative, so `data_dir` can be moved.

    Args:
        data_dir: folder written by `convert`.
        num_workers: number of workers, at most the number of training files.
        worker_id: number of the worker, from 0.
        report: function of a line of text, called after each step.

    Returns:
        The path of the worker's folder. An existing folder with the right links is kept.

    Raises:
        DataError: an argument is out of range, training files are missing, the worker's folder
            exists with other content, or it cannot be created.

    Example:
        >>> slim_data.split_dataset("/data/imagenet", 16, 1)  # 64 links of 1,024 files
        '/data/imagenet/worker_1_of_16'
    """
    check_at_least(1, num_workers=num_workers)
    check_at_least(0, worker_id=worker_id)
    if worker_id >= num_workers:
        raise DataError(
            f"`worker_id` must be less than num_workers={num_workers}. "
            f"Received: worker_id={worker_id}"
        )
    paths = _all_files(data_dir, num_workers)
    own = shards.worker_part(paths, num_workers, worker_id)
    folder = os.path.join(data_dir, shards.worker_name(num_workers, worker_id))
    if os.path.lexists(folder):
        _check_links(folder, own)
        report(f"{folder} exists.")
        return folder
    report(f"Splitting to {folder} ...")
    _link(folder, own)
    sizes = sorted(set(shards.spread(len(paths), num_workers)))
    uneven = f" (workers take {sizes[0]} or {sizes[-1]} files)" if len(sizes) > 1 else ""
    report(f"Linked {len(own)} of {len(paths)} {SPLIT} files, {shards.first_and_last(own)}{uneven}")
    return folder


def split_for_all(
    data_dir: str | os.PathLike,
    num_workers: int,
    link_as: str | os.PathLike | None = None,
    report: Callable[[str], object] = ignore,
) -> list[str]:
    """Creates the folders of all workers, see `split_dataset`.

    Args:
        link_as: prefix of links to the folders, such as `~/cifar10-data-shard`, to which the
            numbers of the first and last file are appended, as in `-0-499`; None: no links.

    Returns:
        List of the paths of the folders or, with `link_as`, of the links.

    Example:
        >>> slim_data.tfrecord.splitting.split_for_all("/data/cifar10", 2, "/data/part")
        ['/data/part-0-499', '/data/part-500-999']
    """
    folders = [split_dataset(data_dir, num_workers, i, report) for i in range(num_workers)]
    if link_as is None:
        return folders
    links, start = [], 0
    for folder in folders:
        size = len(shards.find_candidates(folder, SPLIT))
        links.append(f"{link_as}-{start}-{start + size - 1}")
        start += size
    for link, folder in zip(links, folders, strict=True):
        _link_folder(link, folder)
        report(f"{link} is {folder}")
    return links


def _link_folder(link, folder):
    """Creates a link to a folder, or keeps an existing one."""
    with os_errors_of(f"{link} cannot be created"):
        if not os.path.lexists(link):
            os.symlink(os.path.abspath(folder), link)
        elif not os.path.samefile(link, folder):
            raise DataError(f"{link} exists and is not {folder}: remove it and run again")


def _all_files(data_dir, num_workers):
    received = f"Received: data_dir={str(data_dir)!r}"
    if shards.is_worker_folder(data_dir):
        raise DataError(f"`data_dir` must hold the files of all workers. {received}")
    paths = shards.find_shards(data_dir, SPLIT)
    if not paths:
        raise DataError(f"`data_dir` must be a folder with {SPLIT} files. {received}")
    if num_workers > len(paths):
        raise DataError(
            f"`num_workers` must be at most the number of {SPLIT} files, {len(paths)}. "
            f"Received: num_workers={num_workers}"
        )
    return paths


def _check_links(folder, own):
    found = shards.find_candidates(folder, SPLIT)
    try:
        same = len(found) == len(own) and all(map(os.path.samefile, found, own))
    except OSError:
        same = False  # a broken link
    if not same:
        raise DataError(
            f"{folder} exists and does not hold the worker's {len(own)} {SPLIT} files, "
            f"{shards.first_and_last(own)}: remove it and run again"
        )


def _link(folder, own):
    with os_errors_of(f"{folder} cannot be created"), atomic_directory(folder) as partial:
        for path in own:
            file = os.path.basename(path)
            os.symlink(os.path.join(os.pardir, file), os.path.join(partial, file))
