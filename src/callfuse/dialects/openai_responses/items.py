"""Items of the Responses API: finds calls for the client and results, reads them, and writes results.

Calls of tools that the vendor runs, and calls of the vendor's programs, are not calls here.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeGuard

from callfuse.dialects.ask_again import CannotReplay
from callfuse.dialects.shapes import is_one_of
from callfuse.model import Result, ToolCall
from callfuse.wire import Payload
from callfuse.wire.jsontext import dumps

OWN_ID: Final = "msg_callfuse_"
"""Prefix of the ids of callfuse's own messages."""
OWN_RESPONSE: Final = "resp_callfuse_"
"""Prefix of the ids of callfuse's own responses."""


class CallType(NamedTuple):
    """One type of call: the keys of its arguments, the type of its result, and how to write one.

    `answer`: makes the fields of a result, besides type and call id, from a text; None if a result cannot have a text.
    """

    arguments: tuple[str, ...]
    result: str
    answer: Callable[[str], Payload] | None


def _output(text: str) -> Payload:
    return {"output": text}


def _shell_output(text: str) -> Payload:
    return {"output": [{"stdout": "", "stderr": text, "outcome": {"type": "exit", "exit_code": 1}}]}


def _failed_output(text: str) -> Payload:
    return {"status": "failed", "output": text}


CALLS: Final = {
    "function_call": CallType(("arguments",), "function_call_output", _output),
    "custom_tool_call": CallType(("input",), "custom_tool_call_output", _output),
    "local_shell_call": CallType(("action",), "local_shell_call_output", _output),
    "shell_call": CallType(("action",), "shell_call_output", _shell_output),
    "apply_patch_call": CallType(("operation",), "apply_patch_call_output", _failed_output),
    "tool_search_call": CallType(("arguments",), "tool_search_output", None),
    "computer_call": CallType(("actions", "action"), "computer_call_output", None),
}
_NAMED: Final = frozenset({"function_call", "custom_tool_call"})
RESULTS: Final = frozenset(kind.result for kind in CALLS.values())
_NOT_PLAIN: Final = frozenset({"shell_call_output", "apply_patch_call_output"})
"""Results with fields besides their output."""


def is_client_call(item: Any) -> TypeGuard[Payload]:
    """Whether an item is a call for the client, made by the model itself."""
    if not isinstance(item, dict) or not is_one_of(item.get("type"), CALLS):
        return False
    caller = item.get("caller")
    if isinstance(caller, dict) and caller.get("type") != "direct":
        return False
    if item["type"] == "tool_search_call":
        return item.get("execution") == "client"
    environment = item.get("environment")
    return not (isinstance(environment, dict) and environment.get("type") != "local")


def is_reasoning(item: Any) -> TypeGuard[Payload]:
    """Whether an item is the model's reasoning."""
    return isinstance(item, dict) and item.get("type") == "reasoning"


def call_id(item: Payload) -> str:
    """Return the id that a call and its result share. Older clients use the item's id for the local shell's results."""
    found = item.get("call_id")
    if not found and item.get("type") == "local_shell_call_output":
        found = item.get("id")
    return found if type(found) is str else str(found or "")


def name_of(item: Payload) -> str:
    """Return the name of a call's tool; the item's type for built-in tools, which have none. Empty if it is missing."""
    return str(item.get("name") or "") if "name" in item or item["type"] in _NAMED else str(item["type"])


def arguments_of(item: Payload) -> str:
    """Return the arguments of a call as text; the arguments of built-in tools are objects on the wire."""
    for key in CALLS[item["type"]].arguments:
        value = item.get(key)
        if value is not None:
            return value if type(value) is str else dumps(value).decode()
    return ""


def call_of(item: Payload) -> ToolCall:
    """Return the call in an item."""
    namespace = item.get("namespace")
    return ToolCall(call_id(item), name_of(item), arguments_of(item), str(namespace) if namespace else "", item["type"])


def keyed_result_of(item: Payload) -> tuple[str, Result]:
    """Return the call's id and the result in an item."""
    output = item.get("output", item.get("tools"))
    return call_id(item), _result_of(item, output) if item["type"] in _NOT_PLAIN else Result(output)


def _result_of(item: Payload, output: Any) -> Result:
    if item["type"] == "apply_patch_call_output":
        return Result([output or "", {"status": item.get("status")}], item.get("status") == "failed")
    if not isinstance(output, list):
        return Result(output)
    parts: list[Any] = []
    for part in output:
        said = part if isinstance(part, dict) else {}
        parts += [f"{said.get('stdout') or ''}{said.get('stderr') or ''}", {"outcome": said.get("outcome")}]
    return Result(parts)


def stand_in_for(call: ToolCall, text: str) -> Payload | None:
    """Return a result for a stored call that the client will not answer; None if callfuse cannot write a result."""
    if call.kind == "tool_search_call":
        return {"type": "tool_search_output", "call_id": call.id, "execution": "client", "tools": []}
    return answer_to(call, text) if CALLS[call.kind or "function_call"].answer else None


def answer_to(call: ToolCall, text: str) -> Payload:
    """Return callfuse's result for a withheld call. Raises CannotReplay if results of this type cannot have a text."""
    kind = CALLS[call.kind or "function_call"]
    if kind.answer is None:
        raise CannotReplay(call.kind)
    return {"type": kind.result, "call_id": call.id} | kind.answer(text)


def user_item(content: bytes) -> bytes:
    """Return a user message with this content (JSON text), equivalent to an input that is a plain text."""
    return b'{"role":"user","content":' + content + b"}"
