"""Remove from a text what changes between runs of a tool: ANSI codes, times, durations, ids and digits.

Every digit becomes `0` first, so that one regular expression anchored at a `0` finds all the rest; a text without
digits costs only a copy. An id may begin with letters before the `0` where it is found: they are stripped from the end
of the piece before it.

A long text is read in pieces, so that no regular expression keeps other threads waiting for long. Nothing of what is
removed runs over the end of a line, where the pieces end: the whole text would give the same.
"""

import re
from collections.abc import Iterator
from typing import Final

_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ESC: Final = rb"(?:\x1b|\\u001[bB])"
_ANSI = re.compile(
    _ESC + rb"(?:\[[0-?]*+[ -/]*+[@-~]"  # CSI: colours, cursor
    rb"|\](?:[^\x07\x1b\\\n]|\\(?!u00(?:07|1[bB])))*+(?:\x07|\\u0007|" + _ESC + rb"(?:\\\\|\\))"  # OSC: titles, links
    rb"|[@-_])"
)
"""Escape sequences, as bytes or as JSON writes them. No OSC body runs over the next escape: an unterminated one would
else be read to the end of the text from each start. Nor does it run over the end of a line."""
_CHUNK_ID: Final = b"Chunk ID: "
"""Codex begins a command's output with a line of six hexadecimal digits, too few for the rule of ids."""

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
_PIECE: Final = 128 * 1024
"""Bytes that are read in one go, which takes up to 8 ms."""


def normalise(text: str) -> bytes:
    """Return the text as UTF-8 with each number, id and duration as `0`, without ANSI codes. Linear time and space.

    A line of more than 128 KB is cut at quotes, at spaces if it has none, else anywhere: what such a cut goes through
    counts as two.
    """
    raw = text.encode("utf-8", "surrogatepass")
    if raw.startswith(_CHUNK_ID):
        raw = raw.partition(b"\n")[2]
    return _normalise(raw) if len(raw) <= _PIECE else b"".join(map(_normalise, _pieces(raw)))


def _pieces(raw: bytes) -> Iterator[bytes]:
    """Cut a text into pieces of at most `_PIECE` bytes, behind ends of lines where there are some."""
    begin = 0
    while len(raw) - begin > _PIECE:
        most = begin + _PIECE
        ends = (raw.rfind(mark, begin, most) + 1 for mark in (b"\n", b'"', b" "))
        end = next(filter(None, ends), most)
        yield raw[begin:end]
        begin = end
    yield raw[begin:]


def _normalise(raw: bytes) -> bytes:
    if b"\x1b" in raw or b"\\u001" in raw:
        raw = _ANSI.sub(b"", raw)
    if b"\\" in raw:  # else the `n` of `\n` would count as part of the next word
        raw = raw.replace(b"\\n", b"\n").replace(b"\\t", b"\t").replace(b"\\r", b"\r")
    zeros = raw.translate(_ZEROS)
    if b"0" not in zeros:
        return zeros
    *pieces, last = _VOLATILE.split(zeros)
    if pieces:
        zeros = b"0".join([*[piece.rstrip(_LETTERS) for piece in pieces], last])
    return _NUMBER.sub(b"0", zeros)
