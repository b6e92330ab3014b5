"""Ends messages and reasoning that have begun in the client's stream, in the middle of their text.

The events that end an item repeat its texts, so the pieces are kept until it ends. Reasoning gets a mark in place of
its encrypted content, so that it is removed from later requests.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from callfuse.dialects.cut_reasoning import CUT
from callfuse.dialects.shapes import index_of, is_one_of, object_of, plain_text_of
from callfuse.wire import Payload


class _PartType(NamedTuple):
    """How parts of one type look on the wire. `key`: of the text, in the part and in the event that ends it. `name`: of
    events of the text; `part`: of the part. `number`: the key of its place. `place`: the key of the list in the
    item."""

    key: str
    name: str
    part: str = "response.content_part"
    number: str = "content_index"
    place: str = "content"


_TYPES: Final = {
    "output_text": _PartType("text", "response.output_text"),
    "refusal": _PartType("refusal", "response.refusal"),
    "reasoning_text": _PartType("text", "response.reasoning_text"),
    "summary_text": _PartType(
        "text", "response.reasoning_summary_text", "response.reasoning_summary_part", "summary_index", "summary"
    ),
}
_DELTAS: Final = {f"{kind.name}.delta": name for name, kind in _TYPES.items()}
_ENDS: Final = frozenset(f"{kind.part}.done" for kind in _TYPES.values())
_MORE: Final[dict[str, Payload]] = {"output_text": {"annotations": [], "logprobs": []}}
"""Further keys that the official SDK's type of a part requires."""
_SAID: Final = ("message", "reasoning")
"""Types of items with the model's words."""


class _OpenItem:
    """An item that has begun. `parts`: by type and index, the pieces of its texts; `ended`: the whole parts."""

    __slots__ = ("begun", "ended", "parts")

    def __init__(self, begun: Payload) -> None:
        self.begun = begun
        self.parts: dict[tuple[str, int], list[str]] = {}
        self.ended: set[tuple[str, int]] = set()


class OpenItems:
    """The messages and reasoning, by output index, that have begun but not ended in the client's stream."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: dict[int, _OpenItem] = {}

    def note(self, kind: Any, payload: Payload) -> None:
        """Note an event that the client got."""
        index, kind = index_of(payload.get("output_index")), plain_text_of(kind)
        if kind == "response.output_item.added":
            begun = object_of(payload.get("item"))
            if is_one_of(begun.get("type"), _SAID):
                self._items[index] = _OpenItem(begun)
        elif kind == "response.output_item.done":
            self._items.pop(index, None)
        elif kind in _DELTAS and (item := self._items.get(index)) is not None:
            name = _DELTAS[kind]
            place = name, index_of(payload.get(_TYPES[name].number))
            item.parts.setdefault(place, []).append(plain_text_of(payload.get("delta")))
        elif kind in _ENDS and (item := self._items.get(index)) is not None:
            name = plain_text_of(object_of(payload.get("part")).get("type"))
            if name in _TYPES:
                item.ended.add((name, index_of(payload.get(_TYPES[name].number))))

    def end(self) -> Iterator[Payload]:
        """Yield the events that end all open items, without `sequence_number`."""
        items, self._items = self._items, {}
        for index, item in items.items():
            about = {"item_id": item.begun.get("id"), "output_index": index}
            said: dict[str, list[Payload]] = {}
            for place, pieces in item.parts.items():
                name, at = place
                kind, text = _TYPES[name], "".join(pieces)
                part = {"type": name, kind.key: text} | _MORE.get(name, {})
                said.setdefault(kind.place, []).append(part)
                if place not in item.ended:
                    where = about | {kind.number: at}
                    logprobs: Payload = {"logprobs": []} if name == "output_text" else {}
                    yield {"type": f"{kind.name}.done"} | where | {kind.key: text} | logprobs
                    yield {"type": f"{kind.part}.done"} | where | {"part": part}
            signed = {"encrypted_content": CUT} if item.begun.get("type") == "reasoning" else {}
            whole = item.begun | said | {"status": "incomplete"} | signed
            yield {"type": "response.output_item.done", "output_index": index, "item": whole}
