"""Long chunks of a stream are read in slices, between which other exchanges go on."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse import CallFuseMiddleware
from callfuse.asgi.slices import SLICE_BYTES, TEXT_BYTES, slices
from tests.support.asgi import drive
from tests.support.config import settings
from tests.support.kits import KITS, DialectKit, stream_of
from tests.support.meeting import ask, every_dialect, given_log, meet, reply
from tests.support.model import Text
from tests.support.plain import again, elsewhere, same_call, saying, spin
from tests.support.scripted import play

LONG = SLICE_BYTES * 20


class Others:
    """Another task of the event loop, and how often it has had its turn."""

    def __init__(self) -> None:
        self.turns = 0

    async def go_on(self) -> None:
        """Take every turn."""
        while True:
            await asyncio.sleep(0)
            self.turns += 1


@given(st.lists(st.sampled_from([b"\n", b"\r\n", b"x" * 3000, b"y" * 9000, b'data: {"a": 1}\n\n']), max_size=20))
def test_slices_are_the_chunk(parts: list[bytes]) -> None:
    """None is too long or empty, no byte is lost, and frames stay whole where they are short."""
    chunk = b"".join(parts)
    cut = list(slices(chunk))
    assert b"".join(cut) == chunk
    assert all(0 < len(one) <= SLICE_BYTES for one in cut)
    assert all(one.endswith(b"\n") or b"\n" not in one for one in cut[:-1])


def long_text(kit: DialectKit) -> bytes:
    """A stream of text in hundreds of frames, without its end, of more than 10 slices."""
    body = stream_of(kit, saying(Text(tuple(f"word {at} " for at in range(600))), same_call("call_first")))
    return body[: body.index(b"word 599 ")]


@pytest.mark.parametrize(
    "kit", [kit for kit in KITS if kit.name in ("openai-chat", "anthropic")], ids=lambda kit: kit.name
)
async def test_a_long_chunk_of_text_leaves_at_once(kit: DialectKit) -> None:
    """In one message, but for the frame that is not complete."""
    text = long_text(kit)[: TEXT_BYTES // 2]
    answer = reply(kit, again(), stream=True).cut((text, b"\n\n"))
    guarded = CallFuseMiddleware(play(answer), settings("block"))
    exchange = await drive(guarded, ask(kit, spin(1), stream=True))
    assert len(text) > 4 * SLICE_BYTES
    assert exchange.body == text + b"\n\n"
    assert len([message for _, message in exchange.sent if message.get("body")]) <= 3


@every_dialect
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
def test_a_call_behind_a_long_text_is_found_in_any_cut(kit: DialectKit, ladder: str) -> None:
    """In one chunk, in slices, or piece by piece: the client gets the same, and the log says the same."""
    said = saying(Text(tuple(f"word {at} " for at in range(600))), same_call("call_first"))
    body, other = stream_of(kit, said), reply(kit, elsewhere(), stream=True)
    request, met = ask(kit, spin(), stream=True), []
    for size in (len(body), TEXT_BYTES // 4, SLICE_BYTES, 1000, 97):
        cut = tuple(body[at : at + size] for at in range(0, len(body), size))
        met.append(meet(request, [reply(kit, said, stream=True).cut(cut), other], ladder))
    assert b"call_first" not in met[0].body
    assert {one.body for one in met} == {met[0].body}
    assert {one.log for one in met} == {met[0].log}


@every_dialect
@pytest.mark.parametrize("rounds", [3, 1], ids=["guarded", "watched"])
async def test_others_go_on_within_one_chunk(kit: DialectKit, rounds: int) -> None:
    """A chunk full of blank lines is as if it had come in many, with all behind them; others take their turns."""
    body, fill = reply(kit, again(), stream=True).body, b"\n" * LONG
    request = ask(kit, spin(rounds), stream=True)
    sent: list[bytes] = []
    turns: list[int] = []
    for chunks in ((fill + body,), (fill[: LONG // 2], fill[LONG // 2 :], body)):
        others = Others()
        going = asyncio.create_task(others.go_on())
        guarded = CallFuseMiddleware(play(reply(kit, again(), stream=True).cut(chunks)), settings("block"))
        with given_log():
            sent.append((await drive(guarded, request)).body)
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        turns.append(others.turns)
    assert sent[0] == sent[1]
    assert turns[0] > LONG // SLICE_BYTES - 2


@every_dialect
async def test_an_event_ends_in_a_long_chunk(kit: DialectKit) -> None:
    """What had come of the event leaves before the rest of it, and before all that stands behind it."""
    answer = reply(kit, saying("Here it is."), stream=True)
    whole = answer.body + b"\n" * LONG
    guarded = CallFuseMiddleware(play(answer.cut((whole[:10], whole[10:]))), settings("block"))
    assert (await drive(guarded, ask(kit, spin(1), stream=True))).body == whole
