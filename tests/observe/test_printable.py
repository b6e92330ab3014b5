"""Texts from outside never steer a terminal."""

from callfuse.observe.printable import printable


def test_printable() -> None:
    """White space becomes blanks, controls and bidirectional marks are replaced, letters stay."""
    assert printable("a\x1b[0mgröß\r\t\u00a0🦙\u202e") == "a\ufffd[0mgröß   🦙\ufffd"
