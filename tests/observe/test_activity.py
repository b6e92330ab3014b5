"""What the live page is told of: calls with all that came of them, within bounds, as far as the setting permits."""

import inspect
import json
import tracemalloc
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.model import Finding, ToolCall
from callfuse.model.finding import Stretch
from callfuse.model.ids import bounded_id
from callfuse.model.outcomes import outcome_of
from callfuse.observe import activity, beads, events, fields
from callfuse.observe.activity import MAX_LANES, Activity, Content
from callfuse.observe.beads import MAX_BEADS
from callfuse.observe.content import LENGTHS
from callfuse.observe.counts import Counts
from callfuse.observe.events import Event, Where
from callfuse.observe.kept import EventKeeper
from callfuse.observe.labels import RESULTS
from callfuse.observe.naming import CLASSES
from callfuse.observe.pages import page_of
from callfuse.observe.rates import BUCKET_S, BUCKETS, Rates
from callfuse.observe.reading import read_fields
from callfuse.policy.ladder import Verdict
from callfuse.policy.rungs import Rung

WHERE = Where("abc", "x-session-id", "main.f00", "gpt-4o", "openai", "openai-chat")
ARGUMENTS = '{"query": "zebra", "password": "hunter2hunter2"}'
SECRET = "hunter2hunter2"
FIELDS = sorted(
    value for value in vars(fields).values() if isinstance(value, str) and value.startswith(("gen_", "callf"))
)
"""The names of fields."""
NAMES = {
    *(
        "calls",
        "holds",
        "held_s",
        "findings",
        "loops",
        "saved_calls",
        "saved_tokens",
        "saved_cost",
        "tokens",
        "estimated_tokens",
        "cost",
        "warned",
        "steered",
        "blocked",
        "feedback",
    ),
    *("exchanges", "blown", "fail_open", "not_guarded", "not_watched"),
    *(f"then_{one}" for one in (*RESULTS, "other")),
}
"""Those of rates."""


class Watched:
    """An activity, the time, and events with few words. `told`: another one, told of them as other processes are."""

    def __init__(self, content: Content = "short") -> None:
        self.now = 1000.0
        self.counts = Counts(lambda: self.now)
        self.activity = Activity(content, lambda: self.now, "one", self.counts.rates)
        self.told = Activity(content, lambda: self.now, "one")
        self._keeper = EventKeeper(content, lambda: self.now)

    def call(
        self, arguments: str = ARGUMENTS, where: Where = WHERE, id_: str = "call_1", action: str = "none"
    ) -> ToolCall:
        """The model makes a call."""
        call = ToolCall(id_, "search", arguments)
        self.take(events.CallSeen(where, call, action))
        return call

    def find(self, call: ToolCall, rung: Rung = Rung.STEER, id_: str = "f1", **more: Any) -> None:
        """It is found, and something is done about it."""
        found = Finding("repeat", call.name, call.signature, 3, 3, 300.0, False, calls=("a", "b"), previous="nothing")
        self.take(events.FindingSeen(WHERE, Verdict(call, found, rung, 1, finding_id=id_), **more))
        self.take(events.ActionTaken(WHERE, id_, str(rung), True, told=f"[callfuse] stop, {SECRET=!s}"))

    def take(self, event: Event) -> None:
        """Anything happens."""
        kept = self._keeper.keep(event)
        self.counts.take(event)
        self.activity.take_fields(kept.unfinished())
        self.told.take_fields(json.loads(kept.data), is_finished=True)

    def page(self, **asked: Any) -> dict[str, Any]:
        """The first page."""
        asked = {"lanes": 3, "beads": 40, **asked}
        page = self.activity.page(0, 20, **asked)
        assert self.told.page(0, 20, **asked) == page
        assert self.told.rates() == self.activity.rates()
        return page

    def session(self, name: str = "abc") -> dict[str, Any]:
        """All of a session."""
        found = self.activity.session(name)
        assert found is not None
        assert self.told.session(name) == found
        return found

    def beads(self, name: str = "abc") -> list[dict[str, Any]]:
        """The beads of its newest lane."""
        beads: list[dict[str, Any]] = self.session(name)["lanes"][0]["beads"]
        return beads


def tell(of: Activity, event: Event, content: str = "short") -> None:
    """Tell an activity of an event."""
    of.take_fields(EventKeeper(content, lambda: 1000.0).keep(event).unfinished())


def test_a_bead_gathers_all_that_came_of_its_call() -> None:
    """Hold, finding with its evidence, action, text, result, what the model did then, and feedback."""
    watched = Watched()
    watched.take(events.HoldBegan(WHERE))
    assert watched.session()["lanes"][0]["holding"] == 1000.0
    call = watched.call(action="steer")
    watched.find(call)
    watched.call('{"query": "giraffe"}', id_="call_2")
    watched.take(events.HoldEnded(WHERE, 1.25, 4000, "withheld"))
    outcome = outcome_of("no such page", True)
    assert outcome is not None
    watched.take(events.ResultSeen(WHERE, "call_1", call.signature, outcome))
    watched.take(events.CourseMended(WHERE, "f1", "changed"))
    watched.take(events.FeedbackGiven("f1", "false_positive"))
    one, other = watched.beads()
    assert (one["tool"], one["action"], one["held"], one["hold"]) == ("search", "steer", 1.25, "withheld")
    assert (one["sign"], other["sign"], other["held"]) == (0, 1, None)
    assert one["arguments"] == '{"query": "zebra", "password": "***"}'
    assert one["finding"] | {"kinds": ["repeat"], "count": 3, "limit": 3, "rests_on": ["a", "b"]} == one["finding"]
    assert one["finding"]["url"] == page_of("repeat")
    assert one["finding"]["previous"] == "nothing"
    assert one["told"].startswith("[callfuse] stop, ")
    assert one["outcome"] == {"kind": "error", "text": "no such page"}
    assert (one["then"], one["feedback"]) == ("changed", "false_positive")
    assert watched.session()["lanes"][0]["holding"] is None


def test_a_hold_may_be_over_before_its_call_is_told() -> None:
    """It is that of the first call of the exchange which is told then; of no later exchange's."""
    watched = Watched()
    for ends in (False, True):
        watched.take(events.HoldBegan(WHERE))
        watched.take(events.HoldEnded(WHERE, 0.5, 10, "released"))
        if ends:
            watched.take(events.ExchangeEnded(WHERE, "guarded", "complete", "", 200, 0, "", 1.0, 0.5))
        watched.call()
        watched.call()
    assert [bead["held"] for bead in watched.beads()] == [0.5, None, None, None]


def test_what_workers_tell_in_turns_may_come_before_what_it_is_of() -> None:
    """Each sends its own every tenth of a second: what came of a call, and a later call, may be told before it."""
    watched = Watched()
    call, later = ToolCall("call_1", "search", ARGUMENTS), ToolCall("call_2", "search", ARGUMENTS)
    outcome = outcome_of("no such page", True)
    assert outcome is not None
    watched.now = 1000.05
    watched.take(events.ResultSeen(WHERE, "call_1", call.signature, outcome))
    watched.take(events.CourseMended(WHERE, "f1", "changed"))
    watched.take(events.CallSeen(WHERE, later, "none"))
    watched.now = 1000.0
    watched.take(events.CallSeen(WHERE, call, "warn"))
    watched.find(call, Rung.WARN)
    first, second = watched.beads()
    assert (first["call_id"], first["outcome"]["kind"], first["then"]) == ("call_1", "error", "changed")
    assert (second["call_id"], "outcome" in second) == ("call_2", False)
    assert watched.session()["used"] == 1000.05
    watched.now = 5.0  # a clock that was set back
    watched.call(id_="call_3")
    assert [bead["call_id"] for bead in watched.beads()] == ["call_1", "call_2", "call_3"]


def test_what_is_told_of_nothing_is_bounded() -> None:
    """And forgotten after a while: a vendor may use an id again."""
    watched = Watched()
    outcome = outcome_of("no such page", True)
    assert outcome is not None
    call = ToolCall("call_1", "search", ARGUMENTS)
    for number in range(3 * activity.MOST_EARLY):
        watched.take(events.ResultSeen(WHERE, f"call_{number}", call.signature, outcome))
        watched.take(events.CourseMended(WHERE, f"f{number}", "same"))
    assert len(watched.activity._early) == activity.MOST_EARLY
    last = f"call_{3 * activity.MOST_EARLY - 1}"
    watched.now += activity.LATE_S
    watched.call(id_=last)
    assert "outcome" not in watched.beads()[0]


def test_equal_calls_have_one_sign_in_a_lane() -> None:
    """Whatever their white space and ids."""
    watched = Watched()
    for arguments in ('{"a": 1}', '{"a":2}', '{"a":1}'):
        watched.call(arguments)
    assert [bead["sign"] for bead in watched.beads()] == [0, 1, 0]


def test_the_same_finding_again_counts_once() -> None:
    """Its bead says what was done last."""
    watched = Watched()
    call = watched.call()
    watched.find(call)
    watched.find(call, Rung.BLOCK, again=True)
    (bead,) = watched.beads()
    assert bead["action"] == "block"
    assert watched.session()["counts"] == {"calls": 1, "findings": 1, "steered": 1, "blocked": 1}
    assert watched.activity.rates()["totals"]["saved_calls"] == pytest.approx(1 + 4.8)  # as the metrics have it


def test_a_finding_of_a_call_from_before_the_start_has_a_bead() -> None:
    """As after a restart."""
    watched = Watched()
    watched.find(ToolCall("old", "search", ARGUMENTS), Rung.WARN)
    assert [(bead["call_id"], bead["action"]) for bead in watched.beads()] == [("old", "warn")]


@pytest.mark.parametrize(
    ("content", "arguments"),
    [("none", ""), ("names", ""), ("short", '{"query": "'), ("full", '{"query": "')],
)
def test_the_setting_says_what_is_kept(content: Content, arguments: str) -> None:
    """Of arguments, results, and texts that quote them; secrets are starred, long texts cut."""
    watched = Watched(content)
    call = watched.call(ARGUMENTS.replace("zebra", "zebra" * 2000))
    watched.find(call)
    outcome = outcome_of("result of the zebra")
    assert outcome is not None
    watched.take(events.ResultSeen(WHERE, "call_1", call.signature, outcome))
    (bead,) = watched.beads()
    kept: str = bead.get("arguments") or ""
    assert kept.startswith(arguments)
    if content in ("none", "names"):
        assert kept == ""
        assert (bead["tool"], "search" in str(watched.session())) == (
            ("a tool", False) if content == "none" else ("search", True)
        )
        assert "zebra" not in str(watched.session())
        assert "told" not in bead
        assert bead["outcome"] == {"kind": "ok", "text": None}
    else:
        assert len(kept) == {"short": 200, "full": 4000}[content] + 1
        assert bead["outcome"]["text"] == "result of the zebra"
    assert SECRET not in str(watched.session())


def test_the_settings_name_them_all() -> None:
    """Each word has its length."""
    assert set(get_args(Content)) == set(LENGTHS)


@pytest.mark.slow
@pytest.mark.parametrize(("lanes", "calls"), [(960, 0), (64, MAX_BEADS)])
def test_bytes_are_counted_about_as_they_are(lanes: int, calls: int) -> None:
    """Of lanes without a call, too, and of long names in letters that take four bytes each."""
    watched = Activity()
    tracemalloc.start()
    try:
        for number in range(lanes):
            where = WHERE._replace(session=f"s{number // MAX_LANES}", lane=f"l{number}")
            tell(watched, events.ExchangeEnded(where, "guarded", "complete", "", 200, calls, "", 1.0, 0.0))
            for at in range(calls):
                name = f"{number} {at}" + "\U0001f600" * 180
                tell(watched, events.CallSeen(where, ToolCall(name, name, f'{{"a": "{name}"}}'), "none"))
        real, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert real < 1.2 * watched._size + 200_000


def test_the_names_of_a_call_are_counted_once() -> None:
    """A longer name, and a longer id, count for as much as they are longer."""
    sizes = []
    for name in ("x", "x" * 81):
        watched = Activity("names")
        tell(watched, events.CallSeen(WHERE, ToolCall(name, name, "{}"), "none"), "names")
        sizes.append(watched._size)
    assert sizes[1] - sizes[0] == 2 * 80


def test_foreign_texts_are_safe() -> None:
    """Nothing of them turns the text around it; nothing is longer than a screen."""
    watched = Watched("full")
    foreign = "\u202e\x1b[31m\ud800" + "x" * 100_000
    call = ToolCall(foreign, foreign, foreign)
    watched.take(events.CallSeen(WHERE._replace(model=foreign), call, "none"))
    watched.find(call)
    shown = str(watched.session())
    assert shown.isprintable()
    assert len(shown) < 10_000


@pytest.mark.slow
def test_all_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions, lanes, beads and bytes; the one unused for longest goes first, and sizes are always the sums."""
    monkeypatch.setattr(activity, "MAX_SESSIONS", 50)
    monkeypatch.setattr(activity, "MAX_BYTES", 1_500_000)
    watched = Watched("full")
    for number in range(400):
        where = WHERE._replace(session=f"s{number % 70}", lane=f"l{number % 40}")
        for at in range(number % 3):
            watched.find(watched.call(f'{{"a": {at}, "b": "{"x" * 3000}"}}', where), id_=f"f{number}")
    for at in range(3 * MAX_BEADS):
        watched.call(f'{{"a": {at}}}')
    for at in range(3 * MAX_LANES):
        watched.call(where=WHERE._replace(lane=f"more{at}"))
    kept = watched.activity._sessions
    assert len(kept) <= 50
    assert next(reversed(kept)) == "abc"
    assert len(kept["abc"].lanes) == MAX_LANES
    assert max(len(lane.beads) for one in kept.values() for lane in one.lanes.values()) <= MAX_BEADS
    for one in kept.values():
        sizes = sum(bead.size for lane in one.lanes.values() for bead in lane.beads)
        assert one.size == beads.SESSION + len(one.lanes) * beads.LANE + sizes
    assert watched.activity._size == sum(one.size for one in kept.values()) <= 1_500_000
    assert len(watched.activity._found) <= 64 * 16 * 50


FOREIGN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.just("x" * 10**6),
    st.lists(st.text()),
    st.just([{}]),
)


@given(st.sampled_from(sorted(activity._TAKE)), st.data())
def test_whatever_another_program_tells(event: str, data: st.DataObject) -> None:
    """It raises nothing, keeps nothing long, can be shown, and what comes then is counted in its time."""
    watched = Watched()
    told = watched.told
    foreign = {name: data.draw(FOREIGN) for name in (*FIELDS, fields.TIME)} | {"callfuse.event": event}
    read = read_fields(json.dumps(foreign).encode())
    told.take_fields(read, 7, is_finished=True)
    told.take_fields(read_fields(json.dumps({"callfuse.event": [event]}).encode()), is_finished=True)
    tell(told, events.CallSeen(WHERE, ToolCall("c", "search", ARGUMENTS), "none"))
    shown = (
        told.page(0, 20, lanes=3, beads=40),
        told.rates(),
        told.session(read.get("gen_ai.conversation.id", "-")),
        told.session("abc"),
    )
    assert len(json.dumps(shown, allow_nan=False)) < 1_000_000
    watched.now += activity.SKEW_S
    totals = told.rates()["totals"]
    assert (
        1 <= sum(told.rates()["series"]["calls"]) <= totals["calls"] == 1 + (event == "call")
    )  # one may be of long ago
    assert set(totals) <= NAMES


def test_no_exchange_waits_for_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look through the names of thousands of sessions holds no lock."""
    watched = Watched()
    watched.call()
    free: list[bool] = []

    def matches(*_: object, **__: object) -> bool:
        free.append(watched.activity._lock.acquire(blocking=False))
        watched.activity._lock.release()
        return True

    monkeypatch.setattr(Activity, "_matches", matches)
    assert watched.activity.page(0, 20, search="x", lanes=1, beads=1)["matching"] == 1
    assert free == [True]


def test_pages_are_cut_and_searched_here() -> None:
    """The last used session first; words of its name, model, dialect and tools find it."""
    watched = Watched()
    for number in range(100):
        watched.call(where=WHERE._replace(session=f"s{number}", model="claude" if number % 10 == 0 else "gpt"))
    watched.find(watched.call())
    assert [one["session"] for one in watched.page()["sessions"][:3]] == ["abc", "s99", "s98"]
    assert (watched.page()["matching"], len(watched.page()["sessions"])) == (101, 20)
    assert [one["session"] for one in watched.activity.page(5, 20, lanes=1, beads=1)["sessions"]] == ["s0"]
    assert watched.activity.page(10**10, 20, lanes=1, beads=1)["sessions"] == []
    assert watched.page(search="CLAUDE s9")["matching"] == 1
    assert watched.page(search="search")["matching"] == 101
    assert watched.page(search="nothing")["sessions"] == []
    assert [one["session"] for one in watched.page(found=True)["sessions"]] == ["abc"]


def test_what_is_known_is_not_sent_again() -> None:
    """A session that has not changed is only named."""
    watched = Watched()
    watched.call(where=WHERE._replace(session="one"))
    watched.call(where=WHERE._replace(session="two"))
    known = watched.page()["version"]
    watched.call(where=WHERE._replace(session="one"))
    one, two = watched.page(since=known)["sessions"]
    assert one["session"] == "one"
    assert len(one["lanes"][0]["beads"]) == 2
    assert two == {"session": "two"}


def test_one_bead_may_be_asked_for_alone() -> None:
    """Then of the others there are only what the lane shows and their calls' ids."""
    watched = Watched()
    for at in range(3):
        watched.find(watched.call(f'{{"a": {at}}}', id_=f"call_{at}"), id_=f"f{at}")
    found = watched.activity.session("abc", 2)
    assert found is not None
    one, two, three = found["lanes"][0]["beads"]
    assert [one["call_id"], two["call_id"], three["call_id"]] == ["call_0", "call_1", "call_2"]
    assert ("told" in two, "told" in one, "told" in three) == (True, False, False)


def test_a_fuse_that_blows_and_is_reset() -> None:
    """It is a bead of its own; a reset or the model's next call ends it."""
    watched = Watched()
    watched.take(events.FuseBlown(WHERE, 5))
    assert watched.session()["lanes"][0]["blown"]
    assert watched.beads()[0]["action"] == "blown"
    watched.take(events.FuseReset(("abc.0f0f", "nobody")))
    assert not watched.session()["lanes"][0]["blown"]
    watched.take(events.FuseBlown(WHERE, 5))
    watched.call()
    assert not watched.session()["lanes"][0]["blown"]


def test_changes_of_settings_stand_with_their_session() -> None:
    """With who has made them; a command may be the first thing of a session, the page knows only what there is."""
    watched = Watched()
    watched.take(events.SettingsChanged("new", "tool-loop-mode = warn", False, "page"))
    assert watched.activity.session("new") is None
    watched.take(events.SettingsChanged("abc", "tool-loop-mode = warn", False))
    watched.call()
    assert [(one["what"], one["by"]) for one in watched.session()["changes"]] == [("tool-loop-mode = warn", "command")]
    assert watched.session()["model"] == "gpt-4o"


def test_exchanges_of_no_session_are_counted_only() -> None:
    """As those without tools."""
    watched = Watched()
    ended = events.ExchangeEnded(events.NOWHERE, "passed", "complete", "no tools", 200, 0, "", 1.0, 0.0)
    watched.take(ended)
    assert watched.page()["sessions"] == []
    assert watched.activity.rates()["totals"] == {"exchanges": 1}


def test_every_event_that_it_takes_may_come_first() -> None:
    """Nothing of them needs another before it."""
    call = ToolCall("i", "search", "{}")
    outcome = outcome_of("x")
    finding = Finding("repeat", "search", call.signature, 3, 3, 300.0, False)
    given: dict[str, Any] = {
        "where": WHERE, "call": call, "outcome": outcome, "verdict": Verdict(call, finding, Rung.BLOCK, 1),
        "signature": call.signature, "sessions": ("abc",), "held_seconds": 0.0, "seconds": 1.0, "calls": 1,
        "input_tokens": 1, "cached_tokens": 0, "output_tokens": 1, "estimated_tokens": 0, "cost": 0.5,
    }  # fmt: skip
    for kind in [CLASSES[name] for name in activity._TAKE]:
        watched = Watched()
        names = [one.name for one in inspect.signature(kind).parameters.values() if one.default is one.empty]
        watched.take(kind(**{name: given.get(name, "x") for name in names}))
        watched.page()


TEXTS = st.sampled_from(
    [
        "",
        "search",
        '{"query": "zebra"}',
        "token: abc def",
        '{"password": "' + "x" * 199 + '"}',
        "\u202e\ud800",
        "y" * 6000,
    ]
)
"""Texts from outside; secrets that a cut goes through, and what no JSON or terminal takes, among them."""
FINDINGS = st.builds(
    Finding,
    st.sampled_from(["repeat", "cycle", "budget"]),
    TEXTS,
    st.just(ToolCall("", "search", "").signature),
    count=st.integers(2, 9),
    threshold=st.just(3),
    window_s=st.just(300.0),
    hard=st.booleans(),
    calls=st.lists(TEXTS, max_size=3).map(tuple),
    previous=st.none() | TEXTS,
    stretch=st.builds(Stretch, st.lists(TEXTS, max_size=3).map(tuple), part=st.just(""), unit=st.just("")),
)
CALLS = st.builds(ToolCall, TEXTS, st.sampled_from(["search", "\x1b[31m", "z" * 300]), TEXTS)
PLACES = st.sampled_from([WHERE, WHERE._replace(lane="other"), WHERE._replace(session="two", model="m" * 300)])
IDS = st.sampled_from(["f1", "f2", "0123456789abcdef"])
VERDICTS = st.builds(
    Verdict, CALLS, FINDINGS, st.none() | st.sampled_from(list(Rung)), st.integers(0, 4), finding_id=IDS
)
EVENTS = st.one_of(
    st.builds(events.CallSeen, PLACES, CALLS, st.sampled_from(["none", "steer"])),
    st.builds(events.HoldBegan, PLACES),
    st.builds(events.HoldEnded, PLACES, st.floats(0, 9), st.just(4), st.just("released")),
    st.builds(events.FindingSeen, PLACES, VERDICTS, st.integers(0, 2), st.booleans()),
    st.builds(events.ActionTaken, PLACES, IDS, st.sampled_from(["warn", "steer", "block"]), st.booleans(), told=TEXTS),
    st.builds(
        lambda where, call, said: events.ResultSeen(where, bounded_id(call.id), call.signature, said),
        PLACES,
        CALLS,
        st.sampled_from([outcome_of("token: abc " + "r" * 400), outcome_of("no such page", True)]),
    ),
    st.builds(events.CourseMended, PLACES, IDS, st.just("same")),
    st.builds(events.FeedbackGiven, IDS, st.just("too_late")),
    st.builds(events.FuseBlown, PLACES, st.just(5)),
    st.builds(events.FuseReset, st.just(("abc", "two"))),
    st.builds(events.SettingsChanged, st.sampled_from(["abc", "new"]), TEXTS, st.booleans(), st.just("command")),
    st.builds(events.ExchangeEnded, PLACES, *map(st.just, ("guarded", "complete", "", 200, 1, "", 1.0, 0.0))),
    st.just(events.Refused("websocket")),
)


@given(st.sampled_from(get_args(Content)), st.lists(EVENTS, max_size=30))
def test_what_went_through_json_is_shown_the_same(content: Content, happened: list[Event]) -> None:
    """Whatever happens, and whatever the setting is; the comparison is in `Watched`."""
    watched = Watched(content)
    for event in happened:
        watched.now += 0.25
        watched.take(event)
    for one in watched.page()["sessions"]:
        assert "abc def" not in str(watched.session(one["session"]))


def test_rates_are_kept_for_a_while() -> None:
    """The newest bucket last; an old one is gone, its amounts are in the total."""
    rates = Rates()
    rates.add("calls", 1000)
    rates.add("calls", 1000 + BUCKET_S, 3)
    series = rates.series(1000 + 2 * BUCKET_S)["calls"]
    assert (len(series), series[-3:]) == (BUCKETS, [1, 3, 0])
    assert sum(rates.series(1000 + BUCKETS * BUCKET_S)["calls"]) == 3
    assert sum(rates.series(10**9)["calls"]) == 0
    rates.add("calls", 10)  # a clock that was set back
    assert rates.totals()["calls"] == 5
