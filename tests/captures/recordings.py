"""Recorded bodies of real vendors, read where they lie: nothing of them is kept in this project.

In: the folder named by `CALLFUSE_CAPTURES`, by default `../shared/captures` beside the project. Out: `Recording`s
of the dialects under test, and `Unread`s of formats that callfuse leaves alone. Where the folder is missing there are
none, and `some_recordings` skips with that reason.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.support.asgi import Request
from tests.support.kits import KITS, STREAMS
from tests.support.kits.bedrock import event_stream
from tests.support.kits.gemini import GeminiArrayKit, GeminiKit
from tests.support.model import History

FOLDER = Path(os.environ.get("CALLFUSE_CAPTURES", Path(__file__).parents[3] / "shared" / "captures"))
DIALECTS = {
    "openai-chat": "openai-chat",
    "openai-responses": "openai-responses",
    "anthropic-messages": "anthropic",
    "ollama": "ollama",
    "gemini": "gemini",
    "cohere-v2": "cohere-v2",
    "gemini-interactions": "gemini-interactions",
    "bedrock-converse": "bedrock-converse",
}
"""The dialect of a folder."""
FORMS = {"sse": "sse", "ndjson": "ndjson", "json-array": "array", "json": "json"}


class Kit(Protocol):
    """What a recording needs of its dialect."""

    @property
    def name(self) -> str:
        """The dialect's name."""

    @property
    def path(self) -> str:
        """Where its requests go."""

    def request(self, history: History, *, stream: bool) -> bytes:
        """The request body of a conversation."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded body and what is known about it."""

    kit: Kit
    key: str
    """`folder/file`."""
    body: bytes
    form: str
    """`sse`, `ndjson`, `array`, `binary` (streamed), `json` or `request.json`."""
    calls: tuple[dict[str, Any], ...]
    """The calls in it, as an independent reading has them."""
    results: tuple[dict[str, Any], ...]
    """The results in a request."""

    @property
    def stream(self) -> bool:
        """Whether it is a streamed answer."""
        return self.form in ("sse", "ndjson", "array", "binary")

    @property
    def own_calls(self) -> tuple[dict[str, Any], ...]:
        """The calls that the client is to execute and that callfuse may hold."""
        return tuple(call for call in self.calls if _is_own(call))

    @property
    def other_calls(self) -> tuple[dict[str, Any], ...]:
        """The calls that the vendor has executed, that a program of the model's waits for, or that only ask."""
        return tuple(call for call in self.calls if not _is_own(call))

    def ask(self, history: History) -> Request:
        """The request of a conversation to which it is the answer."""
        path, query = STREAMS.get(self.kit.path, (self.kit.path, b"")) if self.stream else (self.kit.path, b"")
        return Request(path, self.kit.request(history, stream=self.stream), query=query)


def _is_call(call: dict[str, Any]) -> bool:
    """False for the empty `function_call` that Snowflake Cortex puts beside its calls."""
    return bool(call["name"] or call["arguments"]) or call["kind"] != "function_call"


def _is_own(call: dict[str, Any]) -> bool:
    caller = call.get("caller") or {"type": "direct"}
    asks = call["kind"] == "mcp_approval_request"
    return call["executed_by"] == "client" and not asks and bool(caller["type"] == "direct")


def made(call: dict[str, Any]) -> tuple[str, str]:
    """A recorded call as name and arguments, which are an object."""
    arguments: str = call["arguments"] or "{}"
    return call["name"], arguments if call["arguments_valid_json"] else json.dumps({"text": arguments})


@dataclass(frozen=True, slots=True)
class Unread:
    """A kind of recording that callfuse leaves alone, and why."""

    folder: str
    forms: frozenset[str]
    path: str
    reason: str


UNREAD = (
    Unread(
        "mcp",
        frozenset({"json", "sse"}),
        "/mcp",
        "between an agent and its tools, not between an agent and its model: the call has left the model already",
    ),
)


@cache
def _known() -> dict[str, dict[str, Any]]:
    """What `expected.json` says of each file."""
    if not FOLDER.is_dir():
        return {}
    found: dict[str, dict[str, Any]] = json.loads((FOLDER / "expected.json").read_bytes())
    return found


@cache
def entries() -> dict[str, dict[str, Any]]:
    """What is known of every recording; of requests that only stand beside their answers nothing is."""
    return {key: known for key, known in _known().items() if "kind" in known}


def companions() -> list[str]:
    """The requests that only stand beside their answers."""
    return [key for key, known in _known().items() if "kind" not in known]


def unread(key: str) -> Unread | None:
    """The kind of a recording that callfuse leaves alone."""
    folder, form = key.partition("/")[0], entries()[key]["form"]
    return next((kind for kind in UNREAD if kind.folder == folder and form in kind.forms), None)


@cache
def recordings() -> tuple[Recording, ...]:
    """All of the dialects under test, in the order of their keys."""
    return tuple(_recording(key, known) for key, known in sorted(entries().items()) if unread(key) is None)


def _recording(key: str, known: dict[str, Any]) -> Recording:
    name = DIALECTS[key.partition("/")[0]]
    form = "request.json" if known["kind"] == "request" else FORMS[known["form"]]
    kit = next(kit for kit in KITS if _fits(kit, name, form))
    calls, results = tuple(filter(_is_call, known["calls"])), tuple(known.get("results", ()))
    body = (FOLDER / key).read_bytes()
    if name == "bedrock-converse" and form == "ndjson":  # of its binary messages only the events were kept, as lines
        body, form = event_stream(map(json.loads, body.splitlines())), "binary"
    return Recording(kit, key, body, form, calls, results)


def _fits(kit: Kit, name: str, form: str) -> bool:
    return kit.name == name and (not isinstance(kit, GeminiKit) or isinstance(kit, GeminiArrayKit) is (form == "array"))


def some_recordings(wanted: Callable[[Recording], bool]) -> pytest.MarkDecorator:
    """Run a test for each recording that is wanted."""
    chosen = [pytest.param(one, id=one.key) for one in recordings() if wanted(one)]
    return pytest.mark.parametrize("recording", chosen or [MISSING])


def each_unread(folder: str, form: str) -> pytest.MarkDecorator:
    """Run a test for each recording of a kind that callfuse leaves alone: its `key`."""
    kinds: Sequence[str] = [key for key in entries() if key.startswith(f"{folder}/") and key.endswith(form)]
    return pytest.mark.parametrize("key", kinds or [MISSING])


MISSING = pytest.param(None, marks=pytest.mark.skip(reason=f"no captures in {FOLDER}; set CALLFUSE_CAPTURES"))
