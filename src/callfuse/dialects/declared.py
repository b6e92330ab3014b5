"""Finds out whether a request declares a tool, or may have it although it does not list it.

A dialect gives the names in a request's list of tools one by one, and None for an entry that may bring tools without
naming them (an MCP server, a toolset, an unknown kind).
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Final

_SEARCH: Final = re.compile(r"tool_?search|search_?tools", re.IGNORECASE)
"""Matches names of tools that load others: Anthropic's `tool_search_tool_bm25`, Claude Code's `ToolSearch`."""


def is_declared(name: str, listed: Iterable[Any]) -> bool:
    """Whether a tool is listed or may exist all the same: the list is empty or incomplete, or a tool loads others.
    Stops at the first hit."""
    before = []
    for one in listed:
        if one == name or not isinstance(one, str):
            return True
        before.append(one)
    return not before or any(map(_SEARCH.search, before))


class RequestWithTools(ABC):
    """A request that may list tools; base of the requests of all dialects."""

    __slots__ = ()

    @abstractmethod
    def _tool_names(self) -> Iterable[Any]:
        """The names of the tools; None for an entry that may bring tools without naming them."""

    def declares(self, name: str) -> bool:
        """Whether there may be a tool of this name."""
        return is_declared(name, self._tool_names())


def entries(listed: Any) -> Iterable[Any]:
    """The entries of a list of tools; one None for a value of another shape, nothing for an empty one."""
    return listed if isinstance(listed, list) else (None,) if listed else ()


def name_of(entry: Any) -> Any:
    """The name of an entry; None if it has none."""
    return entry.get("name") if isinstance(entry, dict) else None
