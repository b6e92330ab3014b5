"""Reading what a test has written."""

import json
from pathlib import Path
from typing import Any

from callfuse.offline.files import Reading
from callfuse.offline.runs import RecordedRun, Unreadable


def written(path: Path, *records: Any) -> str:
    """The name of a file with a record on each line; bytes stand as they are."""
    lines = [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return str(path)


def runs_in(name: str, **options: Any) -> list[RecordedRun]:
    """The runs of a file that has no faults."""
    found = list(Reading([name], **options))
    assert [one for one in found if isinstance(one, Unreadable)] == []
    return [one for one in found if isinstance(one, RecordedRun)]


def faults_in(name: str) -> list[str]:
    """The faults of a file, without its name."""
    return [str(one).removeprefix(name).lstrip(",: ") for one in Reading([name]) if isinstance(one, Unreadable)]
