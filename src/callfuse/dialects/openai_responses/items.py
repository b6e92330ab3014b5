"""Items of the Responses API: which are calls for the client, what they say, and what answers them.

An item of foreign JSON enters; a call, or the result that stands for its execution, leaves. Items of tools that the
vendor runs, and calls that a program of the vendor's waits for, are no calls here.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeGuard

from callfuse.model import Result, ToolCall
from callfuse.wire import Payload
from callfuse.wire.jsontext import dumps

OWN_ID: Final = "msg_callfuse_"
"""How the ids of the messages begin that callfuse writes."""


OWN_RESPONSE: Final = "resp_callfuse_"
"""How the ids of the responses begin that no model has made."""


class CallType(NamedTuple):
    """One type of call: where its arguments stand, the type of its result, and how callfuse writes one.

    `answer` is what a result holds beside type and call id; None where a result has no room for a text.
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
RESULTS: Final = frozenset(kind.result for kind in CALLS.values())


def is_client_call(item: Any) -> TypeGuard[Payload]:
    """Whether an item is a call for the client, made by the model itself."""
    if not isinstance(item, dict) or item.get("type") not in CALLS:
        return False
    caller = item.get("caller")
    if isinstance(caller, dict) and caller.get("type") != "direct":
        return False
    if item["type"] == "tool_search_call":
        return item.get("execution") == "client"
    environment = item.get("environment")
    return not (isinstance(environment, dict) and environment.get("type") != "local")


def is_result(item: Any) -> TypeGuard[Payload]:
    """Whether an item is the client's report of a call's execution."""
    return isinstance(item, dict) and item.get("type") in RESULTS and item.get("execution") != "server"


def call_id(item: Payload) -> str:
    """The id that a call and its result share; older clients name a local shell's result by the item's."""
    return str(item.get("call_id") or (item.get("id") if item.get("type") == "local_shell_call_output" else "") or "")


def name_of(item: Payload) -> str:
    """The tool of a call; a tool without a name goes by the item's type."""
    return str(item.get("name") or (item["type"] if "name" not in item else ""))


def arguments_of(item: Payload) -> str:
    """The arguments of a call as text; those of built-in tools are objects on the wire."""
    keys = CALLS[item["type"]].arguments
    value = next((item[key] for key in keys if item.get(key) is not None), "")
    return value if isinstance(value, str) else dumps(value).decode()


def call_of(item: Payload) -> ToolCall:
    """The call of an item."""
    namespace = str(item.get("namespace") or "")
    return ToolCall(call_id(item), name_of(item), arguments_of(item), namespace=namespace, kind=item["type"])


def result_of(item: Payload) -> Result:
    """What an item reports of a call's execution."""
    output = item.get("output", item.get("tools"))
    if item["type"] == "shell_call_output" and isinstance(output, list):
        parts: list[Any] = []
        for part in output:
            said = part if isinstance(part, dict) else {}
            parts += [f"{said.get('stdout') or ''}{said.get('stderr') or ''}", {"outcome": said.get("outcome")}]
        return Result(parts)
    if item["type"] == "apply_patch_call_output":
        return Result([output or "", {"status": item.get("status")}], item.get("status") == "failed")
    return Result(output)


def stand_in_for(call: ToolCall, text: str) -> Payload | None:
    """A result for a call that the vendor remembers and nobody will answer; None where callfuse cannot make one up."""
    if call.kind == "tool_search_call":
        return {"type": "tool_search_output", "call_id": call.id, "execution": "client", "tools": []}
    return answer_to(call, text) if CALLS[call.kind or "function_call"].answer else None


def answer_to(call: ToolCall, text: str) -> Payload:
    """The result that callfuse gives in place of an execution; KeyError where it cannot be given one."""
    kind = CALLS[call.kind or "function_call"]
    if kind.answer is None:
        raise KeyError(call.kind)
    return {"type": kind.result, "call_id": call.id} | kind.answer(text)
