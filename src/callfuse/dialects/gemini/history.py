"""The conversation in a Gemini request: whose each content is, the calls of the model, the results of the client.

One answer may stand in several contents in a row (google-genai's chats keep a content for each streamed chunk): they
are one round. Calls and responses know each other by id where both have one, else by name and order.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from callfuse.dialects.gemini.names import FUNCTION_CALL, FUNCTION_RESPONSE, get, key
from callfuse.dialects.gemini.read import arguments_of
from callfuse.dialects.history import is_own_or_reminder, pair
from callfuse.model import MARKER, Result, Round, ToolCall
from callfuse.wire import Payload
from callfuse.wire.jsontext import dumps, loads_exact

OWN_KEY: Final = MARKER.strip("[]")
"""The key of a response object under which callfuse's texts stand."""
_WRAPPERS: Final = {"result": None, "output": None, "return_value": None, "content": None, "error": True}
"""Keys under which clients put a result that is no object by itself; Google documents `output` and `error`."""


class Contents:
    """The contents of one request; `body` is their text."""

    __slots__ = ("_body", "_listed")

    def __init__(self, listed: Sequence[Any], body: bytes) -> None:
        self._listed = listed
        self._body = body

    def __len__(self) -> int:
        return len(self._listed)

    def parts(self, at: int) -> Sequence[Any]:
        """The parts of a content; none where it is of no known shape."""
        content = self._listed[at]
        parts = content.get("parts") if isinstance(content, dict) else None
        return parts if isinstance(parts, list) else ()

    def is_model(self, at: int) -> bool:
        """Whether the model has said this."""
        content = self._listed[at]
        return isinstance(content, dict) and content.get("role") == "model"

    def is_real_user(self, at: int) -> bool:
        """Whether a person has spoken here: text beside function responses is a harness's reminder."""
        parts = self.parts(at)
        if self.is_model(at) or not parts or any(get(part, FUNCTION_RESPONSE) is not None for part in parts):
            return False
        return not is_own_or_reminder(parts)

    def start_of_answer(self, at: int) -> int:
        """Where the answer begins that this content of the model's belongs to."""
        while at and self.is_model(at - 1):
            at -= 1
        return at

    def calls(self, start: int) -> tuple[ToolCall, ...]:
        """The calls of the answer that begins here."""
        return tuple(self._calls(start))

    def _calls(self, at: int) -> Iterator[ToolCall]:
        while at < len(self) and self.is_model(at):
            for place, part in enumerate(self.parts(at)):
                function = get(part, FUNCTION_CALL)
                if isinstance(function, dict) and function.get("name"):
                    exact = partial(_exact, self._body, at, place)  # which holds no contents
                    id_, name = str(function.get("id") or ""), str(function["name"])
                    yield ToolCall(id_, name, arguments_of(function), exact=exact)
            at += 1

    def responses(self, start: int) -> list[tuple[int, int, Payload]]:
        """The function responses behind the answer that begins here: content, part and response."""
        at = start
        while at < len(self) and self.is_model(at):
            at += 1
        found: list[tuple[int, int, Payload]] = []
        while at < len(self) and not self.is_model(at) and not self.is_real_user(at):
            for place, part in enumerate(self.parts(at)):
                response = get(part, FUNCTION_RESPONSE)
                if isinstance(response, dict):
                    found.append((at, place, response))
            at += 1
        return found

    def rounds(self) -> Iterator[Round | None]:
        """The rounds with their results, newest first; None for a real user message."""
        at = len(self) - 1
        while at >= 0:
            if self.is_model(at):
                at = self.start_of_answer(at)
                if calls := self.calls(at):
                    responses = [response for _, _, response in self.responses(at)]
                    keys, ids = keys_of(calls, responses)
                    paired = pair(calls, list(zip(ids, map(_result, responses), strict=True)), keys)
                    yield Round(paired, at)
            elif self.is_real_user(at):
                yield None
            at -= 1


def _exact(body: bytes, at: int, place: int) -> Any:
    """A call's arguments with all digits of their integers."""
    part = loads_exact(body)["contents"][at]["parts"][place]
    return get(part, FUNCTION_CALL).get("args")


def keys_of(calls: Sequence[ToolCall], responses: Sequence[Payload]) -> tuple[list[str], list[str]]:
    """What calls and responses know each other by: ids where both have them, else names; empty where by nothing."""
    known = {call.id for call in calls if call.id}
    if any(response.get("id") in known for response in responses):
        return [call.id for call in calls], [str(response.get("id") or "") for response in responses]
    names = {call.name for call in calls}
    given = [response.get("name") for response in responses]
    return [call.name for call in calls], [str(name) if name in names else "" for name in given]


def response_key(part: Any) -> str:
    """How a part spells its function response."""
    return key(part, FUNCTION_RESPONSE)


def _result(function: Payload) -> Result:
    """What a function response reports: its object, or what clients wrap into one, and the parts beside it."""
    content = function.get("response")
    is_error: bool | None = None
    if isinstance(content, dict):
        content = {name: value for name, value in content.items() if name != OWN_KEY or not _is_own(value)}
        if len(content) == 1 and (only := next(iter(content))) in _WRAPPERS:
            content, is_error = content[only], _WRAPPERS[only]
    if beside := function.get("parts"):
        text = content if isinstance(content, str) else dumps(content).decode("utf-8", "replace")
        content = [text, *beside] if isinstance(beside, list) else [text, beside]
    return Result(content, is_error)


def _is_own(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(MARKER)
