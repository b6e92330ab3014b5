"""Sequences that are read from their source only as far as somebody looks."""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

READ_AT_ONCE: Final = 11
"""Of so many items the first are read, where one of them is asked for: those of a window of the default size, and the
newest."""

_FIRST_BLOCK: Final = 16
"""Items that have been read are walked through by so many at once, then by twice as many, and so on: most look at few.
"""


class Replayed(Generic[T]):
    """An iterable that can be walked any number of times, and is read from its source only as far as one walks, but
    for the first few (`at_once`); a list has been read."""

    __slots__ = ("_at_once", "_read", "_source")

    def __init__(self, source: Iterable[T], at_once: int = READ_AT_ONCE) -> None:
        is_read = isinstance(source, list)
        self._at_once = at_once
        self._read: list[T] = [*source] if is_read else []
        self._source: Iterator[Any] | None = None if is_read else iter(source)
        """None once it is at its end."""

    def restart(self, source: Iterator[Any], *, keeps: int | None) -> None:
        """Read on from `source`, which brings the same once more; of what has been read only so many items are kept
        (None: all)."""
        if keeps is not None:
            del self._read[keeps:]
        self._source = islice(source, len(self._read), None)

    @property
    def is_read(self) -> bool:
        """Whether its source is at its end."""
        return self._source is None

    def __iter__(self) -> Iterator[T]:
        return iter(self._read) if self._source is None else chain(self._read, self._rest())

    def _rest(self) -> Iterator[T]:
        """What nobody has read before, from when what somebody has is at its end."""
        read = self._read
        index = len(read)
        while index < len(read) or self._reads_to(index):
            more = read[index:]
            yield from more
            index += len(more)

    def at(self, index: int) -> T | None:
        """The item at this place, None where there is none."""
        read = self._read
        return read[index] if index < len(read) or self._reads_to(index) else None

    def slice(self, begin: int, end: int) -> list[T]:
        """The items from one place up to another, as far as there are."""
        read = self._read
        if len(read) < end and self._source is not None:
            self._reads_to(end - 1)
        return read[begin:end]

    def blocks(self) -> Iterator[list[T]]:
        """The items in lists: some of what has been read before at once, then each by itself."""
        index, size = 0, _FIRST_BLOCK
        while block := self._read[index : index + size] or self.slice(index, index + 1):
            yield block
            index += len(block)
            size *= 2

    def _reads_to(self, index: int) -> bool:
        """Read up to the item at this place; False where there is none."""
        if self._source is None:
            return False
        read = self._read
        read += islice(self._source, max(index + 1, self._at_once) - len(read))
        if len(read) > index:
            return True
        self._source = None
        return False


class InBlocks(Replayed[T]):
    """The same, made of lists of items, each read at once."""

    __slots__ = ()

    def __init__(self, source: Iterable[list[T]]) -> None:
        super().__init__(())
        self._source = iter(source)

    def _reads_to(self, index: int) -> bool:
        read = self._read
        for items in self._source or ():
            read += items
            if len(read) > index:
                return True
        self._source = None
        return False
