"""A frame that comes in very many pieces: it is copied once, not anew with each piece."""

from collections.abc import Sequence
from time import process_time

import pytest

from tests.support.asgi import Request, run
from tests.support.config import guard
from tests.support.kits import KITS
from tests.support.model import History, User
from tests.support.scripted import Reply, ScriptedApp

KIT = KITS[0]
ASKED = Request(KIT.path, KIT.request(History((User("Find the zebra."),)), stream=True))
PIECES = 40_000


def cost(chunks: Sequence[bytes]) -> float:
    """The CPU time of an exchange in which these chunks pass unchanged."""
    app = guard(ScriptedApp((Reply(tuple(chunks)),)))
    began = process_time()
    done = run(app, ASKED)
    spent = process_time() - began
    assert done.body == b"".join(chunks)
    return spent


@pytest.mark.slow
def test_a_frame_in_many_pieces_costs_as_much_as_many_frames() -> None:
    """While it waits for its end, of a watched answer: a copy of all for each piece would cost ten times as much."""
    frames = [b": " + b"x" * 46 + b"\n\n"] * PIECES
    pieces = [b'data: {"id": "', *[b"x" * 50] * PIECES]
    of_frames = min(cost(frames) for _ in range(3))
    assert min(cost(pieces) for _ in range(3)) < 4 * of_frames
