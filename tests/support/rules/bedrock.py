"""Converse's rules for a history.

Roles alternate, each tool use is answered in the message behind it, no text is blank, and a history with tools needs a
tool configuration.

In: a parsed body. Out: a sentence for each broken rule.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from callfuse.testing.bedrock import parts
from callfuse.testing.turn import objects
from tests.support.rules.signed import read_signature

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CHOICES = ("auto", "any", "tool")


def broken_rules(body: Mapping[str, Any]) -> Iterator[str]:
    """The rules that a request's body breaks, one sentence each."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages: a non-empty array is required"
        return
    listed = objects(messages)
    if len(listed) != len(messages):
        yield "messages: each must be an object"
    if listed and listed[0].get("role") != "user":
        yield "messages[0]: a conversation must start with a user message"
    yield from _check_tools(body, listed)
    for at, message in enumerate(listed):
        behind = listed[at + 1] if at + 1 < len(listed) else {}
        yield from _check_message(f"messages[{at}]", message, behind)
        before = listed[at - 1] if at else {}
        asked = {str(use.get("toolUseId")) for use in parts(before, "toolUse")}
        unasked = [id_ for result in parts(message, "toolResult") if (id_ := str(result.get("toolUseId"))) not in asked]
        if unasked:
            yield f"messages[{at}]: toolResult blocks without a toolUse in the message before: {', '.join(unasked)}"


def _check_message(place: str, message: Mapping[str, Any], behind: Mapping[str, Any]) -> Iterator[str]:
    """One message, with the one behind it."""
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant"):
        yield f"{place}.role: {role!r} is not one of user, assistant"
    if behind.get("role") == role:
        yield f"{place}: roles must alternate between user and assistant"
    if not isinstance(content, list) or not content:
        yield f"{place}.content: a non-empty array is required"
    for block in objects(content):
        if isinstance(block.get("text"), str) and not block["text"].strip():
            yield f"{place}: the text field of a content block is blank"
    yield from _check_reasoning(place, parts(message, "reasoningContent"), objects(content))
    used = [str(use.get("toolUseId")) for use in parts(message, "toolUse")]
    if len(set(used)) != len(used):
        yield f"{place}: a toolUseId is used twice"
    answered = {str(result.get("toolUseId")) for result in parts(behind, "toolResult")}
    if waiting := [id_ for id_ in used if id_ not in answered]:
        yield f"{place}: toolUse blocks without a toolResult in the next message: {', '.join(waiting)}"
    for use in parts(message, "toolUse"):
        if not (isinstance(use.get("name"), str) and TOOL_NAME.fullmatch(use["name"])):
            yield f"{place}: the tool's name {use.get('name')!r} is not valid"
        if not isinstance(use.get("input"), dict):
            yield f"{place}: the input of a toolUse must be an object"


def _check_reasoning(place: str, thoughts: Sequence[Mapping[str, Any]], blocks: Sequence[Any]) -> Iterator[str]:
    """Reasoning must be as the model signed it, of one answer, and come first."""
    said = [thought["reasoningText"] for thought in thoughts if isinstance(thought.get("reasoningText"), dict)]
    signed = [read_signature(str(one.get("signature"))) for one in said]
    for one, signature in zip(said, signed, strict=True):
        if signature is not None and not signature.fits(str(one.get("text"))):
            yield f"{place}: reasoning does not fit its signature"
    if len({signature.answer_id for signature in signed if signature is not None}) > 1:
        yield f"{place}: reasoning of two answers in one message"
    if said and blocks and "reasoningContent" not in blocks[0]:
        yield f"{place}: reasoning must come first"


def _check_tools(body: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The tool configuration."""
    config = body.get("toolConfig")
    tools = config.get("tools") if isinstance(config, dict) else None
    if not tools and any(parts(message, kind) for message in messages for kind in ("toolUse", "toolResult")):
        yield "toolConfig: must be given where messages hold toolUse or toolResult blocks"
    choice = config.get("toolChoice") if isinstance(config, dict) else None
    if choice is None:
        return
    kinds = list(choice) if isinstance(choice, dict) else []
    if len(kinds) != 1 or kinds[0] not in CHOICES:
        yield f"toolConfig.toolChoice: one of {', '.join(CHOICES)} is required"
    elif kinds == ["tool"]:
        names = [(tool.get("toolSpec") or {}).get("name") for tool in objects(tools)]
        if (choice["tool"] or {}).get("name") not in names:
            yield "toolConfig.toolChoice.tool.name: not one of the tools"
