"""What is kept of the last request changes no byte and no verdict: each conversation is told with it and without.

In each dialect, told as agents do: all messages again with a few more; and as some do: edited, cut, compacted, broken.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse import CallFuseMiddleware
from callfuse.asgi import prepare
from callfuse.conversations.memory import MemoryLedger
from callfuse.dialects import DIALECTS, continued
from callfuse.dialects.nudges import Speaker, find_nudges
from callfuse.model.outcomes import outcome_of
from callfuse.wire import resent
from callfuse.wire.jsontext import ExactValues, loads
from tests.support.examples import more_examples
from tests.support.kits import DialectKit, target_of
from tests.support.meeting import Session, ask, every_dialect, reply
from tests.support.model import Call, History, Round, Style, User
from tests.support.plain import again, elsewhere, saying

ARGUMENTS = (
    '{"query": "zebra"}',
    '{"query": "giraffe", "limit": 9007199254740993}',
    '{"id": 123456789012345678901}',
    "{}",
)
RESULTS = ("nothing was found", "twelve entries ]}", '{"error": "no such table"}', '"],"model":"x"', "\u2028 é 😀 \\")
SAID = ("Go on.", "!/set(tool-loop-max-repeats=4)", "<system-reminder>x</system-reminder>", '},{"role":"user"')
NUDGES = (
    "Continue.",
    "Step 1/50",
    "Step 2/50",
    '{"state": "idle", "left": 3}',
    "You have used 7 of 50.",
    "And 8 of 50.",
)
LADDERS = ("warn", "block", "chance_then_block", "observe", "graduated")
MORE: tuple[dict[str, Any], ...] = (
    {},
    {"per_tool": {"sea*": {"ignore": ["limit"]}}},
    {"detectors": {"stagnation": 3}, "similarity_threshold": 0.8},
    {"tool_names": True, "tool_hint": True},
)

calls = st.builds(
    lambda number, name, text: Call(f"call_{number}", name, (text,)),
    st.integers(0, 9),
    st.sampled_from(["search", "lookup", "unheard_of"]),
    st.sampled_from(ARGUMENTS),
)
rounds = st.lists(calls, min_size=1, max_size=2, unique_by=lambda call: call.id).flatmap(
    lambda made: st.builds(
        lambda results, text: Round(tuple(made), tuple(results), text),
        st.lists(st.sampled_from(RESULTS), min_size=len(made), max_size=len(made)),
        st.sampled_from(["", "Let me see."]),
    )
)
LOOP = Round((Call("call_loop", "search", (ARGUMENTS[0],)),), (RESULTS[0],))
spoken = st.one_of(st.sampled_from(SAID), st.sampled_from(NUDGES), st.sampled_from(NUDGES)).map(User)
turns = st.one_of(rounds, st.just(LOOP), st.just(LOOP), spoken)


@st.composite
def tellings(draw: st.DrawFn) -> list[History]:
    """The histories of one conversation, request by request."""
    history = History((User("Find the zebra crossing."), *draw(st.lists(turns, max_size=3))))
    told = [history]
    for _ in range(draw(st.integers(2, 6))):
        change = draw(st.integers(0, 9))
        kept = list(history.turns)
        if change == 0:
            del kept[1 : draw(st.integers(1, len(kept)))]
        elif change == 1:
            kept[draw(st.integers(0, len(kept) - 1))] = draw(turns)
        elif change == 2:
            del kept[draw(st.integers(1, len(kept))) :]
        elif change == 3:
            history = replace(history, tools=draw(st.sampled_from([("search",), ("search", "lookup"), ()])))
        history = replace(history, turns=(*kept, *draw(st.lists(turns, max_size=2))))
        told.append(history)
    return told


Damage = Sequence[tuple[int, bytes]]
"""For each request, bytes that are put somewhere into its body."""


def records(kit: DialectKit, told: Sequence[History], style: Style, session: Session, damage: Damage = ()) -> list[Any]:
    """What both sides have seen, request by request, and what was logged; then what was written."""

    async def tell() -> None:
        for at, history in enumerate(told):
            request = ask(kit, history, stream=True, style=style)
            if at < len(damage):
                place, piece = damage[at]
                place %= len(request.body) + 1
                request = replace(request, body=request.body[:place] + piece + request.body[place:])
            script = [reply(kit, one, stream=True) for one in (again(), elsewhere())]
            await session.exchange(request, *script)

    asyncio.run(tell())
    seen = session.meetings
    met = [(one.body, one.client.headers, one.log, [heard.body for heard in one.app.heard]) for one in seen]
    return [*met, written(session)]


def written(session: Session) -> list[Any]:
    """What the ledger has in the end, without the times and what is drawn by lot."""
    (guarded,) = session._guards
    assert isinstance(guarded, CallFuseMiddleware)
    assert isinstance(guarded.ledger, MemoryLedger)
    return [
        (
            lane,
            [(one.position, one.turn, one.calls) for one in state.rounds],
            state.notes,
            state.length,
            replace(state.blocks, time=0.0),
            [one._replace(finding_id="") for one in state.told],
        )
        for lane, (_, state, _) in guarded.ledger._lanes.entries.items()
    ]


@every_dialect
@more_examples(1)
@given(
    told=tellings(),
    style=st.sampled_from([Style(), Style(ascii=True), Style(spaced=True), Style(parts=True)]),
    ladder=st.sampled_from(LADDERS),
    more=st.sampled_from(MORE),
    damage=st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from((b"", b"", b" ", b",", b"]", b'"', b"1")))),
)
def test_every_conversation_is_judged_as_if_nothing_were_kept(
    kit: DialectKit,
    told: list[History],
    style: Style,
    ladder: str,
    more: dict[str, Any],
    damage: list[tuple[int, bytes]],
) -> None:
    """The same bytes to the app and to the client, the same log, the same in the ledger."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "LEAST_BYTES", 0)
        with_it = records(kit, told, style, Session(ladder, more), damage)
        without = records(kit, told, style, Session(ladder, {**more, "max_kept_bytes": 0}), damage)
    assert with_it == without


@every_dialect
@pytest.mark.parametrize("changed", range(1, 6))
def test_a_history_whose_end_is_changed(kit: DialectKit, changed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that the last requests have shown is another one now: its calls count, not those that were read."""
    monkeypatch.setattr(prepare, "LEAST_BYTES", 0)
    other = Round((Call("call_other", "lookup", (ARGUMENTS[1],)),), (RESULTS[1],))
    loop = [Round((Call(f"call_{at}", "search", (ARGUMENTS[0],)),), (RESULTS[0],)) for at in range(7)]
    before = [*loop[:changed], other, *loop[changed:]]
    told = [History((User("Find it."), *before[:at])) for at in range(2, 7)]
    told.append(History((User("Find it."), *loop[:6])))
    with_it = records(kit, told, Style(), Session("block"))
    assert with_it == records(kit, told, Style(), Session("block", {"max_kept_bytes": 0}))


@every_dialect
def test_what_is_kept_refers_to_no_other_body(kit: DialectKit) -> None:
    """Calls with native arguments read these again from the body of their request: not those that are kept."""
    dialect = next(one for one in DIALECTS if one.name == kit.name)
    numbers = [f'{{"id": {number}}}' for number in (7, 12345678901234567890123, 1.5)]
    turns_ = [Round((Call(f"call_{at}", "search", (text,)),), ("found",)) for at, text in enumerate(numbers * 2)]
    body = kit.request(History((User("Find it."), *turns_)), stream=True)
    path, _ = target_of(kit, stream=True)
    request = dialect.read_request(body, loads(body), path)
    assert request is not None
    history = continued.ReadHistory()
    request.take_history(history)
    first = [one.calls[0].call for one in request.rounds() if one is not None]
    del request, body
    _, kept = history._known
    calls_ = [one[1][0][0] for one in kept if one is not None]
    assert len(calls_) == 5
    for call, known in zip(first[1:], calls_, strict=True):
        assert known.signature == call.signature
        assert known.canonical == call.canonical
        assert known.exact is None or not refers_to_text(known.exact)


def refers_to_text(exact: Any) -> bool:
    """Whether a function reads from a text."""
    parts = [exact.func, *exact.args] if isinstance(exact, partial) else [exact]
    return any(isinstance(getattr(one, "__self__", one), ExactValues) for one in parts)


@every_dialect
def test_what_is_new_is_all_that_is_parsed(kit: DialectKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the third request of a conversation on; where rounds can be kept, they are not read again either."""
    monkeypatch.setattr(prepare, "LEAST_BYTES", 0)
    parsed: list[int] = []
    shown: list[int] = []
    parse_new, parse_whole, keep = resent.parse_new, resent.parse_whole, continued._shown

    def note_new(text: bytes, key: str, shared: Any, mark: str) -> Any:
        parsed.append(shared.end - shared.begin)
        return parse_new(text, key, shared, mark)

    def note_whole(text: bytes, *rest: Any) -> Any:
        parsed.append(len(text))
        return parse_whole(text, *rest)

    def note_shown(one: Any) -> Any:
        shown.append(one.position)
        return keep(one)

    monkeypatch.setattr(prepare, "parse_new", note_new)
    monkeypatch.setattr(prepare, "parse_whole", note_whole)
    monkeypatch.setattr(continued, "_shown", note_shown)
    session = Session("block")
    history = History((User("Find the zebra crossing. " * 50),))

    async def tell() -> None:
        nonlocal history
        for at in range(8):
            request = ask(kit, history, stream=True)
            await session.exchange(request, reply(kit, saying("Well."), stream=True))
            assert (parsed[-1] < 1000) is (at > 1), at
            text = f'{{"query": "{at}"}}'
            history = history.and_then(Round((Call(f"call_{at}", "search", (text,)),), (f"entry {at}",)))

    asyncio.run(tell())
    assert len(parsed) == 8
    assert len(shown) == len(set(shown))
    assert shown


@every_dialect
def test_nudges_that_were_known_are_not_read_again(kit: DialectKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request looks at the newest, and at the one before, behind which the answer was still to come."""
    monkeypatch.setattr(prepare, "LEAST_BYTES", 0)
    looked_at: list[int] = []

    def note(messages: Any, known: Any) -> Any:
        told = [*messages]
        looked_at.append(sum(speaker is Speaker.USER for speaker, _, _ in told))
        return find_nudges(iter(told), known)

    monkeypatch.setattr("callfuse.dialects.history.find_nudges", note)
    session = Session("block")
    shown = History((User("Find the zebra crossing. " * 50),))

    async def tell() -> None:
        nonlocal shown
        for at in range(12):
            await session.exchange(ask(kit, shown, stream=True), reply(kit, saying("Well."), stream=True))
            text = f'{{"query": "{at}"}}'
            made = Round((Call(f"call_{at}", "search", (text,)),), (f"entry {at}",))
            shown = shown.and_then(made).and_then(User(f"Step {at}/50"))

    asyncio.run(tell())
    assert looked_at
    assert max(looked_at) == 2


@every_dialect
def test_results_that_were_known_are_not_read_again(kit: DialectKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those before the last message of a person, which the ledger does not know, are looked at in each request."""
    monkeypatch.setattr(prepare, "LEAST_BYTES", 0)
    errors = [f"Error: no such file {'abcdefgh'[at]}. " + "It is gone. " * 300 for at in range(8)]
    failed = [
        Round((Call(f"call_{at}", "search", (f'{{"query": "{at}"}}',)),), (error,)) for at, error in enumerate(errors)
    ]
    read: Counter[str] = Counter()

    def note(content: Any, *rest: Any) -> Any:
        read[str(content)] += 1
        return outcome_of(content, *rest)

    monkeypatch.setattr("callfuse.model.calls.outcome_of", note)
    session = Session("warn")

    async def tell() -> None:
        for at in range(8):
            shown = History((User("Find it."), *failed, *[User(f"Then {'abcdefgh'[one]}.") for one in range(at + 1)]))
            await session.exchange(ask(kit, shown, stream=True), reply(kit, saying("Well."), stream=True))

    asyncio.run(tell())
    times = [sum(count for text, count in read.items() if error[:24] in text) for error in errors]
    assert times[:-1] == [2] * 7, "once more when it is known that the conversation goes on"
