"""The commands in a conversation: those of the last user message are to be run, and no model is to see any.

A request enters; the commands and the edits that take them, and callfuse's own answers to them, out of it leave. What a
harness has put into a text of the user's is no more read than its texts beside it.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from callfuse.commands.run import REFUSED
from callfuse.commands.syntax import Command, read
from callfuse.dialects.base import Request
from callfuse.dialects.typed import TypedMessage, TypedText
from callfuse.harness import split_typed
from callfuse.wire.jsontext import Edit, dumps

RARE: Final = 64
"""So many times the first character of the prefix may stand in a request until it is taken for a frequent one."""

STAND_IN: Final = "(command)"
"""What a model reads in place of commands that another model has answered, where the message holds nothing else."""

_STYLES: Final[tuple[Callable[[str], bytes], ...]] = (
    dumps,
    lambda text: json.dumps(text).encode(),
    lambda text: json.dumps(text).replace("/", "\\/").encode(),
)
"""How clients write strings: as UTF-8, as ASCII, as ASCII with escaped slashes."""


class Found(NamedTuple):
    """What the conversation holds of commands.

    `commands`: those of the last user message. `fresh`: the conversation ends with it. `only`: and nothing else is
    typed there.
    """

    commands: tuple[Command, ...] = ()
    fresh: bool = False
    only: bool = False
    edits: tuple[Edit, ...] = ()

    @property
    def any(self) -> bool:
        """Whether there is anything to be done."""
        return bool(self.commands or self.edits)


class _Read(NamedTuple):
    """A text without its commands; `said`: whether a person says anything else in it."""

    text: TypedText
    commands: tuple[Command, ...]
    rest: str
    said: bool


class Mark:
    """A prefix as it may stand in a JSON text: without it a request holds no command."""

    __slots__ = ("_first", "_written")

    def __init__(self, prefix: str) -> None:
        first, *rest = map(_spellings, prefix)
        self._first = prefix[0].encode() if re.escape(prefix[0]).encode() == first else b""
        self._written = re.compile(b"".join([first, *rest]))

    def stands_in(self, body: bytes) -> bool:
        """Whether it does. One character is sought ten times as fast as a pattern, as long as it is rare."""
        at = body.find(self._first) if self._first else 0
        for _ in range(RARE if self._first else 0):
            if at < 0 or self._written.match(body, at):
                return at >= 0
            at = body.find(self._first, at + 1)
        return at >= 0 and self._written.search(body, at) is not None


def _spellings(char: str) -> bytes:
    """How clients write a character: as it is, or escaped."""
    if char == "/":
        return rb"\\?/"
    written = sorted({re.escape(style(char)[1:-1]) for style in _STYLES})
    return b"(?:" + b"|".join(written) + b")" if len(written) > 1 else written[0]


def find(request: Request, prefix: str) -> Found:
    """The commands of a request."""
    commands: tuple[Command, ...] = ()
    fresh = only = False
    edits: list[Edit] = []
    for at in range(request.length):
        typed = request.typed_message(at)
        if typed is None:
            continue
        texts = [_read(text, prefix) for text in typed.texts]
        commands = tuple(command for text in texts for command in text.commands)
        fresh = only = False
        if commands:
            alone = not typed.more and not any(text.said for text in texts)
            behind = _next_speaker(request, at)
            fresh = behind is None
            only = alone and fresh
            told = None if behind is None else request.own_text(behind)
            edits += () if only else _edits(typed, texts, told, behind or at, alone=alone)
    return Found(commands, fresh, only, tuple(edits))


def _read(text: TypedText, prefix: str) -> _Read:
    if prefix not in text.text:
        return _Read(text, (), text.text, bool(text.text.strip()))
    commands: list[Command] = []
    rest = ""
    said = False
    for piece, is_typed in split_typed(text.text):
        found = read(piece, prefix) if is_typed else None
        if found is not None:
            commands += found.commands
            said |= bool(found.rest.strip())
        rest += found.rest if found else piece
    return _Read(text, tuple(commands), rest, said)


def _next_speaker(request: Request, at: int) -> int | None:
    """Where the model, or a person, speaks next; a harness's own messages may stand before that."""
    for later in range(at + 1, request.length):
        if request.own_text(later) is not None or request.typed_message(later) is not None:
            return later
    return None


def _edits(typed: TypedMessage, texts: list[_Read], told: str | None, later: int, *, alone: bool) -> Iterator[Edit]:
    """The edits that take the commands out of a message, and the answer to them out of the conversation. `told` is what
    callfuse says in the message at `later`, None where the model does not speak there."""
    answered = bool(told) and (alone or str(told).startswith(REFUSED))
    behind = (*typed.path[:-1], later)
    if alone and not typed.reminded and not any(text.rest.strip() for text in texts):
        if answered or told is None:
            yield Edit(typed.path, None)
            yield from [Edit(behind, None)] if answered else ()
        else:
            yield from _rewritten(texts, STAND_IN)
        return
    yield from _rewritten(texts, "")
    if answered and not typed.needs_answer:
        yield Edit(behind, None)


def _rewritten(texts: list[_Read], stand_in: str) -> Iterator[Edit]:
    """The edits that leave texts without their commands; one that has nothing else goes, but for the stand-in."""
    for one in texts:
        if not one.commands:
            continue
        if one.rest.strip() or one.text.part is None or stand_in:
            yield Edit(one.text.path, _written_as(one.text.text, one.rest if one.rest.strip() else stand_in))
            stand_in = ""
        else:
            yield Edit(one.text.part, None)


def _written_as(text: str, rest: str) -> Callable[[bytes], bytes]:
    """Writes what is left of a text in the style in which the client has written it."""
    return lambda old: next((style for style in _STYLES if style(text) == old), dumps)(rest)
