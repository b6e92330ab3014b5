"""The messages of an Anthropic request as turns of blocks, and the rules that a block must keep by itself.

Parsed messages enter; turns leave, or sentences about broken rules. Neighbouring messages of one role are one turn,
as the vendor reads them; every block knows its place in the body as it came.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from callfuse.testing.signatures import read_signature

IDENTITY = re.compile(r"[a-zA-Z0-9_-]+")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
THINKING = ("thinking", "redacted_thinking")

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Block:
    """One content block; a text block made up for a message whose content is a string."""

    message: str
    place: str
    type: str
    body: Json

    def text_of(self, key: str) -> str:
        """The value of `key` as text, whatever it is."""
        return str(self.body.get(key))


@dataclass(frozen=True, slots=True)
class Turn:
    """Neighbouring messages of one role, joined."""

    role: str
    place: str
    blocks: list[Block] = field(default_factory=list)

    def of(self, *types: str) -> list[Block]:
        """The blocks of these types."""
        return [block for block in self.blocks if block.type in types]


def turns_of(messages: Sequence[Any]) -> list[Turn]:
    """The turns of a conversation; messages without a role are left out."""
    turns: list[Turn] = []
    for at, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            continue
        place = f"messages.{at}"
        if not turns or turns[-1].role != message["role"]:
            turns.append(Turn(message["role"], place))
        content = message.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}] if content else []
        for number, block in enumerate(content if isinstance(content, list) else []):
            body = block if isinstance(block, dict) else {}
            turns[-1].blocks.append(Block(place, f"{place}.content.{number}", str(body.get("type")), body))
    return turns


def broken_blocks(turn: Turn) -> Iterator[str]:
    """Every rule that a block of `turn` breaks by itself."""
    for block in turn.blocks:
        if turn.role == "user" and block.type in ("tool_use", *THINKING):
            yield f"{block.place}: a {block.type} block belongs to an assistant message"
        elif turn.role == "assistant" and block.type == "tool_result":
            yield f"{block.place}: a tool_result block belongs to a user message"
        elif block.type == "text":
            yield from _text(block.place, block.body)
        elif block.type == "tool_use":
            yield from _tool_use(block)
        elif block.type == "tool_result":
            yield from _tool_result(block)
        elif block.type == "thinking":
            yield from _thinking(block)
        elif block.type == "None":
            yield f"{block.place}: an object with a type is required"


def _text(place: str, block: Json) -> Iterator[str]:
    text = block.get("text")
    if not isinstance(text, str):
        yield f"{place}.text: a string is required"
    elif not text:
        yield f"{place}: a text block must not be empty"
    elif not text.strip():
        yield f"{place}: a text block must hold more than white space"


def _tool_use(block: Block) -> Iterator[str]:
    identity, name = block.body.get("id"), block.body.get("name")
    if not isinstance(identity, str) or not IDENTITY.fullmatch(identity):
        yield f"{block.place}.id: {identity!r} does not match {IDENTITY.pattern}"
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        yield f"{block.place}.name: {name!r} does not match {TOOL_NAME.pattern}"
    if not isinstance(block.body.get("input"), dict):
        yield f"{block.place}.input: an object is required"


def _tool_result(block: Block) -> Iterator[str]:
    if not isinstance(block.body.get("tool_use_id"), str):
        yield f"{block.place}.tool_use_id: a string is required"
    content = block.body.get("content")
    if content is not None and not isinstance(content, str | list):
        yield f"{block.place}.content: a string or an array is required"
    if block.body.get("is_error") and not content:
        yield f"{block.place}.content: an error must say something"
    for at, part in enumerate(content if isinstance(content, list) else []):
        place = f"{block.place}.content.{at}"
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            yield f"{place}: an object with a type is required"
        elif part["type"] == "text":
            yield from _text(place, part)


def _thinking(block: Block) -> Iterator[str]:
    thinking, signature = block.body.get("thinking"), block.body.get("signature")
    if not isinstance(thinking, str):
        yield f"{block.place}.thinking: a string is required"
    elif not isinstance(signature, str) or not signature:
        yield f"{block.place}.signature: a thinking block must carry its signature"
    elif (signed := read_signature(signature)) is not None and not signed.fits(thinking):
        yield f"{block.place}: the signature is not that of this thinking; send blocks back as they came"
