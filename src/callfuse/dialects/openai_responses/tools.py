"""The tools of a Responses request: those that it lists, and those that came with its input.

Codex lists all of its tools in the input, in an item `additional_tools`; what a search for tools has found stands in
its output.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from callfuse.dialects.declared import entries, name_of

_NAMED: Final = frozenset({"function", "custom"})
_BUILT_IN: Final = frozenset({
    "apply_patch", "code_interpreter", "computer", "computer_use", "computer_use_preview", "file_search",
    "image_generation", "local_shell", "programmatic_tool_calling", "shell", "web_search", "web_search_preview",
})  # fmt: skip
"""Tools whose calls are items of types of their own."""
_WITH_TOOLS: Final = frozenset({"additional_tools", "tool_search_output"})


def tool_names(tools: Any) -> Iterator[Any]:
    """The names in a list of tools, those of a namespace included; None for an entry that may bring any."""
    for tool in entries(tools):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind in _NAMED:
            yield name_of(tool)
        elif kind == "namespace":
            yield from map(name_of, entries(tool.get("tools")))
        elif kind not in _BUILT_IN:
            yield None


def loaded(items: Sequence[Any]) -> Iterable[Any]:
    """The lists of tools that stand in an input."""
    return (item.get("tools") for item in items if isinstance(item, dict) and item.get("type") in _WITH_TOOLS)
