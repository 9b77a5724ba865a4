"""Downloads the official archives of ImageNet (ILSVRC 2012) with an account of image-net.org.

IMAGENET_USERNAME and IMAGENET_ACCESS_KEY hold the account. It is sent encrypted, only to the server
of the archives (HTTP Basic authentication), and never shown.
"""

import base64
import os
import urllib.parse
from collections.abc import Callable

from slim_data.common import progress
from slim_data.common.errors import DataError
from slim_data.files import download

URL = "https://image-net.org/data/ILSVRC/2012/"
# Address of a mirror, instead of image-net.org.
URL_VARIABLE = "IMAGENET_URL"
USERNAME = "IMAGENET_USERNAME"
ACCESS_KEY = "IMAGENET_ACCESS_KEY"

TRAIN = "ILSVRC2012_img_train.tar"
VALIDATION = "ILSVRC2012_img_val.tar"
ANNOTATIONS = "ILSVRC2012_bbox_train_v2.tar.gz"
DEVKIT = "ILSVRC2012_devkit_t12.tar.gz"

# Size and SHA-256. None are published for the boxes.
SIZES_AND_CHECKSUMS = {
    TRAIN: (147897477120, "b08200a27a8e34218a0e58fde36b0fe8f73bc377f4acea2d91602057c3ca45bb"),
    VALIDATION: (6744924160, "c7e06a6c0baccf06d8dbeb6577d71efff84673a5dbdd50633ab44f8ea0456ae0"),
    DEVKIT: (2568145, "b59243268c0d266621fd587d2018f69e906fb22875aca0e295b48cafaa927953"),
    ANNOTATIONS: (None, None),
}


def has_account() -> bool:
    """Returns True if the environment holds an account; DataError if only one variable is set."""
    there = [name for name in (USERNAME, ACCESS_KEY) if os.environ.get(name)]
    if len(there) == 1:
        raise DataError(
            f"{USERNAME} and {ACCESS_KEY} must be set together. Received: {there[0]} alone"
        )
    return bool(there)


def fetch_archive(name: str, folder: str | os.PathLike, report: Callable[[str], object]) -> None:
    """Downloads an archive to a folder."""
    url = _place() + name
    account = f"{os.environ[USERNAME]}:{os.environ[ACCESS_KEY]}".encode()
    authorization = f"Basic {base64.b64encode(account).decode('ascii')}"
    size, sha256 = SIZES_AND_CHECKSUMS[name]
    report(f"Downloading {url}")
    with progress.progress_bar(name, size, "bytes") as advance:
        file = download.File(name, (url,), size, sha256, authorization)
        download.fetch_file(file, folder, progress=advance)


def _place():
    place = os.environ.get(URL_VARIABLE) or URL
    parts = urllib.parse.urlsplit(place)
    is_local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_local):
        raise DataError(
            f"{URL_VARIABLE} must start with https://, so that the account is sent encrypted. "
            f"Received: {URL_VARIABLE} with {parts.scheme + '://' if parts.scheme else 'none'}"
        )
    if "@" in parts.netloc:
        raise DataError(
            f"{URL_VARIABLE} must hold no account: it is shown. {USERNAME} and {ACCESS_KEY} are not"
        )
    return place.rstrip("/") + "/"
