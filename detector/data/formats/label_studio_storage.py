"""How to make Label Studio serve the pictures that its tasks link to."""

import json
import shlex
from pathlib import Path


def encode_storage(folder: Path) -> bytes:
    """The body of Label Studio's POST /api/storages/localfiles, without the number of the `project`."""
    content = {"title": folder.name, "path": str(folder), "use_blob_urls": True, "regex_filter": ".*"}
    return json.dumps(content, ensure_ascii=False, indent=1).encode()


def how_to_serve(folder: Path) -> str:
    """Instructions for a person who imports tasks with links: the root that the tool has to serve."""
    root = shlex.quote(str(folder.parent))
    return (
        f"Label Studio shows the pictures if it serves {folder.parent}:\n"
        f"  LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={root} "
        f"label-studio start\n  with {folder} as source storage of the project (Settings, Cloud Storage, "
        "Local files); in a container mount it at the same path. Or add --inline, which needs neither"
    )
