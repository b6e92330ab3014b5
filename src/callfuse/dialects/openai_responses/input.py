"""The input of a Responses request as runs: the model's items of one response, and the results that came of them.

Items of foreign JSON enter, newest first; runs and real user messages leave. A run begins behind a result or another
speaker's message. In a chain, and where items are named by reference, results come without their calls: these are then
given by what is known of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from callfuse.dialects.history import is_own_or_reminder
from callfuse.dialects.openai_responses.items import call_id, call_of, is_client_call, is_result
from callfuse.model import ToolCall
from callfuse.wire import Payload

Recall = Mapping[str, Callable[[], ToolCall]]
"""Calls by their ids, each made anew when it is asked for."""

SPEAKERS: Final = frozenset({"user", "system", "developer"})


class Run(NamedTuple):
    """Where the items of one response begin, its calls, and the places of the results behind it."""

    position: int
    calls: tuple[ToolCall, ...]
    results: tuple[int, ...]


def runs(items: Sequence[Any], known: Recall) -> Iterator[Run | None]:
    """The runs that have calls, newest first; None where a real user message stands."""
    results: list[int] = []
    calls: list[ToolCall] = []
    begun = False
    for position in range(len(items) - 1, -2, -1):
        item = items[position] if position >= 0 else None
        ends = item is None or role_of(item) in SPEAKERS or (begun and is_result(item))
        if ends and (begun or results):
            calls += _recalled(items, results, calls, known)
            if calls:
                yield Run(position + 1, tuple(reversed(calls)), tuple(reversed(results)))
            results, calls, begun = [], [], False
        if is_result(item):
            results.append(position)
        elif is_real_user(item):
            yield None
        elif item is not None and not ends:
            begun = True
            if is_client_call(item):
                calls.append(call_of(item))


def _recalled(items: Sequence[Any], results: Sequence[int], calls: Sequence[ToolCall], known: Recall) -> list[ToolCall]:
    """The calls of results (newest first) that do not stand in the input, as far as they are known."""
    listed = {call.id for call in calls}
    loose = [id_ for place in results if (id_ := call_id(items[place])) in known and id_ not in listed]
    if loose:
        listed = {call_id(item) for item in items if is_client_call(item)}
    return [known[id_]() for id_ in loose if id_ not in listed]


def role_of(item: Any) -> str:
    """Who speaks in an item, or gives tools to the model; nobody where it is neither."""
    if not isinstance(item, dict) or item.get("type", "message") not in ("message", "additional_tools"):
        return ""
    return str(item.get("role") or "")


def is_real_user(item: Any) -> bool:
    """Whether a person has spoken here: not callfuse, and not a harness's reminder."""
    return role_of(item) == "user" and not is_own_or_reminder(item.get("content"))


def opening(items: Sequence[Any]) -> Iterator[Payload]:
    """System and developer messages up to and with the first user message."""
    for item in items:
        role = role_of(item)
        if role in SPEAKERS:
            yield item
        if role == "user":
            return
