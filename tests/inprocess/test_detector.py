"""The detector of an agent run: what it finds before a call runs and after its result, and what it keeps."""

import logging
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callfuse import ConfigError, LoopDetection, LoopDetector, ToolCall
from callfuse.config import Config, load_config
from callfuse.detect import Engine
from callfuse.inprocess import LoopStats
from callfuse.model import MARKER
from callfuse.offline.judging import judge_run
from callfuse.offline.runs import RecordedRun
from callfuse.policy.settings import Rung
from tests.detect import timelines
from tests.inprocess.agents import go, settings
from tests.support.examples import more_examples
from tests.support.longtext import text_of

A = ToolCall("", "search", {"q": "llamas"})


def detector(**keys: Any) -> LoopDetector:
    """A detector with these settings, whose clock stands still."""
    return LoopDetector(settings(**keys), clock=lambda: 0.0)


@pytest.mark.parametrize(
    ("keys", "rounds", "expected"),
    [
        ({}, ["a=x"] * 5, "- - steer block block"),
        ({"mode": "chance_then_break"}, ["a=x"] * 4, "- - steer block"),
        ({"mode": "break"}, ["a=x"] * 4, "- - block block"),
        ({"mode": "graduated"}, ["a=x"] * 6, "- - warn warn block block"),
        ({"mode": "warn", "max_repeats": 2}, ["a=x"] * 4, "- warn warn warn"),
        ({"mode": "observe"}, ["a=x"] * 4, "- - observe observe"),
        ({"mode": ["observe", "warn", "steer", "block"]}, ["a=x"] * 7, "- - observe warn steer block block"),
        ({"max_repeats": 0, "detectors": {"no_news": False, "known_pairs": False}}, ["a=x"] * 8, "- - - - - - - -"),
        ({}, ["a"] * 4, "- - steer block"),
        ({}, ["a=ay", "a=be", "a=ce", "a=de", "a=ef", "a=ge"], "- - - - - warn"),
        ({}, [f"a={at}y{at}" for at in "abcdefghijkl"], "- - - - - warn warn warn warn warn warn warn"),
        (
            {"mode": "unattended"},
            [f"a={at}y{at}" for at in "abcdefghijkl"],
            f"{'- ' * 5}{'warn ' * 4}steer block block",
        ),
        ({}, ["a1=x", "a2=x", "a3=x", "a4=x"], "- - - -"),
        ({"mode": "block"}, ["a=x", "b=y"] * 3, "- - - block block block"),
        ({"mode": "block"}, ["read_wait=x"] * 30, f"{'- ' * 14}{'warn ' * 15}block"),
        ({"mode": "block", "per_tool": {"a": {"max_repeats": 2}}}, ["b=x", "b=x", "a=x", "a=x"], "- - - block"),
        ({"per_tool": {"a": {"mode": "block"}}}, ["a=x"] * 3, "- - block"),
        ({"per_tool": {"a": {"enabled": False}}}, ["a=x"] * 6, "- - - - - -"),
        ({"per_tool": {"a": {"ignore": ["n"]}}}, ["a1=x", "a2=x", "a3=x"], "- - steer"),
        ({"max_calls": 2}, ["a=x", "b=y", "c=z"], "- - steer"),
        ({"similarity_threshold": 0.7}, ["a1231=x", "a1232=x", "a1233=x"], "- - steer"),
        ({"detectors": {"stagnation": 3}}, ["a1=x", "a2=x", "b=x"], "- - steer"),
        ({"mode": "block"}, ["a1=?", "a2=?", "a3"], "- - block"),
        ({"mode": "block"}, ["a=?", "b=?", "a1"], "- - block"),
        ({"mode": "block"}, ["a=x", "a1=?", "a2=?", "a3"], "- - - -"),
    ],
)
def test_modes_and_kinds(keys: dict[str, Any], rounds: Sequence[str], expected: str) -> None:
    """Every ladder and every kind of the wire holds here."""
    assert go(detector(**keys), *(one.replace("read_wait", "wait") for one in rounds)) == expected.split()


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        (["a=x a=x a=x a=x a=x a=x a=x"], ["- - - - - block block"]),
        (["a=x a=x b=y a=x"], ["- - - -"]),
        (["a=x", "b=y", "a=x a=x a=x a=x"], ["-", "-", "- - steer steer"]),
        (["a=x", "c=y", "a=x a=x b=y a=x"], ["-", "-", "- - - steer"]),
        (["a=x a=x", "a=x a=x", "a=x a=x"], ["- -", "- -", "steer steer"]),
        (["a=x", "a=x", "a=x b=y"], ["-", "-", "- -"]),
        (["a=x b=y", "a=x b=y", "a=x b=y"], ["- -", "- -", "steer steer"]),
        (["a=x", "a=x", "a=x", "a=x b=y"], ["-", "-", "steer", "block -"]),
        (["a=x", "a=x", "a=x", "b=y", "a=x"], ["-", "-", "steer", "-", "-"]),
        (["z=v", "a=x", "a=x", "a=x z=v", "a=x c=y"], ["-", "-", "-", "steer -", "- -"]),
        (["a=x", "a=x", "a=x", "a=x", "b=y", "a=x", "a=x"], ["-", "-", "steer", "block", "-", "-", "block"]),
        (["a=x", "a=x", "a=x", "a=x", "b=y", "a=z", "a=z"], ["-", "-", "steer", "block", "-", "-", "-"]),
    ],
)
def test_rounds(rounds: list[str], expected: list[str]) -> None:
    """Equal calls of a round count once for others, and are too many from the sixth on, from the third on where the
    call is known; a new call is progress, but not
    for what the model has been told of; a blocked call is refused until a new one has run."""
    assert go(detector(), *rounds) == expected


@more_examples(5)
@given(
    st.lists(
        st.lists(st.sampled_from(["a=x", "a=y", "b=x", "b1=y", "a"]), min_size=1, max_size=2).map(" ".join),
        max_size=14,
    ),
    st.sampled_from([{}, {"max_repeats": 2}, {"detectors": {"stagnation": 3}}, {"similarity_threshold": 0.8}]),
)
@example(["b=x", "b=x", "a a=y", "b=y", "a", "a=x"], {"max_repeats": 2})
@example(["b=x b1=y", "a=x", "b1=y b=x", "b1=y", "b=x", "a=x", "a=y", "a=y", "b1=y"], {})
def test_it_judges_like_the_replay(rounds: list[str], keys: dict[str, Any]) -> None:
    """The same calls with the same results are found alike here and in a recorded run; what results show is not told
    here where one of them never comes."""
    config = load_config(settings(mode=["observe", "warn"], **keys), env={})
    found = list(judge_run(RecordedRun("", "", "", None, [timelines.rounds(*rounds)]), config.tool_call_loop))
    known = ["a" not in text.split() for text in rounds]
    told = [one.verdict if one.verdict and (one.verdict.step or known[one.round]) else None for one in found]
    expected = ["-" if verdict is None else str(verdict.rung) for verdict in told]
    mine = [one for text in go(LoopDetector(config, clock=lambda: 0.0), *rounds) for one in text.split()]
    assert [one.removeprefix("-+") for one in mine] == expected


def failing(
    detector_: LoopDetector, calls: int, error: object = "Error: no such table", tool: str = "query"
) -> list[str]:
    """Different calls of a tool that always fail: what the results show."""
    shown = []
    for at in range(calls):
        detector_.check(ToolCall("", tool, {"at": at}))
        found = detector_.record(error)
        shown.append(str(found.action) if found else "-")
    return shown


def test_the_same_error_again() -> None:
    """Found when the result is known, whatever the arguments; a warning at most, and no error that waits for others."""
    assert failing(detector(mode="block"), 5) == ["-", "-", "-", "warn", "warn"]
    assert failing(detector(mode="block"), 4, LookupError("no such table")) == ["-", "-", "-", "warn"]
    assert failing(detector(mode="observe"), 4) == ["-", "-", "-", "observe"]
    assert failing(detector(detectors={"same_error": False, "failing_tool": False}), 5) == ["-"] * 5
    assert failing(detector(), 5, "Error: 429 Too Many Requests") == ["-"] * 5


def test_going_over_the_same_ground() -> None:
    """Told with the result that completes it, in no order; to change something in between is work."""
    pages = [f"read{page}={page * 'x'}" for page in (1, 2, 3, 1, 2, 4, 3, 1, 5, 2)]
    assert go(detector(mode="block"), *pages) == ["-"] * 9 + ["-+warn"]
    work = [text for at, page in enumerate(pages) for text in (page, f"edit{at + 1}=done")]
    assert go(detector(mode="block"), *work) == ["-"] * 20
    circle = [text for at in range(4) for text in ("read=x", f"edit{at + 1}=!not_there")]
    assert go(detector(mode="block"), *circle) == ["-"] * 7 + ["-+warn"]


def test_what_the_results_show_is_told_like_any_other(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and counts as told: the model then changes its course, or not."""
    caplog.set_level(logging.INFO, logger="callfuse")
    one = detector()
    failing(one, 5)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert (one.stats.warnings, one.stats.mitigations) == (2, 1)
    failing(one, 1, tool="other")
    assert (one.stats.warnings, one.stats.mitigations) == (2, 2)


def test_nothing_is_told_twice() -> None:
    """Where the call was found before it ran, or the result is of an earlier round."""
    one = detector(mode="warn")
    for _ in range(5):
        one.check(A)
        assert one.record("Error: no such table") is None
    one = detector()
    early = ToolCall("early", "other", {})
    one.check(early)
    assert failing(one, 4)[-1] == "warn"
    assert one.record("late", early) is None


def test_an_exception_may_be_no_error() -> None:
    """If the caller says so."""
    one = detector()
    for at in range(6):
        one.check(ToolCall("", "query", {"at": at}))
        assert one.record(StopIteration("no more rows"), is_error=False) is None


def test_what_results_show_is_shown_once_all_are_there() -> None:
    """With the last one of the round, in whatever order they come."""
    one = detector()
    failing(one, 3)
    calls = [ToolCall("1", "query", {"at": 8}), ToolCall("2", "query", {"at": 9})]
    one.check_round(calls)
    assert one.record("Error: no such table", calls[1]) is None
    shown = one.record("Error: no such table", calls[0])
    assert shown is not None
    assert (shown.kind, shown.count, shown.threshold, shown.tool) == ("same_error", 4, 4, "query")
    assert shown.message.startswith(MARKER)


def test_a_detection() -> None:
    """Everything that is known of it, in one value."""
    one = LoopDetector(settings(), model="gpt-test", clock=lambda: 0.0)
    for call_id in ("c1", ""):
        assert one.check(ToolCall(call_id, "search", '{"q": "llamas"}')) is None
        assert one.record([]) is None
    found = one.check(A)
    assert found is not None
    assert (found.number, found.tool, found.kind, found.kinds) == (1, "search", "repeat", ("repeat",))
    assert (found.count, found.threshold, found.window_s, found.confidence) == (3, 3, 300, 1.0)
    assert (found.action, found.withholds, found.calls) == (Rung.STEER, True, ("c1", "call_2"))
    assert found.previous == ([], "no_data")
    assert found.message.startswith(f"{MARKER} This call was not run. It would have been call 3 of search in a row")
    assert found.suggestion in found.message
    assert found.description in found.message
    assert (found.call.id, found.call.arguments) == ("call_3", '{"q":"llamas"}')


@pytest.mark.parametrize(
    ("mode", "key", "text"),
    [
        ("warn", "warning", "Call {count} of {tool_name}"),
        ("chance", "guidance", "{tool_name} returned {previous_result}"),
        ("block", "block", "{arguments} on {model}"),
    ],
)
def test_texts_are_settings(mode: str, key: str, text: str) -> None:
    """Each rung has its own, with placeholders."""
    one = LoopDetector(settings(mode=mode, error_messages={key: text}), model="m", clock=lambda: 0.0)
    for _ in range(2):
        one.check(A)
        one.record("nothing")
    found = one.check(A)
    filled = text.format(count=3, tool_name="search", previous_result="nothing", arguments='{"q":"llamas"}', model="m")
    assert found is not None
    assert found.message == f"{MARKER} {filled}"


@pytest.mark.parametrize(
    "arguments",
    ['{"q":"llamas","n":1}', '{ "n": 1.0, "q": "llamas" }', {"n": 1, "q": "llamas"}, {"q": "llamas", "n": 1.0}],
)
def test_arguments_are_compared_as_json(arguments: object) -> None:
    """Whether they come as text or as a mapping, in whatever order."""
    one = detector()
    for _ in range(2):
        one.check(ToolCall("", "search", {"q": "llamas", "n": 1}))
    assert one.check(ToolCall("", "search", arguments)) is not None


def test_a_call_may_be_given_again() -> None:
    """What is kept is a copy: the caller's own call stays as it was, and may change."""
    one = detector()
    arguments = {"q": "llamas"}
    call = ToolCall("", "search", arguments)
    assert [bool(one.check(call)) for _ in range(3)] == [False, False, True]
    assert (call.id, call.arguments) == ("", arguments)
    arguments["q"] = "alpacas"
    assert one.check(call) is None


def previous(one: LoopDetector, call: ToolCall) -> object:
    """What a call has brought last, as a detection tells it."""
    found = next(filter(None, (one.check(call) for _ in range(10))))
    return found.previous.content if found.previous else None


@pytest.mark.parametrize("ids", [("1", "2"), ("x", "x"), ("", "")])
def test_results_find_their_calls(ids: tuple[str, str]) -> None:
    """In order or by call, with ids or without."""
    first, second = (ToolCall(call_id, "search", {"q": at}) for at, call_id in enumerate(ids))
    for wanted, content in ((first, "first"), (second, "second")):
        for by_call in (False, True):
            one = detector()
            one.check_round([first, second])
            if by_call:
                one.record("second", second)
            one.record("first")
            if not by_call:
                one.record("second")
            assert previous(one, wanted) == content


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_result_may_come_late(is_recorded: bool) -> None:
    """After the next call has been checked: it counts from then on."""
    one = detector()
    early = ToolCall("early", "search", {"q": "llamas"})
    one.check(early)
    one.check(A)
    if is_recorded:
        one.record("found none", early)
    one.record("found some", A)
    assert (one.check(A) is None) is is_recorded


def test_what_one_of_two_equal_calls_brought_may_come_late() -> None:
    """What their round has brought is then another than before, and the laps that looked alike are none."""
    one = detector(mode="observe")
    late = ToolCall("late", "a", {})
    laps = [[ToolCall("0", "a", {}), late], [A], [ToolCall("1", "a", {}), ToolCall("2", "a", {})], [A]]
    for calls in laps:
        found = one.check_round(calls)
        for call in calls:
            if call is not late:
                one.record("x", call)
    assert [detection and detection.kind for detection in found] == ["cycle"]
    one.record("y", late)
    assert one.check_round(laps[2]) == [None, None]


@pytest.mark.parametrize(("others", "content"), [(20, "first"), (40, None)])
def test_results_are_kept_for_a_while(others: int, content: str | None) -> None:
    """Then newer ones have taken their place."""
    one = detector()
    one.check(A)
    one.record("first")
    for at in range(others):
        one.check(ToolCall("", "other", {"at": at}))
        one.record("x")
    assert previous(one, A) == content


def test_a_withheld_call_has_no_result() -> None:
    """Nor is a text of callfuse's own one: whoever records what the model reads does no harm."""
    one = detector()
    for _ in range(2):
        one.check(A)
        one.record("x")
    found = one.check(A)
    assert found is not None
    assert one.record(found.message) is None
    assert one.record({"error": found.message}) is None
    assert one.record("x", A) is None
    again = one.check(A)
    assert again is not None
    assert (again.action, again.count) == ("block", 4)
    assert again.previous == ("x", "ok")
    assert one.stats.steers == 1


def test_what_callfuse_says_is_no_result() -> None:
    """A caller that records what the model reads, call by call, gets each result to its call."""
    one = detector()
    other = ToolCall("", "other", {})
    for calls in ([other], [A], [A]):
        one.check_round(calls)
        one.record("x")
    found, innocent = one.check_round([A, other])
    assert found is not None
    assert innocent is None
    one.record(found.message)
    one.record("of the other")
    assert previous(one, other) == "of the other"


def test_a_result_too_many() -> None:
    """Says so, unless its call is named and merely forgotten."""
    one = detector()
    with pytest.raises(ValueError, match="no call awaits this result"):
        one.record("x")
    one.check(A)
    one.new_turn()
    assert one.record("x", A) is None
    one.check(A)
    one.record("x")
    with pytest.raises(ValueError, match="no call awaits this result"):
        one.record("x")


def test_a_pause_ends_a_streak() -> None:
    """One longer than `ttl_seconds`."""
    now = 0.0
    one = LoopDetector(settings(ttl_seconds=60), clock=lambda: now)
    found = []
    for pause in (0, 60, 61, 60, 60):
        now += pause
        found.append(bool(one.check(A)))
    assert found == [False, False, False, False, True]


def test_a_new_turn_and_a_clear() -> None:
    """A new user message starts every streak afresh; a clear forgets the statistics, too."""
    one = detector()
    assert go(one, *["b=x"] * 3) == ["-", "-", "steer"]
    one.new_turn()
    assert go(one, *["b=x"] * 3) == ["-", "-", "steer"]
    assert one.stats.detections == 2
    one.clear()
    assert one.stats == LoopStats()
    assert go(one, *["a=x"] * 3) == ["-", "-", "steer"]


def test_what_was_blocked_is_remembered_over_turns() -> None:
    """It may run once, and is blocked at once if it brings the same; from the third block on it waits for news."""
    one = detector()
    assert go(one, *["a=x"] * 4) == ["-", "-", "steer", "block"]
    one.new_turn()
    assert go(one, "a=x", "a=x") == ["-", "block"]
    one.new_turn()
    assert go(one, "a=y", "a=x", "a=x") == ["-", "-", "block"]
    one.new_turn()
    assert go(one, "a=x", "b=x", "a=x", "a=x") == ["block", "-", "-", "block"]
    one.new_turn()
    assert go(one, "b=x", "a=x", "c=x", "a=x") == ["-", "block", "-", "-"]
    one.clear()
    assert go(one, *["a=x"] * 3) == ["-", "-", "steer"]


def test_tools_that_are_not_there() -> None:
    """Calls of them in a row, once it is known which there are."""
    assert go(detector(), "a1", "a2", "a3") == ["-", "-", "-"]
    one = detector()
    one.declare_tools(["b"])
    one.declare_tools(["c"])
    assert go(one, "a1", "b=x", "d1", "d2", "e", "c") == ["-", "-", "-", "-", "steer", "-"]


def test_off() -> None:
    """By the settings, or for one agent: nothing is found, nothing is kept."""
    for one in (detector(enabled=False), LoopDetector(settings(), enabled=False)):
        assert not one.enabled
        assert go(one, *["a=x"] * 8) == ["-"] * 8
        assert one.stats == LoopStats()
    assert LoopDetector(settings()).enabled


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, ["-", "-", "steer", "block"]),
        ("allow", ["-", "-", "allow", "allow"]),
        ("warn", ["-", "-", "warn", "warn"]),
        (Rung.BLOCK, ["-", "-", "block", "block"]),
        ("explode", ["-", "-", "steer", "block"]),
        (7, ["-", "-", "steer", "block"]),
        (True, ["-", "-", "allow", "allow"]),
        (False, ["-", "-", "block", "block"]),
        ("terminate", ["-", "-", "block", "block"]),
    ],
)
def test_a_callback_decides(answer: Any, expected: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """It sees each detection before anything is done; what is no answer is logged, and the action stands."""
    seen: list[LoopDetection] = []

    def on_loop(found: LoopDetection) -> Any:
        seen.append(found)
        return answer

    one = LoopDetector(settings(), on_loop=on_loop, clock=lambda: 0.0)
    assert go(one, *["a=x"] * 4) == expected
    assert [found.count for found in seen] == [3, 4]
    assert bool([line for line in caplog.messages if "on_loop failed" in line]) == (answer in ("explode", 7))


def test_a_callback_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    """Then it is logged, and the action stands."""

    def on_loop(found: LoopDetection) -> str:
        raise RuntimeError("no network")

    assert go(LoopDetector(settings(), on_loop=on_loop), *["a=x"] * 3) == ["-", "-", "steer"]
    assert "on_loop failed, so the mode decides: RuntimeError" in caplog.messages


def test_what_has_run_is_not_blocked() -> None:
    """A callback that wants that gets a warning; one that lets it go is heard."""
    assert failing(LoopDetector(settings(), on_loop=lambda _: "block"), 4)[-1] == "warn"
    assert failing(LoopDetector(settings(), on_loop=lambda _: "allow"), 4)[-1] == "None"


def test_statistics() -> None:
    """Calls, detections by kind, what was done, and whether it helped."""
    one = detector(mode="graduated")
    go(one, *["a=x"] * 5, "b=x", "b=x", "b=x")
    assert one.stats == LoopStats(
        calls=8, detections=4, by_kind={"repeat": 4, "no_news": 1}, warnings=3, blocks=1, mitigations=1,  # type: ignore[arg-type]
        confidence_sum=4.0,
    )  # fmt: skip
    assert one.stats.average_confidence == 1.0
    one.new_turn()
    assert one.stats.mitigations == 2
    one.new_turn()
    assert one.stats.mitigations == 2


def test_an_observed_detection_mitigates_nothing() -> None:
    """The model has not been told."""
    one = detector(mode="observe")
    go(one, "a=x", "a=x", "a=x", "b=x")
    assert (one.stats.detections, one.stats.mitigations) == (1, 0)
    assert LoopStats().average_confidence == 0.0


def test_false_positives_are_counted_once() -> None:
    """However often one is reported."""
    one = detector()
    found = [one.check(A) for _ in range(4)]
    for seen in (*found, *found):
        if seen is not None:
            one.report_false_positive(seen)
    assert one.stats.false_positives == 2


def test_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    """One for each detection, as on the wire."""
    caplog.set_level(logging.INFO, logger="callfuse")
    go(LoopDetector(settings(), session="run-7", model="gpt-test", clock=lambda: 0.0), *["a=x"] * 5)
    levels = [(record.levelname, record.action) for record in caplog.records]  # type: ignore[attr-defined]
    assert levels == [("WARNING", "steer"), ("WARNING", "block"), ("WARNING", "block")]
    assert caplog.messages[0].startswith(
        "Tool call loop detected in session run-7: tool=a, repeats=3/3, window=300s, model=gpt-test, "
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (ToolCall("", "search", None), "arguments of search = None (NoneType): use a mapping, or the JSON text"),
        (ToolCall("", "search", ["q"]), "arguments of search = ['q'] (list): use a mapping"),
        (ToolCall("", "search", b"{}"), "(bytes)"),
        (ToolCall("", None, {}), "use ToolCall(id, name, arguments), with the tool's name as text"),  # type: ignore[arg-type]
        ("search", "call = 'search': use ToolCall(id, name, arguments)"),
    ],
)
def test_a_call_that_is_none(call: Any, message: str) -> None:
    """Says what is wrong and what would be right, also beside a good one; nothing of the round is kept."""
    one = detector()
    with pytest.raises(TypeError) as error:
        one.check_round([A, call])
    assert message in str(error.value)
    assert one.stats.calls == 0
    assert one.repeats(A) == 1


def test_wrong_settings() -> None:
    """Are told as those of the middleware."""
    with pytest.raises(ConfigError, match=r"did you mean tool_call_loop\.max_repeats\?"):
        LoopDetector({"max_repeats": 2})
    with pytest.raises(ConfigError, match="mode"):
        LoopDetector(settings(mode="explode"))
    config = Config()
    assert LoopDetector(config).settings is config.tool_call_loop


def test_an_async_callback_is_refused() -> None:
    """Nobody would await it."""

    async def on_loop(found: LoopDetection) -> str:
        return "allow"

    with pytest.raises(TypeError, match="use a plain function"):
        LoopDetector(on_loop=on_loop)  # type: ignore[arg-type]


def test_an_error_inside_lets_calls_run(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once a cause and counted; with `fail_closed` it is raised."""

    def broken(*_: object) -> None:
        raise KeyError("broken")

    monkeypatch.setattr(Engine, "judge_round", broken)
    one = detector()
    assert go(one, *["a=x"] * 3) == ["-"] * 3
    assert one.stats.failures == 3
    assert [line for line in caplog.messages if "failed open" in line] == [
        "callfuse failed open in session -: KeyError: 'broken'"
    ]
    with pytest.raises(KeyError):
        go(detector(fail_closed=True), "a")


@pytest.mark.slow
def test_memory_is_bounded() -> None:
    """A long run of long calls keeps what its limits say, and still finds the loop at its end."""
    one, text = detector(max_rounds=20), text_of(100_000)
    tracemalloc.start()
    for at in range(300):
        call = ToolCall("", "write", {"at": at, "text": text})
        one.check(call)
        one.record("y" * 100_000)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 2_000_000
    found = [one.check(call) for _ in range(3)]
    assert [bool(seen) for seen in found] == [False, True, True]
    assert all(seen is None or seen.previous is None for seen in found)


def test_long_arguments_are_told_apart_by_all_of_them() -> None:
    """Although only their beginning is kept."""
    one = detector()
    text = text_of(50_000)
    calls = [ToolCall("", "write", {"text": text + end}) for end in "aaaba"]
    assert [bool(one.check(call)) for call in calls] == [False, False, True, False, False]


def test_threads() -> None:
    """Calls and results from several threads at once are all counted, and none fails."""
    one = detector(mode="observe")

    def work(number: int) -> None:
        for at in range(50):
            call = ToolCall(f"{number}-{at}", "search", {"q": at % 3})
            one.check(call)
            one.record("x", call)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert (one.stats.calls, one.stats.failures) == (400, 0)


def test_how_often_a_call_has_come() -> None:
    """In a row, with the one that may come now; asking changes nothing."""
    one = detector(mode="warn")
    seen = []
    for call in (A, A, ToolCall("", "other", {}), A, A, A):
        seen.append((one.repeats(call), one.repeats(call)))
        one.check(call)
    assert seen == [(1, 1), (2, 2), (1, 1), (1, 1), (2, 2), (3, 3)]


def test_settings_of_a_model(caplog: pytest.LogCaptureFixture) -> None:
    """They hold where backend and model match, and the log line names both."""
    config = {"tool_call_loop": {"models": {"openai:gpt-4o*": {"mode": "block", "max_repeats": 2}}}}
    one = LoopDetector(config, model="gpt-4o-mini", backend="openai")
    assert go(one, "a=x", "a=x") == ["-", "block"]
    assert "model=gpt-4o-mini, backend=openai" in caplog.text
    assert go(LoopDetector(config, model="claude", backend="anthropic"), "a=x", "a=x") == ["-", "-"]
    assert go(LoopDetector(config), "a=x", "a=x") == ["-", "-"]


LIFTED: list[dict[str, Any]] = [{"mode": "unattended"}, {"detectors": {"same_error": {"most": "none"}}}]


@pytest.mark.parametrize("keys", LIFTED)
def test_a_lifted_cap_acts_on_the_call_that_goes_on(keys: dict[str, Any]) -> None:
    """After the results have shown it: the same call is blocked after the guidance, other arguments have a chance, and
    beyond twice the limit the last rung comes at once."""
    one = detector(**keys)

    def check(at: int) -> str:
        found = one.check(ToolCall("", "query", {"at": at}))
        return str(found.action) if found else "-"

    assert failing(one, 4) == ["-", "-", "-", "warn"]
    assert [check(9), check(9)] == ["steer", "block"]
    assert check(10) == "-"
    one.record("Error: no such table")
    assert check(11) == "block"
    plain = detector()
    failing(plain, 4)
    assert plain.check(ToolCall("", "query", {"at": 9})) is None


def test_what_is_said_counts_what_ran() -> None:
    """Nine results that change, a steer, a block: every sentence has the number of calls so far and the pending one."""
    guard, said = detector(), []
    for at in range(12):
        found = guard.check(A)
        said.append(found.message if found else "")
        if found is None or found.action is Rung.WARN:
            guard.record(f"result {chr(ord('a') + at) * 3}")
    assert said[:5] == [""] * 5
    for number, text in enumerate(said[5:11], 6):
        assert f"call {number} of search in a row with the same arguments, whatever came back" in text


@pytest.mark.parametrize(
    "frame",
    [{"output": "Output: a.py\nProcess Group PGID: {}"}, "a.py\n<shellId: {} completed with exit code 0>"],
)
def test_a_shell_that_is_numbered_loops_all_the_same(frame: Any) -> None:
    """The third equal command is found, though its harness writes another process or shell into each result."""
    guard = detector()
    for at in range(2):
        assert guard.check(A) is None
        text = str(8763 + 40 * at)
        guard.record({"output": frame["output"].format(text)} if isinstance(frame, dict) else frame.format(text))
    found = guard.check(A)
    assert found is not None
    assert (found.kind, found.count) == ("repeat", 3)
