"""The names of pictures from their addresses in Label Studio's tasks and COCO files."""

import base64
import re
from urllib.parse import parse_qs, unquote, urlsplit

from detector.utils.errors import DataError

# The folder of an uploaded file, and the tool's prefix of its name.
_UPLOADED = re.compile("^(?:.*/)?upload/[0-9]+/[0-9a-f]{8}-")
_STORAGES = ("s3", "s3s", "gs", "azure-blob", "azure_spi")


def name_of_address(address: str) -> tuple[str, bool]:
    """The path in an address, and whether it is below a folder of a storage or a server.

    Label Studio serves local files by ?d=, uploads as upload/PROJECT/PREFIX-NAME, on
    its own address or by ?filepath=, and files of a storage by their address, base64 in ?fileuri=.
    """
    address = address.strip().replace("\\", "/")
    if address.startswith("data:"):
        raise DataError(f"the address {address[:40]!r} ... holds the image itself, which has no name")
    storage, _, key = address.partition("://")
    if key and storage.lower() in _STORAGES:  # the key follows the bucket, and is not encoded
        return key.partition("/")[2], True
    parts = urlsplit(address)
    query = parse_qs(parts.query, errors="surrogateescape")  # a name that is not UTF-8 is reported later
    if "fileuri" in query:
        encoded = query["fileuri"][-1].replace(" ", "+")
        try:
            plain = base64.b64decode(
                encoded + "=" * (-len(encoded) % 4), altchars="-_" if set(encoded) & set("-_") else None
            )
            return name_of_address(plain.decode())
        except ValueError:
            raise DataError(f"the address {address!r} has no base64 in fileuri") from None
    if "d" in query:
        return query["d"][-1].lstrip("/").replace("\\", "/"), False
    path = query["filepath"][-1] if "filepath" in query else unquote(parts.path, errors="surrogateescape")
    if uploaded := _UPLOADED.search(path):
        return path[uploaded.end() :], False
    return path.lstrip("/"), bool(parts.netloc)


def name_in_coco(file_name: str) -> str:
    """The name of a picture in a file of COCO: its address, or a path from the folder of the export.

    The export of the boxes alone has ../../media/upload/1/0123abcd-a.jpg, or the address of a task where the
    file is not on the disk of the tool; that with pictures has images/0123abcd-a.jpg.
    """
    name = name_of_address(file_name)[0]
    while name.startswith("../"):
        name = name.removeprefix("../")
    return name
