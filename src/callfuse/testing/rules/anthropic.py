"""The rules of Anthropic messages for a request.

A parsed body enters, sentences about broken rules leave. The vendor joins neighbouring messages of one role into a
turn before it judges, and so do these rules. The heart of it: the calls of an assistant turn are answered, each
exactly once, by the first blocks of the user turn right behind it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from callfuse.testing.rules.anthropic_blocks import THINKING, Block, Turn, broken_blocks, turns_of
from callfuse.testing.rules.anthropic_settings import broken_settings, thinking_mode
from callfuse.testing.signatures import Signed, read_signature


def broken(body: Mapping[str, Any]) -> Iterator[str]:
    """Every rule that `body` breaks."""
    yield from broken_settings(body)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages: a non-empty array is required"
        return
    yield from _shapes(messages)
    turns = turns_of(messages)
    if turns and turns[0].role == "assistant":
        yield f"{turns[0].place}: the first message must be a user's"
    for before, turn, behind in zip([None, *turns], turns, [*turns[1:], None], strict=False):
        yield from broken_blocks(turn)
        if turn.role == "assistant":
            yield from _unique_ids(turn)
            yield from _calls_answered(turn, behind)
            yield from _order(turn)
            yield from _thinking_of_one_answer(turn)
        yield from _results_asked_for(before, turn)
    thinks = thinking_mode(body)
    if turns:
        yield from _ending(turns[-1], thinks)
    if thinks == "enabled":
        yield from _thinking_first(turns)
    if not body.get("tools") and any(turn.of("tool_use", "tool_result") for turn in turns):
        yield "tools: must be given where messages hold tool_use or tool_result blocks"


def _shapes(messages: Sequence[Any]) -> Iterator[str]:
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


def _unique_ids(turn: Turn) -> Iterator[str]:
    """Call ids differ within a turn; over the whole conversation they may come again."""
    seen: set[str] = set()
    for block in turn.of("tool_use", "server_tool_use"):
        identity = block.text_of("id")
        if identity in seen:
            yield f"{block.place}: the call id {identity!r} is used twice"
        seen.add(identity)


def _calls_answered(turn: Turn, behind: Turn | None) -> Iterator[str]:
    results = _leading_results(behind)
    waiting = [identity for block in turn.of("tool_use") if (identity := block.text_of("id")) not in results]
    if waiting:
        yield (
            f"{turn.place}: each tool_use must have its tool_result at the start of the next user message; "
            f"unanswered: {', '.join(waiting)}"
        )


def _leading_results(turn: Turn | None) -> list[str]:
    ids: list[str] = []
    if turn is not None and turn.role == "user":
        for block in turn.blocks:
            if block.type != "tool_result":
                break
            ids.append(block.text_of("tool_use_id"))
    return ids


def _results_asked_for(before: Turn | None, turn: Turn) -> Iterator[str]:
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


def _order(turn: Turn) -> Iterator[str]:
    """Nothing to read follows a call, and thinking leads to something."""
    called = False
    for block in turn.blocks:
        if block.type == "text" and called:
            yield f"{block.place}: text must not follow a tool_use in an assistant message"
        called = called or block.type == "tool_use"
    if turn.blocks and turn.blocks[-1].type in THINKING:
        yield f"{turn.blocks[-1].place}: the last block of an assistant message must not be {turn.blocks[-1].type}"


def _thinking_of_one_answer(turn: Turn) -> Iterator[str]:
    """The thinking of one message is that of one answer, complete and in order."""
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


def _ending(last: Turn, thinks: str) -> Iterator[str]:
    """A trailing assistant message is a prefill, or a paused turn that holds a server's call."""
    if last.role != "assistant" or last.of("server_tool_use", "mcp_tool_use"):
        return
    if thinks in ("enabled", "adaptive"):
        yield f"{last.place}: the last message must be a user's where thinking is on"
    if last.blocks and last.blocks[-1].type == "text":
        text = last.blocks[-1].text_of("text")
        if text != text.rstrip():
            yield f"{last.blocks[-1].place}: the last assistant message must not end with white space"


def _thinking_first(turns: Sequence[Turn]) -> Iterator[str]:
    """The tool loop that the request continues began with thinking.

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
