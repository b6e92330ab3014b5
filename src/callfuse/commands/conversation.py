"""Find the commands in a conversation, and the edits that hide commands and callfuse's answers to them from models.

Only the commands of the last user message are to be run. Whether a text is a command depends only on its message and on
the messages before it, so that each request has the same commands stripped.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from callfuse.commands.run import REFUSED
from callfuse.commands.syntax import MAX_COMMANDS, Command, ParsedText, may_begin, parse_commands
from callfuse.dialects.base import Request
from callfuse.dialects.typed import Speech, TypedMessage, TypedText
from callfuse.harness import typed_starts
from callfuse.wire.jsontext import Edit, dumps

MAX_SINGLE_SEARCHES: Final = 64
"""If a request has more occurrences of the prefix's first character, the pattern is used to search for the prefix."""

MAX_TEXTS: Final = 256
"""The most texts of a request that are parsed: the first ones that begin with the prefix, so that each request has the
same ones stripped. A text costs 0.1 ms at most."""

STAND_IN: Final = "(command)"
"""Replaces commands that a model has answered, if the message has nothing else: the answer needs a question."""

_STYLES: Final[tuple[Callable[[str], bytes], ...]] = (
    dumps,
    lambda text: json.dumps(text).encode(),
    lambda text: json.dumps(text).replace("/", "\\/").encode(),
)
"""How clients write strings: as UTF-8, as ASCII, as ASCII with escaped slashes."""


class FoundCommands(NamedTuple):
    """The commands of a conversation, and the edits that hide them.

    `commands`: those of the last user message. `fresh`: the conversation ends with that message. `only`: it is fresh,
    and nothing else is typed in it. `edits`: for `wire.jsontext.apply`; they may be needed even without `commands`.
    """

    commands: tuple[Command, ...] = ()
    fresh: bool = False
    only: bool = False
    edits: tuple[Edit, ...] = ()

    @property
    def any(self) -> bool:
        """Whether there are commands to run or edits to make."""
        return bool(self.commands or self.edits)


class _ParsedPart(NamedTuple):
    """A text without its commands. `said`: whether the user has typed anything else in it."""

    text: TypedText
    commands: tuple[Command, ...]
    rest: str
    said: bool


class PrefixSearch:
    """Searches request bodies for a command prefix, escaped or not, so that bodies without it are not parsed."""

    __slots__ = ("_first", "_written")

    def __init__(self, prefix: str) -> None:
        first, *rest = map(_spellings, prefix)
        self._first = prefix[0].encode() if re.escape(prefix[0]).encode() == first else b""
        self._written = re.compile(b"".join([first, *rest]))

    def occurs_in(self, body: bytes) -> bool:
        """Whether the prefix occurs in a JSON body. For a rare byte `find` is ten times as fast as the pattern."""
        at = body.find(self._first) if self._first else 0
        for _ in range(MAX_SINGLE_SEARCHES if self._first else 0):
            if at < 0 or self._written.match(body, at):
                return at >= 0
            at = body.find(self._first, at + 1)
        return at >= 0 and self._written.search(body, at) is not None


def _spellings(char: str) -> bytes:
    """Return a pattern for a character in JSON, as it is or escaped."""
    if char == "/":
        return rb"\\?/"
    written = sorted({re.escape(style(char)[1:-1]) for style in _STYLES})
    return b"(?:" + b"|".join(written) + b")" if len(written) > 1 else written[0]


def find_commands(request: Request, prefix: str) -> FoundCommands:
    """Find the commands of a request, which begin with `prefix`.

    A message with results of tools, or after a call or a result but before the model's next words, has none: harnesses
    and tools write there, too. Of several user messages in a row each counts, because some clients send additions as
    separate messages.
    """
    commands: tuple[Command, ...] = ()
    fresh = only = False
    edits: list[Edit] = []
    parser = _TextParser(prefix)
    for at, in_a_run in enumerate(_in_runs(request)):
        typed = request.typed_message(at)
        if typed is None:
            continue
        texts = [] if in_a_run else parser.parse(typed)
        commands = tuple(command for text in texts for command in text.commands)
        fresh = only = False
        if commands:
            alone = not typed.more and not any(text.said for text in texts)
            behind = _next_speaker(request, at)
            fresh = behind is None
            only = alone and fresh
            own_text = None if behind is None else request.own_text(behind)
            edits += () if only else _edits(typed, texts, own_text, behind or at, alone=alone)
    return FoundCommands(commands, fresh, only, tuple(edits))


def _in_runs(request: Request) -> Iterator[bool]:
    """Yield whether each message has a call or a result, or follows one without words of the model in between."""
    in_a_run = False
    for at in range(request.length):
        speech = request.speech(at).what
        in_a_run = speech is Speech.CALLS or (speech is not Speech.WORDS and (in_a_run or request.has_result(at)))
        yield in_a_run


class _TextParser:
    """Parses the texts of one request. At most `MAX_TEXTS` of them may begin with the prefix."""

    __slots__ = ("_left", "_prefix")

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._left = MAX_TEXTS

    def parse(self, typed: TypedMessage) -> list[_ParsedPart]:
        """Parse the texts of one message. Commands come before everything else that is typed in it."""
        parsed: list[_ParsedPart] = []
        room = MAX_COMMANDS + 1
        said = False
        starts = typed_starts(typed.written)  # of all texts: an element may span several
        for text in typed.texts:
            start = starts[text.place]
            part = _ParsedPart(text, (), text.text, True) if said or start is None else self._parse(text, start, room)
            room -= len(part.commands)
            said = part.said
            parsed.append(part)
        return parsed

    def _parse(self, text: TypedText, start: int, room: int) -> _ParsedPart:
        parsed = ParsedText((), text.text, start)
        if self._left and may_begin(text.text, self._prefix, start):
            self._left -= 1
            parsed = parse_commands(text.text, self._prefix, start, room)
        behind = parsed.rest[parsed.at :].rstrip()
        return _ParsedPart(text, parsed.commands, parsed.rest, bool(behind) and typed_starts([behind]) != [len(behind)])


def _next_speaker(request: Request, at: int) -> int | None:
    """Return the next message of the model or the user after `at`, skipping a harness's; None if there is none."""
    for later in range(at + 1, request.length):
        if request.own_text(later) is not None or request.typed_message(later) is not None:
            return later
    return None


def _edits(
    typed: TypedMessage, texts: list[_ParsedPart], own_text: str | None, later: int, *, alone: bool
) -> Iterator[Edit]:
    """Yield the edits that remove the commands from a message, and callfuse's answer to them from the conversation.

    `own_text` is what callfuse says in the message at `later`, None if that is not a message of the model.
    """
    answered = bool(own_text) and (alone or str(own_text).startswith(REFUSED))
    behind = (*typed.path[:-1], later)
    if alone and not typed.reminded and not any(text.rest.strip() for text in texts):
        if answered or own_text is None:
            yield Edit(typed.path, None)
            yield from [Edit(behind, None)] if answered else ()
        else:
            yield from _remove_commands(texts, STAND_IN)
        return
    yield from _remove_commands(texts, "")
    if answered and not typed.needs_answer:
        yield Edit(behind, None)


def _remove_commands(texts: list[_ParsedPart], stand_in: str) -> Iterator[Edit]:
    """Yield the edits that remove commands from texts. A part without other text is removed, or becomes `stand_in`."""
    for one in texts:
        if not one.commands:
            continue
        if one.rest.strip() or one.text.part is None or stand_in:
            yield Edit(one.text.path, _write_like(one.text.text, one.rest if one.rest.strip() else stand_in))
            stand_in = ""
        else:
            yield Edit(one.text.part, None)


def _write_like(text: str, rest: str) -> Callable[[bytes], bytes]:
    """Return a function that encodes `rest` with the escapes that the client has used for `text`."""
    return lambda old: next((style for style in _STYLES if style(text) == old), dumps)(rest)
