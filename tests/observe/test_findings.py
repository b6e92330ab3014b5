"""Findings that processes share: what a store holds may be of anybody."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from callfuse.admin.feedback import line_of
from callfuse.observe.findings import KeptFinding, RecentFindings

FOUND = KeptFinding(
    "f1", 1000.0, "repeat", "search", 3, 3, False, "block", "", "abc", "gpt-4o", "openai-chat", ("search", "00", "main")
)


class Store:
    """Holds one value."""

    def __init__(self, value: bytes) -> None:
        self.value = value

    def share_finding(self, finding_id: str, value: bytes) -> None:
        """Keep nothing."""

    async def shared_finding(self, finding_id: str) -> bytes | None:
        """The value, whatever is asked for."""
        return self.value

    async def swap_feedback(self, finding_id: str, said: str) -> str:
        """Nothing was said."""
        return ""


async def test_what_another_process_has_kept_is_found() -> None:
    """As it was."""
    assert await RecentFindings(Store(json.dumps(asdict(FOUND)).encode())).find("f1") == FOUND


@pytest.mark.parametrize(
    "more", [{"time": 1e300}, {"time": -1e300}, {"time": "now"}, {"tool": 5}, {"count": 1.5}, {"other": 1}]
)
async def test_what_is_none_of_ours_is_not_found(more: dict[str, Any]) -> None:
    """What is found can be written as a line."""
    assert await RecentFindings(Store(json.dumps(asdict(FOUND) | more).encode())).find("f1") is None
    assert line_of(FOUND, "false_positive")["time"] == "1970-01-01T00:16:40+00:00"
