"""Finds out whether a request declares a tool, or may have the tool without listing it.

A dialect returns the names in a request's list of tools, and None for an entry that may add tools without naming them
(an MCP server, a toolset, an unknown kind).
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from callfuse.memo import remembered
from callfuse.model.ids import LONGEST_ID
from callfuse.wire.jsontext import Edit, Path

_SEARCH: Final = re.compile(r"tool_?search|search_?tools", re.IGNORECASE)
"""Matches names of tools that load others: Anthropic's `tool_search_tool_bm25`, Claude Code's `ToolSearch`."""


class DescribedTool(NamedTuple):
    """A tool that the client runs, as a request lists it: its name, its description (empty if it has none) and the path
    of the description."""

    name: str
    description: str
    path: Path


class RequestWithTools(ABC):
    """A request that may list tools; base of the requests of all dialects."""

    __slots__ = ("_listed",)

    def __init__(self) -> None:
        self._listed: tuple[frozenset[str] | None] | None = None

    @abstractmethod
    def _tool_names(self) -> Iterable[Any]:
        """Return the names of the tools, with None for each entry that may add tools without naming them."""

    def described_tools(self) -> Iterable[DescribedTool]:
        """Return the tools that the client runs and whose entries have room for a description."""
        return ()

    def name_results(self) -> Sequence[Edit]:
        """Return the edits that name the tool at each result without a name; none if the format has no key for that."""
        return ()

    def declares(self, name: str) -> bool:
        """Whether the client may have a tool with this name."""
        listed = self._all_names
        return listed is None or name in listed

    @property
    def lists_tools(self) -> bool:
        """Whether the request lists all its tools, so that `declares` can be False."""
        return self._all_names is not None

    @property
    def _all_names(self) -> frozenset[str] | None:
        """What `all_names` returns, computed only once, because each note on a history needs it."""
        if self._listed is None:
            self._listed = (all_names(self._tool_names()),)
        return self._listed[0]


def all_names(listed: Iterable[Any]) -> frozenset[str] | None:
    """Return the names of all tools; None if there may be others, because the list is empty or incomplete, or a tool
    loads others."""
    names = [*listed]
    try:
        lines = "\n".join(names)
    except TypeError:  # not all have a name
        return None
    if not names:
        return None
    is_plain = lines.count("\n") < len(names)  # no name has a line break in it
    return _unless_loaded(lines) if is_plain else _all_unless_loaded(names)


_LONGEST_REMEMBERED: Final = 8 * 1024
"""The most characters of all tool names together for which the result is cached; an agent's have a few hundred."""


@remembered(entries=64, longest=_LONGEST_REMEMBERED)
def _unless_loaded(names: str) -> frozenset[str] | None:
    """Return the names in a text of lines; None if a tool loads others. Cached, as agents repeat their lists."""
    return _all_unless_loaded(names.split("\n"))


def _all_unless_loaded(names: Sequence[str]) -> frozenset[str] | None:
    return None if any(_SEARCH.search(name, 0, LONGEST_ID) for name in names) else frozenset(names)


def entries(listed: Any) -> Iterable[Any]:
    """Return the entries of a list of tools; a single None for a value of another type, nothing for an empty value."""
    return listed if isinstance(listed, list) else (None,) if listed else ()


def name_of(entry: Any) -> Any:
    """Return the name of an entry; None if it has none."""
    return entry.get("name") if isinstance(entry, dict) else None


def described(tool: Any, path: Path) -> Iterator[DescribedTool]:
    """Return the tool that an object at `path` describes by `name` and `description`; none if it describes no tool."""
    if not isinstance(tool, dict):
        return
    name, text = tool.get("name"), tool.get("description")
    if isinstance(name, str) and name and (text is None or isinstance(text, str)):
        yield DescribedTool(name, text or "", (*path, "description"))


def described_under(key: str, tools: Any, path: Path) -> Iterator[DescribedTool]:
    """Return the tools under a key of each entry in the list at `path`."""
    for at, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict):
            yield from described(tool.get(key), (*path, at, key))
