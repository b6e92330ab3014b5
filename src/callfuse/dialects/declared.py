"""Whether a request declares a tool, and whether its list of tools tells all that there are.

A dialect gives the names that a request lists, one after another, and None for an entry that may bring tools without
naming them: an MCP server, a toolset, a kind that nobody knows. A name is found at its first place; what lies behind it
is not looked at.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

_SEARCH: Final = re.compile(r"tool_?search|search_?tools", re.IGNORECASE)
"""In the names of tools that load others: Anthropic's `tool_search_tool_bm25`, Claude Code's `ToolSearch`."""


def is_declared(name: str, listed: Iterable[Any]) -> bool:
    """Whether a tool is listed, or may be there all the same: nothing is listed, not all is, or a tool loads others."""
    before = []
    for one in listed:
        if one == name or not isinstance(one, str):
            return True
        before.append(one)
    return not before or any(map(_SEARCH.search, before))


def entries(listed: Any) -> Iterable[Any]:
    """The entries of a list of tools; of another shape one that says nothing."""
    return listed if isinstance(listed, list) else (None,) if listed else ()


def name_of(entry: Any) -> Any:
    """The name that an entry has itself; None where it has none."""
    return entry.get("name") if isinstance(entry, dict) else None
