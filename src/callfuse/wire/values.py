"""Counts the values of a JSON text without parsing it: a short text may have millions, 100 bytes each once parsed."""

from typing import Final

MOST_VALUES: Final = 100_000
"""The most values of a body that is read. Parsing that many, with garbage collection, blocks the event loop for up to
50 ms. A conversation that fills a context window of a million tokens with short calls has about as many."""
MOST_INSIDE: Final = 10_000
"""The most values of a JSON text within a string of a body, such as the arguments of a call; a body may have many such
texts of any length. Parsing that many values takes up to 10 ms and 10 MB."""
LONGEST_INSIDE: Final = 4 * 1024 * 1024
"""The most characters of such a text, even if it has few values: one string may be as long as the text. As many as
`max_held_bytes` allows by default."""
_SEPARATORS: Final = b",[{"
_STEP: Final = 256 * 1024
"""How many bytes are searched at a time."""


def has_too_many_values(text: bytes) -> bool:
    """Whether a JSON text has more than `MOST_VALUES` values, by its commas and opening brackets outside strings.

    In a text that is not JSON, the values before its first error count.
    """
    return _has_more_values(text, MOST_VALUES)


def is_too_much_inside(text: str) -> bool:
    """Whether a text inside a body is too large to parse: it is longer than `LONGEST_INSIDE` or, read as JSON, has more
    than `MOST_INSIDE` values. Such a text is compared with others as plain text; no values are read from it."""
    size = len(text)
    return size > LONGEST_INSIDE or (
        size > MOST_INSIDE and _has_more_values(text.encode("utf-8", "surrogatepass"), MOST_INSIDE)
    )


def _has_more_values(text: bytes, most: int) -> bool:
    if len(text) <= most or separators(text) <= most:  # nearly always, though it counts strings, too
        return False
    count, in_string, carry = 0, False, b""
    for at in range(0, len(text), _STEP):
        piece = (carry + text[at : at + _STEP]).replace(rb"\\", b"").replace(rb"\"", b"")
        carry = b"\\" if piece.endswith(b"\\") else b""
        parts = piece.removesuffix(b"\\").split(b'"')
        count += separators(b"".join(parts[in_string::2]))
        if count > most:
            return True
        in_string ^= len(parts) % 2 == 0
    return False


def separators(text: bytes) -> int:
    """Return the number of commas and opening brackets, also in strings. A text has at most one value more."""
    if len(text) <= _STEP:
        return len(text) - len(text.translate(None, _SEPARATORS))
    pieces = (text[at : at + _STEP] for at in range(0, len(text), _STEP))
    return sum(len(piece) - len(piece.translate(None, _SEPARATORS)) for piece in pieces)
