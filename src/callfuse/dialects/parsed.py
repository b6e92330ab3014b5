"""What a request has of its parsed body, which may be dropped while the answer comes.

An answer streams for seconds or minutes, thousands of them at once, and hardly any asks its request for anything. What
is asked for all the same is parsed again.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from callfuse.model import Round, ToolCall
from callfuse.wire import Payload
from callfuse.wire.jsontext import loads


class ParsedBody(ABC):
    """A body's bytes as they came, and attributes that can be taken from what it says once more."""

    __slots__ = ("_came", "body")

    _came: bytes
    body: bytes

    @abstractmethod
    def _take(self, payload: Payload) -> None:
        """Set what `drop_parsed` deletes."""

    @abstractmethod
    def drop_parsed(self) -> None:
        """Keep the bytes, and what else is small."""

    @abstractmethod
    def rounds(self) -> Iterator[Round | None]:
        """As `Request.rounds`."""

    def calls(self) -> Iterator[ToolCall]:
        """As `Request.calls`; dialects that can tell without making the rounds do so."""
        for round_ in self.rounds():
            if round_ is not None:
                yield from [one.call for one in round_.calls]

    def tools(self) -> Iterator[str | None]:
        """As `Request.tools`; dialects that can tell without making the calls do so."""
        for round_ in self.rounds():
            names = {one.full_name for one in round_.calls} if round_ else set()
            yield None if round_ is None else names.pop() if len(names) == 1 else ""

    if not TYPE_CHECKING:  # which would take any name for an attribute

        def __getattr__(self, name: str) -> object:
            if name == "_came":  # `copy` asks a request for this and that before it has a body
                raise AttributeError(name)
            self._take(loads(self._came))
            return object.__getattribute__(self, name)
