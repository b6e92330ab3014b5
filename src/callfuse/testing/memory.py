"""What a vendor that stores responses remembers: items by their ids, and the conversation up to each response.

A request's body enters and leaves with all that went before it in front, as the model would read it; answers are added.
"""

from collections.abc import Mapping
from typing import Any

from callfuse.testing.turn import objects

Items = list[dict[str, Any]]


class Memory:
    """One vendor's memory."""

    def __init__(self) -> None:
        self._items: dict[str, dict[str, Any]] = {}
        self._upto: dict[str, Items] = {}

    def recalled(self, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """The body with the conversation that it goes on from; None where nobody knows that."""
        place = _place(body)
        if place and place not in self._upto and "previous_response_id" in body:
            return None
        said = body.get("input")
        new = [{"role": "user", "content": said}] if isinstance(said, str) else objects(said)
        items = [self._items.get(str(item.get("id")), item) if _is_reference(item) else item for item in new]
        left = {key: value for key, value in body.items() if key not in ("previous_response_id", "conversation")}
        if not place and items == said:
            return dict(body)
        return left | {"input": self._upto.get(place, []) + items} if items or place else left

    def keep(self, body: Mapping[str, Any], response: Mapping[str, Any]) -> None:
        """Remember an answer to this body, unless it is not to be stored."""
        if body.get("store") is False:
            return
        recalled = self.recalled(body) or {}
        output = objects(response.get("output"))
        self._items |= {str(item.get("id")): item for item in output}
        upto = objects(recalled.get("input")) + output
        self._upto[str(response.get("id"))] = upto
        if body.get("conversation"):
            self._upto[_place(body)] = upto


def _place(body: Mapping[str, Any]) -> str:
    """The id of what a request goes on from."""
    conversation = body.get("conversation")
    name = conversation.get("id") if isinstance(conversation, dict) else conversation
    return str(body.get("previous_response_id") or name or "")


def _is_reference(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "item_reference"
