"""`GuardedTools` wraps an agent's tool functions: each call is judged before it runs, and its result is recorded.

`with_loop_hint` adds a hint against loops to a tool's description.
"""

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import anyio

from callfuse.boundary import Boundary
from callfuse.errors import CallFuseError
from callfuse.inprocess.detection import LoopDetection, joined_messages
from callfuse.inprocess.detector import LoopDetector
from callfuse.inprocess.values import append_text, arguments_text, as_text
from callfuse.model import MARKER, ToolCall
from callfuse.policy.texts import LOOP_HINT
from callfuse.wire.jsontext import NotJSON, loads

Tool = Callable[..., Any]


def with_loop_hint(description: str = "") -> str:
    """Return a tool's description with a hint against loops appended; unchanged if it has the hint.

    The hint keeps some models from looping, and explains callfuse's texts in results. It is a constant, so that cached
    prompts stay cached. Leave it out for tools that must be called again and again. For the middleware, the setting
    `tool_call_loop.tool_hint` does the same.
    """
    if LOOP_HINT in description:
        return description
    return f"{description.rstrip()}\n\n{LOOP_HINT}" if description.strip() else LOOP_HINT


class ToolLoopError(CallFuseError):
    """A call was blocked, and `raise_on_block` was set. `detection`: the finding."""

    def __init__(self, detection: LoopDetection) -> None:
        super().__init__(detection.message)
        self.detection = detection


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The content that goes to the model for a call.

    `content` is the tool's own result, with callfuse's text if there is one; `text` is the content as text. `is_error`
    is True if the tool raised (then `error` is the exception) or could not be called. `detection` is the finding in the
    call, or None.
    """

    call: ToolCall
    content: Any
    is_error: bool = False
    error: Exception | None = None
    detection: LoopDetection | None = None

    @property
    def id(self) -> str:
        """The id of the call."""
        return self.call.id

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.call.name

    @property
    def text(self) -> str:
        """The content for a message: text as it is, anything else as JSON."""
        return as_text(self.content)


class GuardedTools(Mapping[str, Tool]):
    """The tools of one agent run, plain and async functions by name, with a `LoopDetector` around them.

    A looping call does not run: the model gets its previous result, if kept, with a text (`[callfuse] ...`) that says
    so. A warning, with the current count, follows the result of the call. Both keep the shape of the result if
    possible: text, mapping, or list of content parts. To attach texts in another way, pass `attach`, a function of
    result and text that returns the new result. The texts come from the settings `error_messages`.

    `run(calls)`, or `await arun(calls)`, runs all calls of one answer of the model, which are judged together, and
    returns a `ToolResult` for each; exceptions of tools, unknown tools and broken arguments are results, too. For agent
    loops that call functions themselves, `tools[name]` is the guarded function: each call of it is judged as an answer
    of its own, except during an equal call. Its exceptions are raised, with callfuse's texts as notes.

    `detector` is the detector of this run; by default a new one from environment and `CALLFUSE_CONFIG`. `enabled=False`
    leaves these tools unguarded, and a given detector unused. With `raise_on_block` (default False), a block that
    leaves no call of an answer to run raises `ToolLoopError`, which ends the agent's loop; else the model reads the
    text of the block and continues. Raises TypeError for a tool that is not callable.
    """

    def __init__(
        self,
        tools: Mapping[str, Tool],
        detector: LoopDetector | None = None,
        *,
        enabled: bool = True,
        raise_on_block: bool = False,
        attach: Callable[[Any, str], Any] = append_text,
    ) -> None:
        for name, tool in tools.items():
            if not callable(tool):
                raise TypeError(f"tool {name} = {tool!r}: use a function")
        if detector is None or not enabled:
            detector = LoopDetector(enabled=enabled)
        self.detector = detector
        self._guard = _ToolGuard(detector, attach, raise_on_block=raise_on_block)
        self._tools = dict(tools)
        self._guarded = self._tools
        if detector.enabled:
            detector.declare_tools(tools)
            self._guarded = {name: _wrap(name, tool, self._guard) for name, tool in tools.items()}

    def __getitem__(self, name: str) -> Tool:
        return self._guarded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._guarded)

    def __len__(self) -> int:
        return len(self._guarded)

    def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run the calls of one answer, one after the other. Returns the results in their order.

        Raises TypeError for an async tool, and for arguments that are neither JSON text nor a mapping; ToolLoopError as
        described in the class.
        """
        checked = self._guard.check(calls)
        return [
            self._withhold(call, found) if found and found.withholds else self._deliver(call, found, self._run(call))
            for call, found in zip(calls, checked, strict=True)
        ]

    async def arun(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run the calls of one answer concurrently, async tools and plain ones. Returns the results in the order of the
        calls.

        For asyncio and trio. A plain tool runs in the event loop, as it would in the agent's own code. Raises the same
        errors as `run`.
        """
        checked = self._guard.check(calls)
        ran: dict[int, _Returned] = {}

        async def run(at: int) -> None:
            ran[at] = await self._run_async(calls[at])

        async with anyio.create_task_group() as tasks:
            for at, found in enumerate(checked):
                if not (found and found.withholds):
                    tasks.start_soon(run, at)
        return [
            self._withhold(call, found) if found and found.withholds else self._deliver(call, found, ran[at])
            for at, (call, found) in enumerate(zip(calls, checked, strict=True))
        ]

    def _run(self, call: ToolCall) -> "_Returned":
        with Boundary(keep_traceback=True) as boundary:  # the tool's exception becomes its result
            tool, arguments = self._prepare(call)
            result = tool(**arguments)
        if boundary.error is not None:
            return _failure(boundary)
        return _Returned(_plain_result(call.name, result))

    async def _run_async(self, call: ToolCall) -> "_Returned":
        with Boundary(keep_traceback=True) as boundary:
            tool, arguments = self._prepare(call)
            result = tool(**arguments)
            return _Returned(await result if inspect.isawaitable(result) else result)
        return _failure(boundary)

    def _prepare(self, call: ToolCall) -> tuple[Tool, dict[str, Any]]:
        """Return the tool of a call and its arguments by name. Raises _UnusableCallError."""
        if call.name not in self._tools:
            raise _UnusableCallError(f"There is no tool {call.name}. The tools are: {', '.join(self._tools)}.")
        arguments = call.arguments
        if isinstance(arguments, str):
            try:
                arguments = loads(arguments) if arguments.strip() else {}
            except NotJSON as error:
                raise _UnusableCallError(f"The arguments of {call.name} are not JSON: {error}.") from None
        if not isinstance(arguments, Mapping):
            raise _UnusableCallError(f"The arguments of {call.name} are not a JSON object.")
        return self._tools[call.name], dict(arguments)

    def _withhold(self, call: ToolCall, found: LoopDetection) -> ToolResult:
        return ToolResult(call, self._guard.substitute(found), detection=found)

    def _deliver(self, call: ToolCall, found: LoopDetection | None, ran: "_Returned") -> ToolResult:
        text, detection = self._guard.record(call, found, ran.result, is_error=ran.is_error or None)
        content = f"{MARKER} {ran.result}" if ran.is_error and ran.error is None else ran.result
        return ToolResult(call, self._guard.with_text(content, text), ran.is_error, ran.error, detection)


class _UnusableCallError(Exception):
    """Raised for a call that no function can handle. The message is for the model."""


@dataclass(frozen=True, slots=True)
class _Returned:
    """The result of a tool, or the text of an error. `error`: the tool's exception."""

    result: Any
    is_error: bool = False
    error: Exception | None = None


def _failure(boundary: Boundary) -> _Returned:
    if isinstance(boundary.error, _UnusableCallError):
        return _Returned(str(boundary.error), is_error=True)
    return _Returned(boundary.cause, is_error=True, error=boundary.error)


class _ToolGuard:
    """The detector of one agent's tools: checks a call before it runs, and records its result."""

    def __init__(self, detector: LoopDetector, attach: Callable[[Any, str], Any], *, raise_on_block: bool) -> None:
        self.detector = detector
        self._attach = attach
        self._raise_on_block = raise_on_block
        self._running: Counter[tuple[str, str]] = Counter()
        self._lock = Lock()

    def check(self, calls: Sequence[ToolCall]) -> list[LoopDetection | None]:
        """Judge the calls of one answer. May raise ToolLoopError."""
        found = self.detector.check_round(calls)
        blocks = [one for one in found if one is not None and one.action is not None and one.action.blocks]
        if self._raise_on_block and blocks and all(one is not None and one.withholds for one in found):
            raise ToolLoopError(blocks[0])
        return found

    def substitute(self, found: LoopDetection) -> Any:
        """Return the result that the model gets for a withheld call: the previous one, if kept, with callfuse's
        text."""
        if found.previous is None:
            return found.message
        return self._attach(found.previous.content, found.message)

    def record(
        self, call: ToolCall, found: LoopDetection | None, result: object, *, is_error: bool | None = None
    ) -> tuple[str, LoopDetection | None]:
        """Record a result. Returns the text to add for the model, and the finding in the call, if any."""
        late = self.detector.record(result, call, is_error=is_error)
        return joined_messages(found, late), late or found

    def with_text(self, result: Any, text: str) -> Any:
        """Return a result with the text attached, unless that is empty."""
        return self._attach(result, text) if text else result

    def begin(self, call: ToolCall) -> bool:
        """Note that a call begins. Returns False if an equal one is running, because the two count as one."""
        with self._lock:
            self._running[call.name, call.text] += 1
            return self._running[call.name, call.text] == 1

    def end(self, call: ToolCall) -> None:
        """Note that a call has run, or will not run."""
        with self._lock:
            self._running[call.name, call.text] -= 1
            self._running += Counter()  # drops calls that are not running


def _wrap(name: str, tool: Tool, guard: _ToolGuard) -> Tool:
    """Make a guarded function from a tool, with the same name, signature and result."""
    bind = _binder(tool)

    def run(*args: Any, **kwargs: Any) -> Any:
        running = _Running(guard, name, bind(args, kwargs))
        if running.withheld is not None:
            return guard.substitute(running.withheld)
        with running:
            result = _plain_result(name, tool(*args, **kwargs))
        return running.finish(result)

    async def run_async(*args: Any, **kwargs: Any) -> Any:
        running = _Running(guard, name, bind(args, kwargs))
        if running.withheld is not None:
            return guard.substitute(running.withheld)
        with running:
            result = await tool(*args, **kwargs)
        return running.finish(result)

    is_async = any(map(inspect.iscoroutinefunction, (tool, getattr(tool, "__call__", None))))  # noqa: B004
    return functools.wraps(tool)(run_async if is_async else run)


class _Running:
    """One call of a guarded function, checked on creation. Unless it is `withheld`, the tool runs inside the `with`
    block."""

    def __init__(self, guard: _ToolGuard, name: str, arguments: Mapping[str, Any]) -> None:
        self._guard = guard
        self._call = ToolCall("", name, arguments_text(name, arguments))
        self._counts = guard.begin(self._call)
        self._found: LoopDetection | None = None
        runs = False
        try:
            if self._counts:
                self._found = guard.check([self._call])[0]
            runs = self.withheld is None
        finally:
            if not runs:
                guard.end(self._call)

    @property
    def withheld(self) -> LoopDetection | None:
        """The finding, if it keeps the tool from running."""
        return self._found if self._found is not None and self._found.withholds else None

    def __enter__(self) -> None:
        """Do nothing: the call was checked already."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._guard.end(self._call)
        if not isinstance(error, Exception) or not self._counts:
            return
        if text := self._guard.record(self._call, self._found, error)[0]:
            error.add_note(text)

    def finish(self, result: Any) -> Any:
        """Record the tool's result, and return the result for the caller."""
        if not self._counts:
            return result
        return self._guard.with_text(result, self._guard.record(self._call, self._found, result)[0])


def _plain_result(name: str, result: Any) -> Any:
    """Return the result of a plain function. Raises TypeError if it must be awaited."""
    if not inspect.isawaitable(result):
        return result
    if inspect.iscoroutine(result):
        result.close()
    raise TypeError(f"tool {name} returned an awaitable: define it with `async def`, and call `await arun(calls)`")


def _binder(tool: Tool) -> Callable[[tuple[Any, ...], Mapping[str, Any]], dict[str, Any]]:
    """Make a function that returns arguments of this tool by name, whether passed by position or by name."""
    try:
        signature = inspect.signature(tool)
    except (TypeError, ValueError):  # some built-in functions have no signature
        signature = inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])
    others = next((one.name for one in signature.parameters.values() if one.kind is one.VAR_KEYWORD), "")

    def bind(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            bound = dict(signature.bind(*args, **kwargs).arguments)
        except TypeError:  # the tool itself will raise this
            return {"args": args, **kwargs}
        return {**bound.pop(others, {}), **bound}

    return bind
