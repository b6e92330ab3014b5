"""Laws 1 and 12 for a call that is cut off again and again where a history does not show it: its arguments are values
there, and clients complete them as they like. The ledger knows what the answers have shown.
"""

import logging
from typing import Any

import pytest

from tests.laws.test_truncated import BEGUN, FAILED, ON, cut_off, warned
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import Meeting, Session, ask, in_session, reply
from tests.support.model import Call, History, Round, User
from tests.support.plain import saying
from tests.support.scripted import Reply

PIECEWISE = ("openai-chat", "anthropic", "bedrock-converse", "gemini-interactions")
"""Formats that send arguments in pieces; but for the first one, a history has them as values."""
kits = pytest.mark.parametrize("kit", [one for one in KITS if one.name in PIECEWISE], ids=lambda kit: kit.name)
LIMIT = {"anthropic": (b'"tool_use"', b'"max_tokens"'), "openai-chat": (b'"tool_calls"}', b'"length"}')}
COMPLETED = '{"path": "report.md"}'
"""What a client makes of it."""


def ended(kit: DialectKit, call: Call, *, at_limit: bool) -> Reply:
    """A streamed answer with this call, which ends in the middle of it; at the limit without the end of the call."""
    frames = [frame for frame in kit.frames(saying("I write.", call)) if frame.kind != "usage"]
    if not at_limit:
        return Reply(tuple([frame.raw for frame in frames]))
    *_, piece = (at for at, frame in enumerate(frames) if b"jumps" in frame.raw)
    end = next(at for at, frame in enumerate(frames) if frame.kind == "finish")
    chunks = [*frames[: piece + 1], *frames[end:]]
    return Reply(tuple([one.raw if at < piece else one.raw.replace(*LIMIT[kit.name]) for at, one in enumerate(chunks)]))


def history(kit: DialectKit, times: int, said: str = "Write the report.") -> History:
    """So many rounds with the call, as a client shows it."""
    shown = BEGUN if kit.name == "openai-chat" else COMPLETED
    calls = [Call(f"call_c{at}", "search", (shown,)) for at in range(times)]
    return History((User(said), *[Round((call,), (FAILED,)) for call in calls]))


def talk(kit: DialectKit, *scripts: tuple[History, Reply], **settings: Any) -> tuple[Meeting, ...]:
    """Exchanges of one session, one after another."""

    async def exchange(session: Session) -> None:
        for shown, script in scripts:
            await session.exchange(ask(kit, shown, stream=True), script)

    return tuple(in_session(exchange, "warn", **settings).meetings)


def told(met: Meeting) -> list[str]:
    """How often it has come, by the log."""
    lines = [text for text in met.log_at(logging.INFO) if "kind=truncated" in text]
    return [line.partition("repeats=")[2].partition(",")[0] for line in lines]


def cut(kit: DialectKit, at: int, *, at_limit: bool = False) -> tuple[History, Reply]:
    """The exchange in which it is cut off for this time, from 0."""
    return history(kit, at), ended(kit, cut_off(" over" * at, id_=f"call_c{at}"), at_limit=at_limit)


@kits
@pytest.mark.parametrize("at_limit", [True, False], ids=["at the limit", "as if whole"])
def test_it_is_told_with_the_answer(kit: DialectKit, at_limit: bool) -> None:
    """From the third time on; its bytes stay, and its result tells the model, in each later request."""
    if at_limit and kit.name not in LIMIT:
        pytest.skip("its frames have checksums, or say it elsewhere")
    scripts = [cut(kit, at, at_limit=at_limit) for at in range(5)]
    end = history(kit, 5), reply(kit, saying("Done."), stream=True)
    mets = talk(kit, *scripts, end, **ON)
    assert [met.body for met in mets] == [script.body for _, script in (*scripts, end)]
    assert [told(met) for met in mets] == [[], [], ["3/3"], ["4/3"], ["5/3"], []]
    assert warned(kit, mets[-1]) == [False, False, True, True, True]
    assert warned(kit, mets[3]) == [False, False, True]


@kits
def test_what_ends_the_row(kit: DialectKit) -> None:
    """A whole call, another call that is cut off, and a person; a text does not, nor a request that is sent again."""
    whole = Call("call_w", "search", ('{"path": "report.md", "text": "a"}',))
    other = Call("call_o", "search", ('{"path": "another.md", "text": "The slow',))
    first, second, third = [cut(kit, at) for at in range(3)]
    for call in (whole, other):
        between = history(kit, 2), Reply(tuple(one.raw for one in kit.frames(saying("So.", call))))
        shown = History((*history(kit, 2).turns, Round((Call(call.id, "search", (COMPLETED,)),), (FAILED,))))
        mets = talk(kit, first, second, between, (shown, third[1]), **ON)
        assert [told(met) for met in mets] == [[]] * 4
    person = History((*history(kit, 2).turns, User("And now?")))
    assert [told(met) for met in talk(kit, first, second, (person, third[1]), **ON)] == [[]] * 3
    assert [told(met) for met in talk(kit, first, second, second, second, **ON)] == [[]] * 4
    text = history(kit, 2), reply(kit, saying("Hm."), stream=True)
    assert [told(met) for met in talk(kit, first, second, text, third, **ON)] == [[], [], [], ["3/3"]]


@kits
def test_a_pause_ends_it_and_off_is_off(kit: DialectKit) -> None:
    """Off by default; where it is on for one tool, it is for that."""
    scripts = [cut(kit, at) for at in range(4)]
    assert [told(met) for met in talk(kit, *scripts)] == [[]] * 4
    own: Any = {"per_tool": {"other": {"detectors": {"truncated": True}}}}
    assert [told(met) for met in talk(kit, *scripts, **own)] == [[]] * 4


@kits
def test_it_is_withheld_where_its_cap_is_lifted(kit: DialectKit) -> None:
    """One that its vendor calls whole: it is held, for the ledger knows no more than how it began."""
    settings: Any = {"detectors": {"truncated": True, "truncated_most": "block"}}

    async def exchange(session: Session) -> None:
        for shown, script in [cut(kit, at) for at in range(3)]:
            await session.exchange(ask(kit, shown, stream=True), script)

    *_, last = in_session(exchange, "block", **settings).meetings
    assert b"call_c2" not in last.body
    assert kit.faults(last.body) == []
