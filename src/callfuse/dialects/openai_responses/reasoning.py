"""Reasoning items, which hold for one model only: what another one is sent lacks them.

Where the vendor stores items, it takes one by its id only with the reasoning before it: so the items behind it go
without their ids.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from callfuse.dialects.base import AskError
from callfuse.wire import Payload
from callfuse.wire.jsontext import Edit, apply


def is_reasoning(item: Any) -> bool:
    """Whether an item is the model's reasoning."""
    return isinstance(item, dict) and item.get("type") == "reasoning"


def without_reasoning(items: Sequence[Any]) -> Iterator[Edit]:
    """The edits that take the reasoning out of an input; AskError where an item is named that cannot be looked into."""
    parted = False
    for at, item in enumerate(items):
        if is_reasoning(item):
            parted = True
            yield Edit(("input", at), None)
        elif isinstance(item, dict) and item.get("type") == "item_reference":
            raise AskError("item_reference")
        elif parted and isinstance(item, dict) and "id" in item:
            yield Edit(("input", at, "id"), None)


def said_otherwise(items: Sequence[tuple[bytes, Payload]]) -> list[tuple[bytes, Payload]]:
    """The items of a turn as another model can take them."""
    bare = [Edit(("id",), None)]
    return [(apply(raw, bare), item) for raw, item in items if not is_reasoning(item)]
