"""What callfuse's forerunners promise, row by row: on the wire, streamed as well as whole, or in process.

000: tiers, modes, log lines. 001: similarity, texts, tools, counts, the tracker. 002: window, patterns, callback,
statistics. 003: warnings in results, names beside them. 004: the previous result, the event, results without data.
"""

import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from callfuse import (
    CallFuseMiddleware,
    GuardedTools,
    LoopDetector,
    ToolCall,
    ToolCallLoopConfig,
    ToolCallTracker,
    ToolLoopMode,
    with_loop_hint,
)
from callfuse.observe.events import FindingSeen
from callfuse.policy.texts import LOOP_HINT
from tests.inprocess.agents import go
from tests.inprocess.agents import settings as block_of
from tests.support.asgi import JSON_REQUEST, Exchange, Headers, Request, drive
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import MARK, ask, given_log, reply, streamed_and_whole
from tests.support.model import Answer, Call, History, Round, User
from tests.support.observing import Observed
from tests.support.plain import ARGUMENTS, RESULT, again, elsewhere, new_call, saying, spin
from tests.support.scripted import ScriptedApp, play

MODEL = "openai:gpt-test"
three_vendors = pytest.mark.parametrize(
    "kit", [kit for kit in KITS if kit.name in ("openai-chat", "anthropic", "gemini")][:3], ids=lambda kit: kit.name
)
CHAT = KITS[0]
SESSION: Headers = (*JSON_REQUEST, (b"authorization", b"Bearer sk-one"), (b"x-callfuse-session-id", b"session-one"))


class Fuse:
    """A guard that serves one exchange after the other."""

    def __init__(
        self, kit: DialectKit = CHAT, *, stream: bool = True, block: dict[str, Any] | None = None, **more: Any
    ) -> None:
        self.kit, self.stream = kit, stream
        self.app: ScriptedApp = play()
        self.guard = CallFuseMiddleware(self._call, {"tool_call_loop": {**(block or {}), **more}})
        self.seen = Observed()
        self.guard.bus.add(self.seen)

    async def _call(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)

    async def send(self, history: History, *answers: Answer, headers: Headers = JSON_REQUEST) -> Exchange:
        """An exchange: what the client gets."""
        self.app = play(*(reply(self.kit, one, stream=self.stream) for one in answers))
        return await drive(self.guard, ask(self.kit, history, stream=self.stream, headers=headers))

    def calls(self, exchange: Exchange) -> list[str]:
        """The ids of the calls that the client's SDK reads."""
        return [call.id for view in self.kit.sdk(exchange.body, stream=self.stream) for call in view.calls]

    async def stops(self, history: History, headers: Headers = JSON_REQUEST) -> bool:
        """Whether the call that came before is withheld for good."""
        exchange = await self.send(history, again(), again(tag="second"), headers=headers)
        return self.calls(exchange) == []


def turns(*calls: tuple[str, str], results: Sequence[str] = (RESULT,)) -> History:
    """These calls (tool, arguments), a round each, and what came of them, by turns."""
    rounds = [
        Round((Call(f"call_{at}", tool, (text,)),), (results[at % len(results)],))
        for at, (tool, text) in enumerate(calls)
    ]
    return History((User("Find it."), *rounds))


# 000


async def test_a_session_wins_over_a_model_and_a_model_over_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Server: environment; backend and model; session: a command."""
    monkeypatch.setenv("TOOL_LOOP_MODE", "break")
    monkeypatch.setenv("TOOL_LOOP_MAX_REPEATS", "4")
    assert not await Fuse().stops(spin(2))
    assert await Fuse().stops(spin(3))
    of_model = {MODEL: {"max_repeats": 3}}
    assert await Fuse(models=of_model).stops(spin(2))
    one = Fuse(models=of_model)
    await one.send(History((User("!/set(tool-loop-max-repeats=5)"),)), saying("Ok."), headers=SESSION)
    assert not await one.stops(spin(3), SESSION)
    assert await one.stops(spin(4), SESSION)
    await one.send(History((User("!/unset(tool-loop-max-repeats)"),)), saying("Ok."), headers=SESSION)
    assert await one.stops(spin(2), SESSION)


async def test_the_ttl_resets_the_count() -> None:
    """A pause longer than it ends the streak; the environment's other variables hold as well."""
    now = [0.0]
    detector = LoopDetector(block_of(ttl_seconds=120, mode="break"), clock=lambda: now[0])
    kinds = []
    for pause in (0, 1, 121, 1, 1):
        now[0] += pause
        found = detector.check(ToolCall("", "search", ARGUMENTS))
        kinds.append(found is not None)
    assert kinds == [False, False, False, False, True]


@three_vendors
@streamed_and_whole
async def test_only_consecutive_calls_count(kit: DialectKit, stream: bool) -> None:
    """Another call between two equal ones begins anew."""
    same, other = ("search", ARGUMENTS), ("lookup", '{"id": 1}')
    assert not await Fuse(kit, stream=stream, mode="break").stops(turns(same, same, other))
    assert await Fuse(kit, stream=stream, mode="break").stops(turns(other, same, same))


@three_vendors
@streamed_and_whole
async def test_break_does_not_forward_the_call(kit: DialectKit, stream: bool) -> None:
    """The client reads tool, count and window in an ordinary message; the vendor is asked once."""
    one = Fuse(kit, stream=stream, mode="break")
    exchange = await one.send(spin(2), again())
    (view,) = kit.sdk(exchange.body, stream=stream)
    assert view.calls == ()
    assert all(word in view.text for word in (MARK, "search", "3", "300 s"))
    assert len(one.app.heard) == 1


async def test_break_may_end_with_an_error() -> None:
    """The finish reason `error` is a setting."""
    exchange = await Fuse(stream=False, mode="break", finish_reason="error").send(spin(2), again())
    assert json.loads(exchange.body)["choices"][0]["finish_reason"] == "error"


@three_vendors
@streamed_and_whole
async def test_chance_then_break(kit: DialectKit, stream: bool) -> None:
    """Guidance first; another call is allowed, the same one again is stopped."""
    one = Fuse(kit, stream=stream, mode="chance_then_break")
    exchange = await one.send(spin(2), again(), elsewhere())
    assert one.calls(exchange) == ["call_second"]
    assert b"reflect" in one.app.heard[1].body
    one = Fuse(kit, stream=stream, mode="chance")
    exchange = await one.send(spin(2), again(), again(tag="second"))
    assert one.calls(exchange) == []
    assert len(one.app.heard) == 2


async def test_disabled_costs_nothing() -> None:
    """The app gets the server's own `receive` and `send`: not one byte is looked at."""
    got: list[Any] = []

    async def app(*given: Any) -> None:
        got.extend(given)

    async def receive() -> Any:
        raise AssertionError("nobody reads")

    async def send(_: Any) -> None:
        raise AssertionError("nobody writes")

    scope = {"type": "http", "method": "POST", "path": CHAT.path, "headers": []}
    await CallFuseMiddleware(app, {"tool_call_loop": {"enabled": False}})(scope, receive, send)
    assert got[1:] == [receive, send]


@streamed_and_whole
async def test_the_warning_line_with_all_its_fields_and_the_debug_detail(stream: bool) -> None:
    """Session, tool, count, window, model, backend, action and fifty characters; all arguments at DEBUG alone."""
    with given_log(logging.DEBUG) as log:
        await Fuse(stream=stream, mode="break").send(spin(2), again(), headers=SESSION)
    (line,) = [text for _, level, text in log if level == logging.WARNING]
    signature = 'search:{"query": "zebra crossing", "limit": 5}'[:50]
    assert line.startswith(
        "Tool call loop detected in session session-one: tool=search, repeats=3/3, window=300s, model=gpt-test, "
        f"backend=openai, action=block, signature={signature}..."
    )
    assert any(ARGUMENTS in text for _, level, text in log if level == logging.DEBUG)


# 001


@three_vendors
@pytest.mark.parametrize(
    ("algorithm", "threshold", "queries"),
    [
        ("levenshtein", 0.9, ("population of France 2023", "France population 2023", "population of France 2023")),
        ("levenshtein", 0.8, ("population of Norway", "population of Norway?", "populations of Norway")),
        ("jaccard", 0.7, ("population of France 2023", "France population 2023", "population France of 2023")),
    ],
)
async def test_similar_calls_are_found(
    kit: DialectKit, algorithm: str, threshold: float, queries: tuple[str, str, str]
) -> None:
    """By either algorithm, from its threshold on; the threshold may stand in the section `similarity`."""
    texts = [json.dumps({"query": query}) for query in queries]
    history = turns(*[("search", text) for text in texts[:2]])
    pending = saying(Call("call_next", "search", (texts[2],)))
    how = {"algorithm": algorithm, "normalize_whitespace": True, "ignore_case": True}
    section = {"similarity": {**how, "threshold": threshold}}
    for block in ({"similarity_threshold": threshold, "similarity": how}, section, {"similarity": how}):
        one = Fuse(kit, block=block | {"mode": "block"})
        assert (one.calls(await one.send(history, pending)) == []) is ("threshold" in str(block))


@three_vendors
@streamed_and_whole
@pytest.mark.parametrize(
    ("mode", "delivered", "asked"),
    [("block", [], 1), ("warn", ["call_first"], 1), ("chance_then_block", ["call_second"], 2)],
)
async def test_block_warn_and_chance_then_block(
    kit: DialectKit, stream: bool, mode: str, delivered: list[str], asked: int
) -> None:
    """What each does about the first detection."""
    one = Fuse(kit, stream=stream, mode=mode)
    assert one.calls(await one.send(spin(2), again(), elsewhere())) == delivered
    assert len(one.app.heard) == asked


@three_vendors
async def test_custom_messages(kit: DialectKit) -> None:
    """Of a block, a warning and guidance."""
    own = {
        "block": "Blocked.",
        "warning": "Warning: {count} times.",
        "guidance": "Think, {tool_name}.",
    }
    exchange = await Fuse(kit, mode="block", error_messages=own).send(spin(2), again())
    assert "Blocked." in kit.sdk(exchange.body, stream=True)[0].text
    warned = Fuse(kit, mode="warn", error_messages=own)
    await warned.send(spin(3), saying("Ok."))
    assert b"Warning: 3 times." in warned.app.heard[0].body
    steered = Fuse(kit, mode="chance_then_block", error_messages=own)
    await steered.send(spin(2), again(), elsewhere())
    assert b"Think, search." in steered.app.heard[1].body


@three_vendors
async def test_per_tool_settings(kit: DialectKit) -> None:
    """One tool earlier, another later."""
    per_tool = {"search": {"max_repeats": 2}, "get_weather": {"max_repeats": 5}}
    assert await Fuse(kit, mode="block", per_tool=per_tool).stops(spin(1))
    assert not await Fuse(kit, mode="block", per_tool={"search": per_tool["get_weather"]}).stops(spin(3))


async def test_calls_warnings_blocks_and_mitigations_are_counted() -> None:
    """Each is an event, and what was done is counted."""
    one = Fuse(mode="graduated")
    for rounds in (2, 3, 4):
        await one.send(spin(rounds), again(), headers=SESSION)
    steered = Fuse(mode="chance_then_block")
    await steered.send(spin(2), again(), elsewhere(), headers=SESSION)
    counts = one.guard.counts
    assert (counts.of("findings", "warn"), counts.of("findings", "block")) == (2, 1)
    assert steered.guard.counts.of("mitigations", "changed") == 1
    assert one.seen.names().count("call") == 3


async def test_log_levels() -> None:
    """All calls at DEBUG, what is found first at WARNING, a warning that goes on at INFO; no ERROR."""
    one = Fuse(mode="warn")
    with given_log(logging.DEBUG) as log:
        for rounds in (1, 2, 3):
            await one.send(spin(rounds), again(tag=f"s{rounds}"), headers=SESSION)
    found = [level for _, level, text in log if text.startswith("Tool call loop detected")]
    assert found == [logging.WARNING, logging.INFO]
    assert len([text for _, level, text in log if level == logging.DEBUG and text.startswith("Call in session")]) == 3
    assert not [text for _, level, text in log if level >= logging.ERROR]


def test_the_tracker_as_it_was_written() -> None:
    """`track_tool_call(name, arguments) -> (blocked, reason, count)`, with a configuration made in code."""
    config = ToolCallLoopConfig(enabled=True, max_repeats=3, ttl_seconds=300, mode=ToolLoopMode.CHANCE_THEN_BLOCK)
    tracker = ToolCallTracker(config)
    answers = [tracker.track_tool_call("search_web", '{"query": "population of France 2023"}') for _ in range(4)]
    assert [(blocked, count) for blocked, _, count in answers] == [(False, 1), (False, 2), (True, 3), (True, 4)]
    assert [reason is None for _, reason, _ in answers] == [True, True, False, False]


async def test_a_session_is_configured_in_code() -> None:
    """As by its commands."""
    one = Fuse(mode="block")
    config = ToolCallLoopConfig(enabled=True, max_repeats=4, ttl_seconds=300, mode=ToolLoopMode.BLOCK)
    await one.guard.set_session("session-one", config, headers=SESSION)
    assert not await one.stops(spin(2), SESSION)
    assert await one.stops(spin(3), SESSION)


@pytest.mark.parametrize("key", ["tool_loop_{}", "tool-loop-{}"])
async def test_a_session_is_configured_by_either_spelling(key: str) -> None:
    """Of one message, with quotes or without."""
    one = Fuse(mode="block")
    names = [key.format(name) for name in ("max_repeats" if "_" in key else "max-repeats", "mode")]
    text = f'!/set({names[0]}=4)\n!/set({names[1]}="warn")'
    await one.send(History((User(text),)), saying("Ok."), headers=SESSION)
    assert not await one.stops(spin(5), SESSION)
    assert not one.seen.of(FindingSeen)[0].verdict.withholds


@three_vendors
async def test_error_recovery_loops(kit: DialectKit) -> None:
    """The same file under ever other names, and the same failure: the fourth result has a warning."""
    paths = ("/tmp/data.csv", "data.csv", "./data.csv", "../data.csv")
    calls = [("read_file", json.dumps({"path": path})) for path in paths]
    for rounds, told in ((3, False), (4, True)):
        one = Fuse(kit)
        failing = turns(*calls[:rounds], results=["Error: the file does not exist"])
        await one.send(failing, saying("Ok."))
        assert (MARK.encode() in one.app.heard[0].body) is told


# 002


def test_the_third_equal_call_is_found() -> None:
    """`max_duplicates: 2` is `max_repeats: 3`: the pending call counts."""
    assert go(LoopDetector(block_of(mode="warn")), *["a=x"] * 4) == ["-", "-", "warn", "warn"]


@three_vendors
@streamed_and_whole
async def test_a_pattern_with_its_tools_and_repetitions(kit: DialectKit, stream: bool) -> None:
    """A -> B -> A -> B: found in the second lap, and named."""
    one, other = ("search", ARGUMENTS), ("lookup", '{"id": 7}')
    fuse = Fuse(kit, stream=stream, mode="block")
    pending = saying(Call("call_next", "lookup", ('{"id": 7}',)))
    assert fuse.calls(await fuse.send(turns(one, other, one), pending)) == []
    found = fuse.seen.one(FindingSeen).verdict.finding
    assert (found.kind, found.pattern, found.repetitions) == ("cycle", ("search", "lookup"), 2)
    detector = LoopDetector(block_of(mode="block"))
    seen = [detector.check(ToolCall("", tool, text)) for tool, text in (one, other, one, other)]
    assert seen[3] is not None
    assert (seen[3].pattern, seen[3].repetitions) == (("search", "lookup"), 2)


@three_vendors
async def test_a_graduated_response(kit: DialectKit) -> None:
    """Warn, warn, terminate: by its name, and as a list in the words of others."""
    for mode in ("graduated", ["warn", "warn", "terminate"]):
        one = Fuse(kit, mode=mode)
        actions = []
        for rounds in (2, 3, 4):
            await one.send(spin(rounds), again(), headers=SESSION)
            actions.append(one.seen.of(FindingSeen)[-1].action)
        assert actions == ["warn", "warn", "block"]


def test_old_calls_leave_the_window() -> None:
    """What came before it is new again."""
    far = [f"b{at}=y" for at in range(12)]
    assert go(LoopDetector(block_of(mode="warn")), "a=x", *far, "a=x", *far, "a=x")[-1] == "-"


@three_vendors
@pytest.mark.parametrize(("answer", "delivered"), [(True, ["call_first"]), (False, []), (None, ["call_second"])])
async def test_a_callback_goes_on_or_stops(kit: DialectKit, answer: bool | None, delivered: list[str]) -> None:
    """True and False, and None for what the ladder says; it sees suggestion and confidence."""
    seen: list[tuple[str, float]] = []

    def on_loop(event: Any) -> bool | None:
        seen.append((event.suggestion, event.finding.confidence))
        return answer

    one = Fuse(kit)
    one.guard = CallFuseMiddleware(one._call, {"tool_call_loop": {"mode": "chance"}}, on_loop=on_loop)
    assert one.calls(await one.send(spin(2), again(), elsewhere())) == delivered
    assert seen == [("Try other arguments or another tool, or continue with what is already known.", 1.0)]


def test_clear_resets_and_stats_count() -> None:
    """Checks, detections by kind, average confidence, and false positives that somebody has reported."""
    detector = LoopDetector(block_of(mode="graduated"))
    assert go(detector, *["a=x"] * 3)[-1] == "warn"
    found = detector.check(ToolCall("", "a", "{}"))
    assert found is None
    detector.clear()
    assert go(detector, *["a=x"] * 3) == ["-", "-", "warn"]
    last = detector.check(ToolCall("", "a", '{"n":0}'))
    assert last is not None
    detector.report_false_positive(last)
    stats = detector.stats
    assert (stats.calls, stats.detections, stats.by_kind["repeat"], stats.false_positives) == (4, 2, 2, 1)
    assert stats.average_confidence == 1.0


@three_vendors
async def test_similar_arguments_field_by_field(kit: DialectKit) -> None:
    """Level 3; lists in any order where a setting says so."""
    texts = [json.dumps({"tags": tags, "note": "of the zebra"}) for tags in (["a", "b"], ["b", "a"], ["a", "b"])]
    history = turns(*[("search", text) for text in texts[:2]])
    pending = saying(Call("call_next", "search", (texts[2],)))
    for ignored in (True, False):
        how = {"similarity_threshold": 0.9, "similarity": {"ignore_array_order": ignored}}
        one = Fuse(kit, block=how, mode="block")
        assert (one.calls(await one.send(history, pending)) == []) is ignored


@three_vendors
async def test_different_calls_with_the_same_result(kit: DialectKit) -> None:
    """Level 4: `stagnation`, where it is asked for, and the same error on its own."""
    calls = [("search", json.dumps({"query": query})) for query in ("foo", "fo0", "f00")]
    one = Fuse(kit, mode="block", detectors={"stagnation": 4})
    assert one.calls(await one.send(turns(*calls), saying(new_call()))) == []
    failing = turns(*calls, ("search", '{"query": "F00"}'), results=["Error: no such index: zebras"])
    other = Fuse(kit, mode="warn")
    await other.send(failing, saying("Ok."))
    assert MARK.encode() in other.app.heard[0].body


@three_vendors
async def test_loop_awareness_in_tool_descriptions(kit: DialectKit) -> None:
    """On the wire by a setting, in process by a function: the same words."""
    one = Fuse(kit, mode="block", tool_hint=True)
    await one.send(spin(1), saying("Ok."))
    assert LOOP_HINT.encode() in one.app.heard[0].body
    assert with_loop_hint("Searches.") == f"Searches.\n\n{LOOP_HINT}"


# 003


@three_vendors
@streamed_and_whole
async def test_the_warning_stands_in_the_result_with_the_running_count(kit: DialectKit, stream: bool) -> None:
    """The call is not blocked, and each repeat is told with its number."""
    one = Fuse(kit, stream=stream, mode="warn")
    assert one.calls(await one.send(spin(4), again())) == ["call_first"]
    texts = [text for _, text in kit.results(one.app.heard[0].body)]
    assert [MARK in text for text in texts] == [False, False, True, True]
    assert ["call 3 of search" in texts[2], "call 4 of search" in texts[3]] == [True, True]
    assert all(text.startswith(RESULT) or RESULT in text for text in texts)


async def test_the_warning_is_in_vertex_s_requests() -> None:
    """Whose paths name project and place."""
    kit = next(kit for kit in KITS if kit.name == "gemini")
    path = "/v1/projects/p/locations/l/publishers/google/models/gemini-test:streamGenerateContent"
    body = kit.request(spin(4), stream=True)
    one = Fuse(kit, mode="warn")
    one.app = play(reply(kit, again(), stream=True))
    await drive(one.guard, Request(path, body, JSON_REQUEST, query=b"alt=sse"))
    assert MARK.encode() in one.app.heard[0].body


async def test_tool_names_beside_results() -> None:
    """Where the format has a key for them."""
    one = Fuse(mode="block", tool_names=True)
    await one.send(spin(1), saying("Ok."))
    (result,) = [message for message in json.loads(one.app.heard[0].body)["messages"] if message["role"] == "tool"]
    assert (result["name"], result["content"]) == ("search", RESULT)


# 004


@three_vendors
@streamed_and_whole
async def test_the_previous_result_in_place_of_the_call(kit: DialectKit, stream: bool) -> None:
    """The model reads what the same call has returned, in the operator's words."""
    message = "You already called {tool_name} and got: {previous_result}. Use this data."
    one = Fuse(kit, stream=stream, mode="chance_then_block", max_repeats=2, error_messages={"guidance": message})
    assert one.calls(await one.send(spin(1), again(), elsewhere())) == ["call_second"]
    assert f"You already called search and got: {RESULT}. Use this data.".encode() in one.app.heard[1].body


def test_the_previous_result_is_given_back_in_process() -> None:
    """The tool runs twice; from then on its result is given back with a text."""
    runs: list[str] = []

    def search(query: str) -> str:
        runs.append(query)
        return '{"results": []}'

    tools = GuardedTools({"search": search}, LoopDetector(block_of(mode="chance")))
    results = [tools.run([ToolCall(str(at), "search", {"query": "zebra"})])[0] for at in range(4)]
    assert len(runs) == 2
    assert all(result.text.startswith('{"results": []}') for result in results)
    assert MARK in results[2].text


@three_vendors
async def test_the_event_of_a_detection(kit: DialectKit) -> None:
    """It has the tool, the arguments and the previous result."""
    one = Fuse(kit, mode="block")
    await one.send(spin(2), again())
    verdict = one.seen.one(FindingSeen).verdict
    assert (verdict.call.name, json.loads(verdict.call.text)) == ("search", json.loads(ARGUMENTS))
    assert verdict.finding.previous == RESULT


@three_vendors
@pytest.mark.parametrize(("result", "is_empty"), [("[]", True), ("No results found.", True), ("Paris", False)])
async def test_no_data_results(kit: DialectKit, result: str, is_empty: bool) -> None:
    """A result without data is told from one with."""
    one = Fuse(kit, mode="chance")
    same = ("search", ARGUMENTS)
    await one.send(turns(same, same, results=[result]), again(), elsewhere())
    assert (b"An empty result is an answer" in one.app.heard[1].body) is is_empty
    detector = LoopDetector(block_of(mode="block"))
    for _ in range(2):
        detector.check(ToolCall("", "search", ARGUMENTS))
        detector.record(result)
    found = detector.check(ToolCall("", "search", ARGUMENTS))
    assert found is not None
    assert found.previous is not None
    assert found.previous.outcome == ("no_data" if is_empty else "ok")


async def test_off_for_one_agent() -> None:
    """In process by its detector; on the wire by a tool, a model, or headers of the agent's own."""
    assert go(LoopDetector(enabled=False), *["a=x"] * 5) == ["-"] * 5
    assert not await Fuse(mode="block", models={MODEL: {"enabled": False}}).stops(spin(4))
    assert not await Fuse(mode="block", per_tool={"search": {"enabled": False}}).stops(spin(4))
    own = (*JSON_REQUEST, (b"x-callfuse-enabled", b"false"))
    assert not await Fuse(mode="block", header_overrides=True).stops(spin(4), own)


@three_vendors
async def test_other_arguments_and_other_tools_are_other_calls(kit: DialectKit) -> None:
    """The same arguments to another tool, and other arguments to the same tool."""
    calls = [("search", '{"id": 1}'), ("lookup", '{"id": 1}'), ("search", '{"id": 2}'), ("read_file", '{"id": 1}')]
    one = Fuse(kit, mode="block")
    pending = saying(Call("call_next", "search", ('{"id": 3}',)))
    assert one.calls(await one.send(turns(*calls), pending)) == ["call_next"]


async def test_tools_that_change_state_may_be_called_again() -> None:
    """Polling and counting are no loops, where settings say so."""
    history = turns(*[("search", ARGUMENTS)] * 8, results=["1", "2", "3", "4", "5", "6", "7", "8"])
    assert not await Fuse(mode="block", per_tool={"search": {"changes_state": True}}).stops(history)
    assert not await Fuse(mode="block", per_tool={"search": {"poller": True}}).stops(spin(4))
