"""Records that hold a digest of themselves: an altered one counts as none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from common import digest_of, read_regular

SEALED = 1


def sealed(record: dict[str, Any]) -> dict[str, Any]:
    """Return ``record`` with its digest.

    ``sealed`` says that it must have one, so that a digest under a damaged key is missed.
    """
    content = {key: value for key, value in record.items() if key != "digest"} | {"sealed": SEALED}
    return {**content, "digest": digest_of(content)}


def read_sealed(path: Path) -> dict[str, Any] | None:
    """Return the record in ``path``; None when there is none, or none as it was written.

    A record of the version before has neither ``sealed`` nor ``digest`` and is returned.
    """
    content = read_json(path)
    if content is None or not {"sealed", "digest"} & content.keys():
        return content
    rest = {key: value for key, value in content.items() if key != "digest"}
    return content if content.get("digest") == digest_of(rest) else None


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in ``path``; None when there is none that can be read."""
    try:
        content = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
