"""What one exchange leaves in a client's history that the vendor would not take back as it stands.

Answers that have lost calls enter; for each item of theirs that later requests must not carry as it is, what is to
stand in its place leaves: the item without its id, or nothing. A reasoning item is good only with the item that
followed it, and an item with an id only with the reasoning before it.
"""

from collections.abc import Collection, Sequence

from callfuse.wire import Payload
from callfuse.wire.jsontext import dumps

LEFT_OUT = b""
"""The item is left out of later requests."""


class Trail:
    """Filled while an answer is written. `stored`: whether the vendor knows its items by their ids."""

    def __init__(self, *, stored: bool) -> None:
        self.items: dict[str, bytes] = {}
        self._stored = stored

    def wrote(self, item: Payload) -> None:
        """A message of callfuse's own: no vendor knows its id."""
        self.items[item["id"]] = _bare(item)

    def lost(self, items: Sequence[Payload], withheld: Collection[int]) -> None:
        """The items of one answer in their order, and the places of those that the client has not been given."""
        if not self._stored:
            return
        bare = False
        for at, item in enumerate(items):
            if at in withheld:
                bare |= item.get("type") == "reasoning"
            elif not item.get("id"):
                continue
            elif item.get("type") == "reasoning" and at + 1 in withheld:
                self.items[item["id"]] = LEFT_OUT
                bare = True
            elif bare:
                self.items[item["id"]] = _bare(item)


def _bare(item: Payload) -> bytes:
    return dumps({key: value for key, value in item.items() if key != "id"})
