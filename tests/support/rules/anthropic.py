"""Anthropic's rules for a request: turns, blocks and settings.

In: a parsed body. Out: a sentence for each broken rule. Like the vendor, the rules first join neighbouring messages of
one role into a turn; each block keeps its place in the original body. The main rule: each call of an assistant turn is
answered exactly once, by the first blocks of the user turn right behind it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.rules.signed import Signed, read_signature

IDENTITY = re.compile(r"[a-zA-Z0-9_-]+")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
THINKING = ("thinking", "redacted_thinking")

MIN_THINKING_TOKENS = 1024
MAX_CACHE_MARKS = 4

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Block:
    """One content block. A string content becomes a text block."""

    message: str
    place: str
    type: str
    body: Json

    def text_of(self, key: str) -> str:
        """The value of `key`, converted to text."""
        return str(self.body.get(key))


@dataclass(frozen=True, slots=True)
class RoleTurn:
    """Neighbouring messages of one role, joined."""

    role: str
    place: str
    blocks: list[Block] = field(default_factory=list)

    def of(self, *types: str) -> list[Block]:
        """The blocks of these types."""
        return [block for block in self.blocks if block.type in types]


def broken_rules(body: Mapping[str, Any]) -> Iterator[str]:
    """The rules that a request's body breaks, one sentence each."""
    yield from _check_settings(body)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages: a non-empty array is required"
        return
    yield from _check_shapes(messages)
    turns = _role_turns(messages)
    if turns and turns[0].role == "assistant":
        yield f"{turns[0].place}: the first message must be a user's"
    for before, turn, behind in zip([None, *turns], turns, [*turns[1:], None], strict=False):
        yield from _check_blocks(turn)
        if turn.role == "assistant":
            yield from _check_unique_ids(turn)
            yield from _check_calls_answered(turn, behind)
            yield from _check_order(turn)
            yield from _check_thinking_of_one_answer(turn)
        yield from _check_results_asked_for(before, turn)
    thinks = thinking_mode(body)
    if turns:
        yield from _check_ending(turns[-1], thinks)
    if thinks == "enabled":
        yield from _check_thinking_first(turns)
    if not body.get("tools") and any(turn.of("tool_use", "tool_result") for turn in turns):
        yield "tools: must be given where messages hold tool_use or tool_result blocks"


def _check_shapes(messages: Sequence[Any]) -> Iterator[str]:
    """Roles and contents, message by message."""
    for at, message in enumerate(messages):
        place = f"messages.{at}"
        if not isinstance(message, dict):
            yield f"{place}: an object is required"
            continue
        role, content = message.get("role"), message.get("content")
        if role not in ("user", "assistant", "system"):
            yield f"{place}.role: {role!r} is not one of user, assistant, system"
        if not isinstance(content, str | list):
            yield f"{place}.content: a string or an array is required"
        elif not content and not (role == "assistant" and at == len(messages) - 1):
            yield f"{place}: only the last message, if it is an assistant's, may be empty"


def _check_unique_ids(turn: RoleTurn) -> Iterator[str]:
    """Call ids differ within a turn; over the whole conversation they may come again."""
    seen: set[str] = set()
    for block in turn.of("tool_use", "server_tool_use"):
        identity = block.text_of("id")
        if identity in seen:
            yield f"{block.place}: the call id {identity!r} is used twice"
        seen.add(identity)


def _check_calls_answered(turn: RoleTurn, behind: RoleTurn | None) -> Iterator[str]:
    results = _leading_results(behind)
    waiting = [identity for block in turn.of("tool_use") if (identity := block.text_of("id")) not in results]
    if waiting:
        yield (
            f"{turn.place}: each tool_use must have its tool_result at the start of the next user message; "
            f"unanswered: {', '.join(waiting)}"
        )


def _leading_results(turn: RoleTurn | None) -> list[str]:
    ids: list[str] = []
    if turn is not None and turn.role == "user":
        for block in turn.blocks:
            if block.type != "tool_result":
                break
            ids.append(block.text_of("tool_use_id"))
    return ids


def _check_results_asked_for(before: RoleTurn | None, turn: RoleTurn) -> Iterator[str]:
    asked: set[str] = set()
    if before is not None and before.role == "assistant":
        asked = {block.text_of("id") for block in before.of("tool_use")}
    seen: set[str] = set()
    behind_other = False
    for block in turn.blocks:
        if turn.role != "user" or block.type != "tool_result":
            behind_other = True
            continue
        called = block.text_of("tool_use_id")
        if called not in asked:
            yield f"{block.place}: {called!r} is no tool_use of the message before"
        elif called in seen:
            yield f"{block.place}: {called!r} is answered twice"
        elif behind_other:
            yield f"{block.place}: a tool_result must stand before all other blocks of its message"
        seen.add(called)


def _check_order(turn: RoleTurn) -> Iterator[str]:
    """No text follows a call, and thinking is not the last block."""
    called = False
    for block in turn.blocks:
        if block.type == "text" and called:
            yield f"{block.place}: text must not follow a tool_use in an assistant message"
        called = called or block.type == "tool_use"
    if turn.blocks and turn.blocks[-1].type in THINKING:
        yield f"{turn.blocks[-1].place}: the last block of an assistant message must not be {turn.blocks[-1].type}"


def _check_thinking_of_one_answer(turn: RoleTurn) -> Iterator[str]:
    """All thinking of one message is from one answer, complete and in order."""
    by_message: dict[str, list[tuple[Block, Signed]]] = {}
    for block in turn.of("thinking"):
        signed = read_signature(block.text_of("signature"))
        if signed is not None:
            by_message.setdefault(block.message, []).append((block, signed))
    for seen in by_message.values():
        answer_id = seen[0][1].answer_id
        for place, (block, signed) in enumerate(seen):
            if signed.answer_id != answer_id:
                yield f"{block.place}: thinking of two answers must not stand in one message"
            elif signed.place != place:
                yield f"{block.place}: thinking blocks must come back complete and in their order"


def _check_ending(last: RoleTurn, thinks: str) -> Iterator[str]:
    """A trailing assistant message is a prefill, or a paused turn that holds a server's call."""
    if last.role != "assistant" or last.of("server_tool_use", "mcp_tool_use"):
        return
    if thinks in ("enabled", "adaptive"):
        yield f"{last.place}: the last message must be a user's where thinking is on"
    if last.blocks and last.blocks[-1].type == "text":
        text = last.blocks[-1].text_of("text")
        if text != text.rstrip():
            yield f"{last.blocks[-1].place}: the last assistant message must not end with white space"


def _check_thinking_first(turns: Sequence[RoleTurn]) -> Iterator[str]:
    """The tool loop that the request continues must have begun with thinking.

    Without interleaved thinking a model thinks once, before the first call of the loop, so the later assistant
    messages of the same loop are free. Adaptive thinking demands nothing.
    """
    if not turns or turns[-1].role != "user" or not turns[-1].of("tool_result"):
        return
    start = len(turns) - 1
    while start > 0 and (turns[start].role != "user" or turns[start].of("tool_result")):
        start -= 1
    first = next((turn for turn in turns[start:] if turn.role == "assistant" and turn.blocks), None)
    if first is not None and first.blocks[0].type not in THINKING:
        yield (
            f"{first.blocks[0].place}: where thinking is enabled, the assistant's turn must begin with thinking, "
            f"not with {first.blocks[0].type}"
        )


def _role_turns(messages: Sequence[Any]) -> list[RoleTurn]:
    """The turns of a conversation; messages without a role are left out."""
    turns: list[RoleTurn] = []
    for at, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            continue
        place = f"messages.{at}"
        if not turns or turns[-1].role != message["role"]:
            turns.append(RoleTurn(message["role"], place))
        content = message.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}] if content else []
        for number, block in enumerate(content if isinstance(content, list) else []):
            body = block if isinstance(block, dict) else {}
            turns[-1].blocks.append(Block(place, f"{place}.content.{number}", str(body.get("type")), body))
    return turns


def _check_blocks(turn: RoleTurn) -> Iterator[str]:
    """The rules that single blocks of a turn break."""
    for block in turn.blocks:
        if turn.role == "user" and block.type in ("tool_use", *THINKING):
            yield f"{block.place}: a {block.type} block belongs to an assistant message"
        elif turn.role == "assistant" and block.type == "tool_result":
            yield f"{block.place}: a tool_result block belongs to a user message"
        elif block.type == "text":
            yield from _check_text(block.place, block.body)
        elif block.type == "tool_use":
            yield from _check_tool_use(block)
        elif block.type == "tool_result":
            yield from _check_tool_result(block)
        elif block.type == "thinking":
            yield from _check_thinking(block)
        elif block.type == "None":
            yield f"{block.place}: an object with a type is required"


def _check_text(place: str, block: Json) -> Iterator[str]:
    text = block.get("text")
    if not isinstance(text, str):
        yield f"{place}.text: a string is required"
    elif not text:
        yield f"{place}: a text block must not be empty"
    elif not text.strip():
        yield f"{place}: a text block must hold more than white space"


def _check_tool_use(block: Block) -> Iterator[str]:
    identity, name = block.body.get("id"), block.body.get("name")
    if not isinstance(identity, str) or not IDENTITY.fullmatch(identity):
        yield f"{block.place}.id: {identity!r} does not match {IDENTITY.pattern}"
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        yield f"{block.place}.name: {name!r} does not match {TOOL_NAME.pattern}"
    if not isinstance(block.body.get("input"), dict):
        yield f"{block.place}.input: an object is required"


def _check_tool_result(block: Block) -> Iterator[str]:
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
            yield from _check_text(place, part)


def _check_thinking(block: Block) -> Iterator[str]:
    thinking, signature = block.body.get("thinking"), block.body.get("signature")
    if not isinstance(thinking, str):
        yield f"{block.place}.thinking: a string is required"
    elif not isinstance(signature, str) or not signature:
        yield f"{block.place}.signature: a thinking block must carry its signature"
    elif (signed := read_signature(signature)) is not None and not signed.fits(thinking):
        yield f"{block.place}: the signature is not that of this thinking; send blocks back as they came"


def thinking_mode(body: Json) -> str:
    """The type of thinking: `enabled`, `adaptive` or `disabled` (the default)."""
    thinking = body.get("thinking")
    return str(thinking.get("type")) if isinstance(thinking, dict) else "disabled"


def _check_settings(body: Json) -> Iterator[str]:
    """Every rule that `body` breaks outside its messages."""
    if "model" in body and not (isinstance(body["model"], str) and body["model"]):  # clouds name it in the path
        yield "model: a non-empty string is required"
    most = body.get("max_tokens")
    if not isinstance(most, int) or most < 1:
        yield f"max_tokens: a whole number from 1 is required, not {most!r}"
    yield from _check_tool_choice(body)
    if thinking_mode(body) == "enabled":
        budget = body["thinking"].get("budget_tokens")
        if not isinstance(budget, int) or budget < MIN_THINKING_TOKENS:
            yield f"thinking.budget_tokens: a whole number from {MIN_THINKING_TOKENS} is required, not {budget!r}"
        if body.get("temperature", 1) != 1:
            yield "temperature: only 1 is allowed where thinking is enabled"
    if (marks := _cache_marks(body)) > MAX_CACHE_MARKS:
        yield f"cache_control: at most {MAX_CACHE_MARKS} blocks may carry it, not {marks}"


def _check_tool_choice(body: Json) -> Iterator[str]:
    choice = body.get("tool_choice")
    if choice is None:
        return
    if not isinstance(choice, dict):
        yield f"tool_choice: an object is required, not {choice!r}"
        return
    kind = choice.get("type")
    if kind not in ("auto", "any", "tool", "none"):
        yield f"tool_choice.type: {kind!r} is not one of auto, any, tool, none"
    elif not body.get("tools"):
        yield "tool_choice: only allowed where tools are given"
    elif kind in ("any", "tool") and thinking_mode(body) in ("enabled", "adaptive"):
        yield "tool_choice: a forced tool cannot go with thinking"
    elif kind == "tool" and choice.get("name") not in [t.get("name") for t in body["tools"] if isinstance(t, dict)]:
        yield f"tool_choice.name: the tool {choice.get('name')!r} is not in tools"


def _cache_marks(value: Any) -> int:
    """The number of blocks with `cache_control`. Arguments of calls and schemas do not count."""
    if isinstance(value, dict):
        return (value.get("cache_control") is not None) + sum(
            _cache_marks(inner) for key, inner in value.items() if key not in ("input", "input_schema")
        )
    return sum(map(_cache_marks, value)) if isinstance(value, list) else 0
