"""Remove from a text what changes between runs of a tool: ANSI codes, times, durations, dates and ids.

In errors all other digits are removed, too. Every digit becomes `0` first, so that one regular expression anchored at a
`0` finds all the rest; a text without digits costs only a copy. An id may begin with letters before the `0` where it is
found: they are stripped from the end of the piece before it.

In other results plain numbers are kept (`keep_numbers`): a counter that changes is progress. There another expression,
anchored at the first digit of each number, finds volatile values by their form. A field's value is also removed if its
name says that it changes (`fields.py`), or if a harness has added it (`harness.strip_run_ids`). Both expressions are
searched in the shape of the text, which has `0` for every digit: `re` finds a literal byte several times as fast as a
class of bytes.

In a short result (`is_short`) durations and addresses may be what was asked for: a benchmark measured again, a debugger
that is stepped. They are kept there, except for the time that the call itself took.

A long text is read in pieces, so that no regular expression keeps other threads waiting for long. Pieces end at line
ends, and nothing that is removed spans a line end: the result is that of the whole text.
"""

import re
from collections.abc import Iterator
from typing import Final

from callfuse.harness import strip_run_ids
from callfuse.model.outcomes.fields import blank_fields, shape_of

_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ESC: Final = rb"(?:\x1b|\\u001[bB])"
_ANSI = re.compile(
    _ESC + rb"(?:\[[0-?]*+[ -/]*+[@-~]"  # CSI: colours, cursor
    rb"|\](?:[^\x07\x1b\\\n]|\\(?!u00(?:07|1[bB])))*+(?:\x07|\\u0007|" + _ESC + rb"(?:\\\\|\\))"  # OSC: titles, links
    rb"|[@-_])"
)
"""Escape sequences, as bytes or as JSON writes them. The body of an OSC ends before the next escape: without this, an
unterminated one would be read to the end of the text from each start. It also ends at the end of a line."""
_CHUNK_ID: Final = b"Chunk ID: "
"""Codex begins a command's output with this and six hexadecimal digits, too few for the pattern of ids."""

_END = rb"(?![0A-Za-z])"
_UNIT = (
    rb" ?(?=[dhmnsu\xc2\xce])"
    rb"(?:(?:m|n|u|\xc2\xb5|\xce\xbc)?s|m|min(?:ute)?s?|milliseconds?|sec(?:ond)?s?|h|hrs?|hours?|days?)(?![A-Za-z])"
)
_VOLATILE = re.compile(
    rb"0(?<!00)(?:"  # the first of some digits
    rb"[0a-fA-F]{0,7}+-[0a-fA-F]{4}-[0a-fA-F]{4}-[0a-fA-F]{4}-[0a-fA-F]{12}" + _END +  # a UUID; 1 in 2,500 escapes
    rb"|(?=0*+[A-Za-z])(?:"
    rb"0*+x[0a-fA-F]++" + _END +  # an address
    rb"|(?=[0a-fA-F]{6,63}+" + _END + rb")[0a-fA-F]++"  # a hash of seven digits or more, a digit first
    rb"|(?=[0A-Za-z]{11,63}+" + _END + rb")0*+[A-Za-z]++0[0A-Za-z]*+"  # a word with digits at two places
    rb"|(?=[0A-Za-z]{6,63}+" + _END + rb")0*+[A-Za-z]++0++[A-Za-z]++0[0A-Za-z]*+"  # a shorter one, at three
    rb")"
    rb"|(?<=[a-fA-F]0)(?:"  # a hash of seven digits or more, letters first
    + b"|".join(rb"(?<=[a-fA-F]{%d}0)[0a-fA-F]{%d,63}+" % (letters, 6 - letters) + _END for letters in range(1, 7)) +
    rb")"
    rb"|0*+(?:[.,:]0++){0,3}+" + _UNIT + rb"(?: ?0++(?:\.0++)?+" + _UNIT + rb")*+"  # a duration
    rb")"
)  # fmt: skip
_NUMBER = re.compile(rb"0(?:\.?0)++")
_NOT_WORD = rb"(?![0-9A-Za-z])"
_YEAR = rb"(?:19|20)[0-9]{2}(?![0-9])"
_ZONE = rb"(?:Z|(?: ?(?:UTC|GMT))?(?: ?[+-][0-9]{2}:?[0-9]{2}(?![0-9]))?)"
_SECONDS = rb":[0-5][0-9](?:[.,][0-9]{1,9})?(?![0-9]|:[0-9])"
_CLOCK = rb"[0-9]{1,2}:[0-5][0-9](?:" + _SECONDS + rb"|(?![0-9:]))" + _ZONE
"""A time next to a date, which needs no seconds."""
_MONTH = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_LONG_MONTH = rb"(?:nuary|ruary|March|April| June| July|ugust|ember|tober)"
"""The last five characters of a month's name: a look-behind needs a fixed length."""
_RATE = rb" ?(?:[kKMGT]?i?[Bb]|[Bb]ytes|bits|i?ter|it|items|req|requests|rows|tok|tokens)/s(?:ec(?:ond)?)?(?![A-Za-z])"
_SPAN = _UNIT.replace(rb"s|m|min", rb"s|min")
"""A unit of time after a space; without `m`, because `3 m` may be metres."""
_MOVING = re.compile(
    rb"[0-9](?<![0-9][0-9])(?:"  # the first of some digits
    rb"(?=[0-9]*+[-/.:, A-Za-z\xc2\xce])(?:"  # the next character rules out most plain numbers
    rb"[0-9a-fA-F]{0,7}+-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}" + _NOT_WORD +  # a UUID
    rb"|(?:[0-9]{3}-[01][0-9]-[0-3][0-9]|(?<=[12])[0-9]{3}[-/.][01]?[0-9][-/.][0-3]?[0-9])"  # 2026-11-23
    rb"(?:(?:[T ]|, )" + _CLOCK + rb")?(?![0-9])"
    rb"|(?<=[12])[0-9]{7}T[0-9]{6}Z?" + _NOT_WORD +
    rb"|[0-9]?[-/.][0-9]{1,2}[-/.]" + _YEAR + rb"(?:,? " + _CLOCK + rb")?"  # 23/11/2026
    rb"|[0-9]?[ /-]" + _MONTH + rb"[a-z]{0,6}(?:,? |[/-])" + _YEAR + rb"(?:(?:,? |:)" + _CLOCK + rb")?"  # 23 Nov 2026
    rb"|[0-9]?:[0-5][0-9](?:" + _SECONDS + rb"(?: ?[AaPp][Mm]\b)?|(?![0-9:]) ?[AaPp][Mm]\b)" + _ZONE +  # 10:00:05
    rb"|[0-9]?:[0-5][0-9](?=<[0-9]|, *+[0-9.?]++ ?(?:it|s)/)"  # tqdm: 00:03<00:00, 1.5it/s
    rb"|(?<=0)x[0-9a-fA-F]{4,}+" + _NOT_WORD +  # an address
    rb"|(?=[0-9]*+[A-Za-z])(?:"
    rb"(?=[0-9a-fA-F]{6,63}+" + _NOT_WORD + rb")[0-9a-fA-F]++"  # a hash of seven digits or more, a digit first
    rb"|(?=[0-9A-Za-z]{11,63}+" + _NOT_WORD + rb")[0-9]*+[A-Za-z]++[0-9][0-9A-Za-z]*+"  # digits at two places
    rb"|(?=[0-9A-Za-z]{6,63}+" + _NOT_WORD + rb")[0-9]*+[A-Za-z]++[0-9]++[A-Za-z]++[0-9][0-9A-Za-z]*+"  # at three
    rb")"
    rb"|[0-9]*+(?:[.,:][0-9]++){0,3}+(?:m(?![A-Za-z])|" + _SPAN + rb")(?: ?[0-9]++(?:\.[0-9]++)?+" + _UNIT + rb")*+"
    rb"|[0-9]*+(?:[.,][0-9]++)?+" + _RATE +
    rb")"
    rb"|(?<=[a-fA-F][0-9])(?:"  # a hash of seven digits or more, letters first
    + b"|".join(
        rb"(?<=[a-fA-F]{%d}[0-9])[0-9a-fA-F]{%d,63}+" % (letters, 6 - letters) + _NOT_WORD for letters in range(1, 7)
    ) +
    rb")"
    rb"|(?:(?<=" + _MONTH + rb" [0-9])|(?<=" + _MONTH + rb"  [0-9])|(?<=" + _LONG_MONTH + rb" [0-9]))[0-9]?(?:"
    rb",? " + _YEAR + rb"(?:,? " + _CLOCK + rb")?|,? " + _CLOCK + rb"(?:(?: [A-Z]{2,5})? " + _YEAR + rb")?"
    rb")"  # Nov 23 10:00:05
    rb"|(?<=[pP][iI][dD] [0-9])[0-9]*+"
    rb")"
)  # fmt: skip
_MONTH_BEGINS: Final = rb"[JFMASOND][aepuco][a-z]"
_AMOUNT: Final = rb"(?:(?=[dhmnsu\xc2\xce])" + _UNIT.removeprefix(rb" ?(?=[dhmnsu\xc2\xce])") + rb"|[A-Za-z]{1,8}/s)"
"""A unit of time, or a rate."""
_MAY_MOVE = re.compile(
    rb"0(?<!00)(?="  # the first of some digits
    rb"0*+(?:"  # and what may follow them
    rb"(?=[A-Za-z\xc2\xce])(?:" + _AMOUNT + rb"|x[0a-fA-F]{4}|[A-Za-z]++0|[a-fA-F]++(?:-|" + _END + rb"))"
    rb"| (?:" + _AMOUNT + rb"|" + _MONTH_BEGINS + rb")"
    rb"|:(?:00(?::00| ?[AaPp][Mm]|<0|, )|0++(?:[.,:]0++)*+ ?" + _AMOUNT + rb")"
    rb"|[-/.]00?[-/.]0"
    rb"|[.,]0++(?:[.,:]0++)*+ ?" + _AMOUNT +
    rb"|-(?:" + _MONTH_BEGINS + rb"|[0a-fA-F]{4}-)"
    rb"|/" + _MONTH_BEGINS +
    rb")"
    rb"|(?<=[a-fA-F]0)[0a-fA-F]*+" + _END +
    rb"|(?<=[a-z] 0)0?,? 00|(?<=[a-z]  0)0?,? 00"
    rb"|(?<=[pP][iI][dD] 0)"
    rb")"
)  # fmt: skip
"""Where `_MOVING` may match, in the shape of a text: all places where it matches, and few others."""
_DURATION: Final = rb"[0-9]++(?:[.,][0-9]++)?+(?:m(?![A-Za-z])|" + _SPAN + rb")"
_MEASURED: Final = re.compile(
    rb"(?<![0-9A-Za-z.:/-])(" + _DURATION + rb"(?: ?[0-9]++(?:\.[0-9]++)?+" + _UNIT + rb")*+"
    rb"|0x[0-9a-fA-F]{4,}+" + _NOT_WORD + rb")"
)
"""A duration or an address."""
_OWN_TIME: Final = re.compile(
    rb"\b((?:(?:elapsed|execution|processing|response|run|running|total|wall)(?:[ _]time)?|duration|latency|took"
    rb"|runtime|(?:built|completed|deselected|done|errors?|failed|finished|passed|ran|skipped|succeeded|tests?|warnings?)"
    rb" in)\\?[\"']?[ :=]{1,3}\\?[\"']?)" + _DURATION + rb"(?: ?[0-9]++(?:\.[0-9]++)?+" + _UNIT + rb")*+",
    re.IGNORECASE,
)
"""The time a call took, as tools report it for every call: `took 0.3 s`, `3 passed in 0.02s`."""
_SAMPLE: Final = 512
"""How many bytes at the beginning of a longer piece are used to estimate how many places may match."""
_DENSE: Final = 100
"""Bytes per place that may match. With more places than that, trying each takes longer than `split`."""
_PIECE: Final = 64 * 1024
"""The most bytes that are read at a time, which takes up to 8 ms."""


def normalise(text: str, *, keep_numbers: bool = False, is_short: bool = False) -> bytes:
    """Return the text as UTF-8 with each time, duration, date and id as `0`, without ANSI codes. Linear time and space.

    Without `keep_numbers` every other number is `0`, too. A line of more than 64 KB is cut at quotes, at spaces if it
    has no quotes, else anywhere; a value that is cut counts as two. `is_short`, with `keep_numbers`: durations and
    addresses are kept, too.
    """
    raw = text.encode("utf-8", "surrogatepass")
    if raw.startswith(_CHUNK_ID):
        raw = raw.partition(b"\n")[2]
    if is_short and keep_numbers:
        return _without_times(raw)
    read = _without_moving if keep_numbers else _without_numbers
    return read(raw) if len(raw) <= _PIECE else b"".join(map(read, _pieces(raw)))


def _pieces(raw: bytes) -> Iterator[bytes]:
    """Cut a text into pieces of at most `_PIECE` bytes, after line ends where possible."""
    begin = 0
    while len(raw) - begin > _PIECE:
        most = begin + _PIECE
        ends = (raw.rfind(mark, begin, most) + 1 for mark in (b"\n", b'"', b" "))
        end = next(filter(None, ends), most)
        yield raw[begin:end]
        begin = end
    yield raw[begin:]


def _without_numbers(raw: bytes) -> bytes:
    """Return a piece without parts that change, and with `0` for each number."""
    zeros = strip_run_ids(_without_escapes(raw)).translate(_ZEROS)
    if b"0" not in zeros:
        return zeros
    *pieces, last = _VOLATILE.split(zeros)
    if pieces:
        zeros = b"0".join([*[piece.rstrip(_LETTERS) for piece in pieces], last])
    return _NUMBER.sub(b"0", zeros)


def _without_moving(raw: bytes) -> bytes:
    """Return a piece without parts that change by themselves, but with its plain numbers."""
    raw = strip_run_ids(_without_escapes(raw))
    shape = shape_of(raw)
    if b"0" not in shape:
        return raw
    is_dense = len(raw) > 2 * _SAMPLE and len(_MAY_MOVE.findall(shape, 0, _SAMPLE)) * _DENSE > _SAMPLE
    pieces = _MOVING.split(raw) if is_dense else _split_moving(raw, shape)
    if len(pieces) > 1:  # columns of times are padded with spaces
        raw = b"0".join([*[piece.rstrip(_LETTERS).rstrip(b" ") for piece in pieces[:-1]], pieces[-1]])
        shape = shape_of(raw)
    return blank_fields(raw, shape)


def _without_times(raw: bytes) -> bytes:
    """Return a short text without parts that change by themselves, but with its numbers, durations and addresses."""
    raw = _OWN_TIME.sub(rb"\g<1>0", strip_run_ids(_without_escapes(raw)))
    pieces = _MEASURED.split(raw)
    return b"".join([piece if at % 2 else _without_moving(piece) for at, piece in enumerate(pieces)])


def _split_moving(raw: bytes, shape: bytes) -> list[bytes]:
    """Return `_MOVING.split(raw)`; several times as fast if there are few matches."""
    pieces: list[bytes] = []
    end = 0
    for place in _MAY_MOVE.finditer(shape):
        start = place.start()
        found = _MOVING.match(raw, start) if start >= end else None
        if found is not None:
            pieces.append(raw[end:start])
            end = found.end()
    return [*pieces, raw[end:]]


def _without_escapes(raw: bytes) -> bytes:
    has_backslash = b"\\" in raw
    if b"\x1b" in raw or (has_backslash and b"\\u001" in raw):
        raw = _ANSI.sub(b"", raw)
    if has_backslash:  # otherwise the `n` of `\n` would count as part of the next word
        raw = raw.replace(b"\\n", b"\n").replace(b"\\t", b"\t").replace(b"\\r", b"\r")
    return raw
