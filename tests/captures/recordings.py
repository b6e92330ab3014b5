"""Recorded bodies of real vendors, read where they lie: nothing of them is kept in this project.

In: the folder named by `CALLFUSE_CAPTURES`, by default `../shared/captures` beside the project. Out: `Recording`s
of the dialects under test. Where the folder is missing there are none, and `some_recordings` skips with that
reason.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.kits import KITS, DialectKit
from tests.support.kits.gemini import GeminiArrayKit

FOLDER = Path(os.environ.get("CALLFUSE_CAPTURES", Path(__file__).parents[3] / "shared" / "captures"))
FOLDERS = {
    "openai-chat": "openai-chat",
    "openai-responses": "openai-responses",
    "anthropic": "anthropic-messages",
    "ollama": "ollama",
    "gemini": "gemini",
    "cohere-v2": "cohere-v2",
}


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded body and what is known about it."""

    kit: DialectKit
    name: str
    body: bytes
    form: str
    """`sse`, `ndjson`, `array` (streamed), `json` or `request.json`."""
    calls: tuple[dict[str, Any], ...]
    """The calls in it, as an independent reading has them."""

    @property
    def stream(self) -> bool:
        """Whether it is a streamed answer."""
        return self.form in ("sse", "ndjson", "array")

    @property
    def client_calls(self) -> tuple[dict[str, Any], ...]:
        """The calls that the client would run; of what it is only asked to approve, the vendor runs."""
        mine = [call for call in self.calls if call["executed_by"] == "client"]
        return tuple(call for call in mine if call["kind"] != "mcp_approval_request")


@cache
def recordings() -> tuple[Recording, ...]:
    """All of them, in the order of their names."""
    if not FOLDER.is_dir():
        return ()
    expected = json.loads((FOLDER / "expected.json").read_bytes())
    found = [(kit, path) for kit in KITS for path in sorted((FOLDER / FOLDERS[kit.name]).iterdir())]
    read = [_recording(kit, path, expected) for kit, path in found if not path.name.endswith(".meta.json")]
    return tuple(one for one in read if isinstance(one.kit, GeminiArrayKit) is (one.form == "array"))


def _recording(kit: DialectKit, path: Path, expected: dict[str, Any]) -> Recording:
    known = expected[f"{path.parent.name}/{path.name}"]
    form = "request.json" if path.name.endswith(".request.json") else path.suffix[1:]
    form = "array" if known["form"] == "json-array" else form
    return Recording(kit, path.name, path.read_bytes(), form, tuple(known.get("calls", ())))


def some_recordings(wanted: Callable[[Recording], bool]) -> pytest.MarkDecorator:
    """Run a test for each recording that is wanted."""
    chosen: Sequence[Any] = [pytest.param(one, id=f"{one.kit.name}-{one.name}") for one in recordings() if wanted(one)]
    missing = pytest.param(None, marks=pytest.mark.skip(reason=f"no captures in {FOLDER}; set CALLFUSE_CAPTURES"))
    return pytest.mark.parametrize("recording", chosen or [missing])
