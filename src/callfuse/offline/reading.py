"""Recorded runs of files: names enter, runs and faults leave, one at a time and in the order of the files."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import PurePath
from typing import BinaryIO, Final

from callfuse.offline.files import STDIN, Piece, open_raw, pieces
from callfuse.offline.formats import FORMATS, format_of
from callfuse.offline.formats.format import Conversation
from callfuse.offline.joining import LIMIT_BYTES, Joining, beginnings, run_of
from callfuse.offline.run import BadRecord, Fault, Run, kind_of

_FOREIGN: Final = (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)
"""What readers of foreign JSON raise where it is of no shape that they know."""


class Reading:
    """The runs of some files; `-` is standard input. Iterate it once.

    `source` is the source of all of them; where it is empty, what the record says, or else the name of the file.
    `position` is how far it has come, in bytes of the files as they stand, all of them together.
    """

    def __init__(self, names: Sequence[str], *, source: str = "", limit_bytes: int = LIMIT_BYTES) -> None:
        self._names = names
        self._source = source
        self._limit = limit_bytes
        self._raw: BinaryIO | None = None
        self._before = 0
        self.records = 0
        """Records that could be read."""

    @property
    def position(self) -> int:
        """Bytes read so far; standard input has no place."""
        return self._before + (self._raw.tell() if self._raw is not None else 0)

    def __iter__(self) -> Iterator[Run | Fault]:
        for name in self._names:
            try:
                raw = open_raw(name)
            except OSError as error:
                yield Fault(name, 0, f"cannot be opened: {error.strerror or error}")
                continue
            with nullcontext(raw) if name == STDIN else raw:
                self._raw = None if name == STDIN else raw
                yield from self._file(name, raw)
                self._before, self._raw = self.position, None

    def _file(self, name: str, raw: BinaryIO) -> Iterator[Run | Fault]:
        joining = Joining(self._limit)
        for piece in pieces(name, raw):
            if isinstance(piece, Fault):
                yield piece
                continue
            try:
                yield from self._record(name, piece, joining)
            except BadRecord as error:
                yield Fault(name, piece.line, str(error))
        yield from joining.rest()

    def _record(self, name: str, piece: Piece, joining: Joining) -> Iterator[Run | Fault]:
        """What a record tells of runs that are over; raises BadRecord."""
        format_ = format_of(piece.value)
        if format_ is None:
            known = ", ".join(one.name for one in FORMATS)
            raise BadRecord(f"is {kind_of(piece.value)}, which is none of the known formats ({known})")
        place = f"{name}:{piece.line}"
        file = PurePath(name).name.partition(".")[0] or name
        try:
            for one in format_.read(piece.value, piece.text):
                if isinstance(one, BadRecord):
                    yield Fault(name, piece.line, str(one))
                    continue
                run = run_of(one) if isinstance(one, Conversation) else one
                run = replace(run, id=run.id or place, source=self._source or run.source or file)
                self.records += 1
                if isinstance(one, Conversation):
                    # A verdict makes a record a run of its own, named or not.
                    session = one.label.session or (f"{place}/{self.records}" if run.success is not None else "")
                    yield from joining.take(run, beginnings(run, one.request, session), len(one.request.body))
                else:
                    yield run
        except BadRecord:
            raise
        except _FOREIGN as error:
            raise BadRecord(f"cannot be read as {format_.name}: {type(error).__name__}: {error}") from error
