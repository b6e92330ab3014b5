"""Counts the values of a JSON text without parsing it: a short text may have millions, 100 bytes each once parsed."""

from typing import Final

MOST_VALUES: Final = 100_000
"""Values of a body that is read. To parse that many, and to collect garbage among them, takes up to 50 ms, in which
nothing else runs. A conversation that fills a context window of a million tokens with short calls has about as many."""
_STEP: Final = 256 * 1024
"""Bytes looked at in one go."""


def has_too_many_values(text: bytes) -> bool:
    """Whether a JSON text has more than `MOST_VALUES` values, by its commas and opening brackets outside strings.

    Of a text that is no JSON, those before its first fault count.
    """
    if len(text) <= MOST_VALUES or _separators(text) <= MOST_VALUES:  # nearly always, though it counts strings, too
        return False
    count, in_string, carry = 0, False, b""
    for at in range(0, len(text), _STEP):
        piece = (carry + text[at : at + _STEP]).replace(rb"\\", b"").replace(rb"\"", b"")
        carry = b"\\" if piece.endswith(b"\\") else b""
        parts = piece.removesuffix(b"\\").split(b'"')
        count += _separators(b"".join(parts[in_string::2]))
        if count > MOST_VALUES:
            return True
        in_string ^= len(parts) % 2 == 0
    return False


def _separators(text: bytes) -> int:
    pieces = (text[at : at + _STEP] for at in range(0, len(text), _STEP))
    return sum(piece.count(b",") + piece.count(b"[") + piece.count(b"{") for piece in pieces)
