"""The message that callfuse puts in place of calls: as an item, and as the events that stream it.

Every field is there that the official SDK's types require. Under structured output its text is a refusal, for plain
text would not fit the schema.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from callfuse.dialects.openai_responses.items import OWN_ID
from callfuse.wire import Payload

_STARTED: Final = {"status": "in_progress", "content": []}


class OwnMessage(NamedTuple):
    """What is said. `phase`: whether the messages of this vendor have one."""

    id: str
    text: str
    refuses: bool = False
    phase: bool = False

    def item(self) -> Payload:
        """The whole output item."""
        return self._head() | {"status": "completed", "content": [self._part(self.text)]}

    def events(self, output_index: int) -> Iterator[Payload]:
        """The events from the item's begin to its end; `sequence_number` is not among their fields."""
        at = {"item_id": self.id, "output_index": output_index, "content_index": 0}
        slot = "refusal" if self.refuses else "text"
        logprobs: Payload = {} if self.refuses else {"logprobs": []}
        text = f"response.{'refusal' if self.refuses else 'output_text'}"
        yield _item_event("added", output_index, self._head() | _STARTED)
        yield {"type": "response.content_part.added"} | at | {"part": self._part("")}
        yield {"type": f"{text}.delta"} | at | {"delta": self.text} | logprobs
        yield {"type": f"{text}.done"} | at | {slot: self.text} | logprobs
        yield {"type": "response.content_part.done"} | at | {"part": self._part(self.text)}
        yield _item_event("done", output_index, self.item())

    def _head(self) -> Payload:
        phase = {"phase": "final_answer"} if self.phase else {}
        return {"id": self.id, "type": "message", "role": "assistant"} | phase

    def _part(self, text: str) -> Payload:
        if self.refuses:
            return {"type": "refusal", "refusal": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def own_id(response_id: str, output_index: int) -> str:
    """The id of the message at this place of this response: the same whenever it is asked for."""
    digest = blake2b(f"{response_id} {output_index}".encode("utf-8", "surrogatepass"), digest_size=16)
    return OWN_ID + digest.hexdigest()


def _item_event(what: str, output_index: int, item: Payload) -> Payload:
    return {"type": f"response.output_item.{what}", "output_index": output_index, "item": item}
