"""Functions around tools: the same names, signatures and results, guarded before and behind."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from callfuse.inprocess.detection import LoopDetection
from callfuse.inprocess.guard import Guard
from callfuse.inprocess.values import arguments_text
from callfuse.model import ToolCall

Tool = Callable[..., Any]


def wrapped(name: str, tool: Tool, guard: Guard) -> Tool:
    """The tool as a guarded function."""
    named = _naming(tool)

    def run(*args: Any, **kwargs: Any) -> Any:
        running = _Running(guard, name, named(args, kwargs))
        if running.withheld is not None:
            return guard.given_back(running.withheld)
        with running:
            result = plain_result(name, tool(*args, **kwargs))
        return running.done(result)

    async def run_async(*args: Any, **kwargs: Any) -> Any:
        running = _Running(guard, name, named(args, kwargs))
        if running.withheld is not None:
            return guard.given_back(running.withheld)
        with running:
            result = await tool(*args, **kwargs)
        return running.done(result)

    return functools.wraps(tool)(run_async if _is_async(tool) else run)


class _Running:
    """One call of a tool, checked; the tool runs within it, unless it is `withheld`."""

    def __init__(self, guard: Guard, name: str, arguments: Mapping[str, Any]) -> None:
        self._guard = guard
        self._call = ToolCall("", name, arguments_text(name, arguments))
        self._counts = guard.starts(self._call)
        self._found: LoopDetection | None = None
        try:
            if self._counts:
                self._found = guard.check([self._call])[0]
        except BaseException:
            guard.ends(self._call)
            raise
        if self.withheld is not None:
            guard.ends(self._call)

    @property
    def withheld(self) -> LoopDetection | None:
        """What was found, if it keeps the tool from running."""
        return self._found if self._found is not None and self._found.withholds else None

    def __enter__(self) -> None:
        """Nothing to do: it has been checked."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._guard.ends(self._call)
        if not isinstance(error, Exception) or not self._counts:
            return
        if text := self._guard.ran(self._call, self._found, error)[0]:
            error.add_note(text)

    def done(self, result: Any) -> Any:
        """What the caller gets for what the tool has returned."""
        if not self._counts:
            return result
        return self._guard.with_text(result, self._guard.ran(self._call, self._found, result)[0])


def plain_result(name: str, result: Any) -> Any:
    """The result of a plain function; TypeError if it still has to be awaited."""
    if not inspect.isawaitable(result):
        return result
    if inspect.iscoroutine(result):
        result.close()
    raise TypeError(f"tool {name} is async: define it with `async def`, and run rounds of it with `await arun(calls)`")


def _is_async(tool: Tool) -> bool:
    return inspect.iscoroutinefunction(tool) or inspect.iscoroutinefunction(getattr(tool, "__call__", None))  # noqa: B004


def _naming(tool: Tool) -> Callable[[tuple[Any, ...], Mapping[str, Any]], dict[str, Any]]:
    """Arguments of this tool by name, however they are passed; those that do not fit it as they are."""
    try:
        signature = inspect.signature(tool)
    except (TypeError, ValueError):  # some built-in functions have none
        signature = inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])
    others = next((one.name for one in signature.parameters.values() if one.kind is one.VAR_KEYWORD), "")

    def named(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            bound = dict(signature.bind(*args, **kwargs).arguments)
        except TypeError:  # the tool itself will say so
            return {"args": args, **kwargs}
        return {**bound.pop(others, {}), **bound}

    return named
