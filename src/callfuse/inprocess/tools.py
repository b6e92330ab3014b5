"""`GuardedTools`: the tool functions of an agent, kept from running in a loop."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from callfuse.inprocess.attaching import attached
from callfuse.inprocess.detection import LoopDetection
from callfuse.inprocess.detector import LoopDetector
from callfuse.inprocess.guard import Guard
from callfuse.inprocess.results import ToolResult
from callfuse.inprocess.wrapping import Tool, plain_result, wrapped
from callfuse.model import MARKER, ToolCall
from callfuse.wire.jsontext import NotJSON, loads


class GuardedTools(Mapping[str, Tool]):
    """The tools of one agent run, plain and async functions by name, with a `LoopDetector` around them.

    A call that is found looping does not run: its previous result is given back, where it is kept, with a text
    (`[callfuse] ...`) that says so. A warning goes behind the result of the call, with the running count. Both keep the
    result's own shape where they can (see `attached`); `attach`, a function of result and text, does it otherwise. The
    texts are the settings `error_messages`.

    `run(calls)`, or `await arun(calls)`, runs all calls of one answer of the model, which are judged together, and
    gives a `ToolResult` for each; what tools raise, unknown tools and broken arguments are results, too. For loops that
    call functions themselves, `tools[name]` is the function, guarded: each call of it is judged as an answer of its
    own, except one that comes while an equal one still runs. What it raises is raised, with callfuse's texts as notes.

    `detector` is one for this run; without it, there is a new one from environment and `CALLFUSE_CONFIG`.
    `enabled=False` leaves these tools unguarded, and a given detector out of it. With `raise_on_block`, a block that
    leaves nothing of an answer to run raises `ToolLoopError` and so ends the agent's loop; else the model goes on and
    reads what the block says.
    """

    def __init__(
        self,
        tools: Mapping[str, Tool],
        detector: LoopDetector | None = None,
        *,
        enabled: bool = True,
        raise_on_block: bool = False,
        attach: Callable[[Any, str], Any] = attached,
    ) -> None:
        for name, tool in tools.items():
            if not callable(tool):
                raise TypeError(f"tool {name} = {tool!r}: use a function")
        if detector is None or not enabled:
            detector = LoopDetector(enabled=enabled)
        self.detector = detector
        self._guard = Guard(detector, attach, raise_on_block=raise_on_block)
        self._tools = dict(tools)
        self._guarded = self._tools
        if detector.enabled:
            detector.declare_tools(tools)
            self._guarded = {name: wrapped(name, tool, self._guard) for name, tool in tools.items()}

    def __getitem__(self, name: str) -> Tool:
        return self._guarded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._guarded)

    def __len__(self) -> int:
        return len(self._guarded)

    def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run the calls of one answer, one after the other; results in their order.

        TypeError for an async tool, and for arguments that are neither JSON text nor a mapping.
        """
        checked = self._guard.check(calls)
        return [
            self._given_back(call, found) if found and found.withholds else self._answered(call, found, self._run(call))
            for call, found in zip(calls, checked, strict=True)
        ]

    async def arun(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run the calls of one answer side by side, async tools and plain ones; results in the order of the calls.

        For asyncio and trio. A plain tool runs in the event loop, as it would in the agent's own code.
        """
        checked = self._guard.check(calls)
        ran: dict[int, _Ran] = {}

        async def run(at: int) -> None:
            ran[at] = await self._run_async(calls[at])

        async with anyio.create_task_group() as tasks:
            for at, found in enumerate(checked):
                if not (found and found.withholds):
                    tasks.start_soon(run, at)
        return [
            self._given_back(call, found) if found and found.withholds else self._answered(call, found, ran[at])
            for at, (call, found) in enumerate(zip(calls, checked, strict=True))
        ]

    def _run(self, call: ToolCall) -> "_Ran":
        try:
            tool, arguments = self._prepared(call)
            result = tool(**arguments)
        except Exception as error:  # noqa: BLE001 - the model reads it
            return _raised(error)
        return _Ran(plain_result(call.name, result))

    async def _run_async(self, call: ToolCall) -> "_Ran":
        try:
            tool, arguments = self._prepared(call)
            result = tool(**arguments)
            return _Ran(await result if inspect.isawaitable(result) else result)
        except Exception as error:  # noqa: BLE001 - the model reads it
            return _raised(error)

    def _prepared(self, call: ToolCall) -> tuple[Tool, dict[str, Any]]:
        """The tool of a call and its arguments by name; raises _UnusableCallError."""
        if call.name not in self._tools:
            raise _UnusableCallError(f"There is no tool {call.name}. The tools are: {', '.join(self._tools)}.")
        arguments = call.arguments
        if isinstance(arguments, str):
            try:
                arguments = loads(arguments) if arguments.strip() else {}
            except NotJSON as error:
                raise _UnusableCallError(f"The arguments of {call.name} are no JSON: {error}.") from None
        if not isinstance(arguments, Mapping):
            raise _UnusableCallError(f"The arguments of {call.name} are no JSON object.")
        return self._tools[call.name], dict(arguments)

    def _given_back(self, call: ToolCall, found: LoopDetection) -> ToolResult:
        return ToolResult(call, self._guard.given_back(found), detection=found)

    def _answered(self, call: ToolCall, found: LoopDetection | None, ran: "_Ran") -> ToolResult:
        text, detection = self._guard.ran(call, found, ran.result, is_error=ran.is_error or None)
        content = f"{MARKER} {ran.result}" if ran.is_error and ran.error is None else ran.result
        return ToolResult(call, self._guard.with_text(content, text), ran.is_error, ran.error, detection)


class _UnusableCallError(Exception):
    """A call that no function can be called with; the message is for the model."""


@dataclass(frozen=True, slots=True)
class _Ran:
    """What has come of a call: what the tool returned, or the error as text; `error` is what the tool raised."""

    result: Any
    is_error: bool = False
    error: Exception | None = None


def _raised(error: Exception) -> _Ran:
    if isinstance(error, _UnusableCallError):
        return _Ran(str(error), is_error=True)
    return _Ran(f"{type(error).__name__}: {error}", is_error=True, error=error)
