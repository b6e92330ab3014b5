"""In process as on the wire: a `LoopDetector` finds in a run what the middleware finds in its requests and answers."""

import asyncio
import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from callfuse import LoopDetector, ToolCall
from callfuse.observe.bus import Bus
from callfuse.observe.events import FindingSeen
from callfuse.policy.ladder import Verdict
from tests.laws.test_kinds import EVERYTHING_ON
from tests.support.asgi import drive
from tests.support.config import settings
from tests.support.kits import DialectKit
from tests.support.meeting import ask, every_dialect, reply
from tests.support.model import Answer, Call, History, Quirks, Round, Text, User
from tests.support.observing import Observed, observed
from tests.support.scripted import play

Run = list[list[tuple[str, int, str]]]
"""Rounds of calls: tool, argument, result."""
Findings = list[tuple[Any, ...]]
"""Request, signature of the call, kind, kinds, count, limit, step, rung."""

RESULTS = ["Nothing new.", "no results", "Error: no such table", "Rows: red", "Rows: blue", "Unknown tool: lookup"]
RUNS = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["search", "read_file", "gone"]), st.integers(0, 1), st.sampled_from(RESULTS)),
        min_size=1,
        max_size=3,
    ),
    min_size=1,
    max_size=9,
)
SETTINGS: list[dict[str, Any]] = [
    {},
    {"max_repeats": 2},
    EVERYTHING_ON,
    {"detectors": {"error_rate": 4, "known_pairs": 3, "same_error": 2}, "max_calls": 12},
    {"max_calls_per_answer": 2, "similarity_threshold": 0.7},
]
CYCLE: Run = [[("search", 0, "Nothing new.")], [("read_file", 0, "Rows: red")]] * 4
FAILING: Run = [[("search", at, "Error: no such table")] for at in (0, 1)] * 3
PAIRS: Run = [[("search", 0, "Nothing new."), ("read_file", 1, "Rows: red")]] * 5
UNKNOWN: Run = [[("gone", at, "Unknown tool: gone")] for at in (0, 1)] * 2


def calls_of(run: Run, at: int) -> tuple[Call, ...]:
    """The calls of a round."""
    return tuple(
        Call(f"call_{at}_{number}", tool, (json.dumps({"query": f"number {which}"}),))
        for number, (tool, which, _) in enumerate(run[at])
    )


def findings(seen: Observed, at: int) -> Findings:
    """What has been told of findings since this was asked last, as far as both must agree: all but times and ids.

    What results show (step 0 on the wire) is of a round, and has no call.
    """
    verdicts = [event.verdict for event in seen.of(FindingSeen)]
    seen.events.clear()
    return [(at, one.call.signature if one.step else None, *_told(one)) for one in verdicts]


def _told(verdict: Verdict) -> tuple[str, tuple[str, ...], int, int, int, str]:
    found = verdict.finding
    return found.kind, found.kinds or (found.kind,), found.count, found.threshold, verdict.step, str(verdict.rung)


def calls_to_check(run: Run, at: int) -> list[ToolCall]:
    """The calls of a round as the detector gets them."""
    return [ToolCall(call.id, call.name, call.arguments) for call in calls_of(run, at)]


def is_blocked(found: Findings) -> bool:
    """Whether a call was withheld: what follows would not have come."""
    return any(rung == "block" for *_, rung in found)


def on_the_wire(kit: DialectKit, run: Run, ladder: str, more: dict[str, Any]) -> Findings:
    """What the middleware tells of a run, request by request; to its first call that is withheld."""
    vendor = [play()]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await vendor[0](scope, receive, send)

    async def talk() -> Findings:
        guarded, seen = observed(app, ladder, **more)
        found: Findings = []
        history = History((User("Go on."),))
        for at in range(len(run) + 1):
            calls = calls_of(run, at) if at < len(run) else ()
            answer = Answer(((*calls,) or (Text(("Done.",)),),), Quirks(), tag=f"answer {at}")
            vendor[0] = play(reply(kit, answer, stream=False))
            await drive(guarded, ask(kit, history, stream=False))
            told = findings(seen, at)
            # A round whose last call has a finding has been told of. The wire counts it again, the detector does not.
            if at and calls_to_check(run, at - 1)[-1].signature in {one[1] for one in found if one[0] == at - 1}:
                told = [one for one in told if one[1] is not None]
            found += told
            if is_blocked(found) or at == len(run):
                break
            history = history.and_then(Round(calls, tuple(result for _, _, result in run[at])))
        return found

    return asyncio.run(talk())


def in_process(run: Run, ladder: str, more: dict[str, Any]) -> Findings:
    """What a detector tells of it. What results show is told with the next request on the wire, so it is here."""
    seen, found = Observed(), list[Any]()
    detector = LoopDetector(settings(ladder, **more), bus=Bus(seen))
    detector.declare_tools(History(()).tools)
    for at in range(len(run)):
        calls = calls_to_check(run, at)
        detector.check_round(calls)
        found += findings(seen, at)
        if is_blocked(found):
            break
        for call, (_, _, result) in zip(calls, run[at], strict=True):
            detector.record(result, call)
        found += [(at + 1, None, *one[2:6], 0, one[7]) for one in findings(seen, at)]
    return found


@every_dialect
@given(run=RUNS, ladder=st.sampled_from(["observe", "warn", "block"]), more=st.sampled_from(SETTINGS))
@example(run=CYCLE, ladder="observe", more={})
@example(run=FAILING, ladder="warn", more={})
@example(run=PAIRS, ladder="block", more={})
@example(run=UNKNOWN, ladder="warn", more=EVERYTHING_ON)
def test_the_same_findings(kit: DialectKit, run: Run, ladder: str, more: dict[str, Any]) -> None:
    """Kinds, counts, limits, steps and rungs are equal, call by call and in order, of parallel calls too."""
    assert in_process(run, ladder, more) == on_the_wire(kit, run, ladder, more)
