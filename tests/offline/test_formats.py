"""Every format gives the same calls, results, rounds and turns; what is not as it should be is named."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from callfuse.model import PastCall
from callfuse.model.outcomes import OutcomeKind
from callfuse.offline.files import Reading
from callfuse.offline.formats import FORMATS, RecordFormat, format_of
from callfuse.offline.judging import judge_run
from callfuse.offline.runs import RecordedRun, Unreadable, estimate_tokens
from callfuse.policy.settings import LoopSettings
from tests.offline.reading import faults_in, runs_in, written
from tests.offline.records import (
    EVERY_FORMAT,
    EXPECTED,
    anthropic,
    calls,
    chat,
    chat_messages,
    litellm,
    otel_flat,
    otlp,
    otlp_span,
)


def plain(run: RecordedRun) -> list[list[list[tuple[str, Any, str | None]]]]:
    """A run as tools, arguments and the beginnings of results."""
    return [[[_plain(call) for call in round_.calls] for round_ in rounds] for rounds in run.turns]


def _plain(call: PastCall) -> tuple[str, Any, str | None]:
    outcome = call.outcome
    return call.name, json.loads(call.call.text or "{}"), outcome.text if outcome else None


@pytest.mark.parametrize("name", EVERY_FORMAT)
def test_every_format_gives_the_same_run(name: str, tmp_path: Path) -> None:
    """Whatever recorded it, it is one run of the same turns, rounds, calls and results."""
    (run,) = runs_in(written(tmp_path / "log.jsonl", EVERY_FORMAT[name]))
    assert plain(run) == EXPECTED


@pytest.mark.parametrize("name", EVERY_FORMAT)
def test_equal_calls_and_results_are_equal(name: str, tmp_path: Path) -> None:
    """The three searches are one call with one outcome, and the failed read is told as failed."""
    (run,) = runs_in(written(tmp_path / "log.jsonl", EVERY_FORMAT[name]))
    first, second, third, read_a, read_b, _ = run.calls()
    assert first.signature == second.signature == third.signature != read_a.signature
    outcomes = [call.outcome for call in (first, second, third, read_a, read_b)]
    kinds = [outcome.kind for outcome in outcomes if outcome]
    assert kinds[3:] == [OutcomeKind.OK, OutcomeKind.ERROR]
    assert len({outcome.digest for outcome in outcomes if outcome}) == 3


TOOLS = ["done", "read"]


@pytest.mark.parametrize(
    ("name", "tools"),
    [
        ("chat", {"tools": [{"type": "function", "function": {"name": name}} for name in TOOLS]}),
        ("responses", {"tools": [{"type": "function", "name": name} for name in TOOLS]}),
        ("anthropic", {"tools": [{"name": name, "input_schema": {}} for name in TOOLS]}),
        ("gemini", {"tools": [{"functionDeclarations": [{"name": name} for name in TOOLS]}]}),
        ("bedrock", {"toolConfig": {"tools": [{"toolSpec": {"name": name}} for name in TOOLS]}}),
        ("ollama", {"tools": [{"type": "function", "function": {"name": name}} for name in TOOLS]}),
    ],
)
def test_the_tools_of_a_body(name: str, tools: dict[str, Any], tmp_path: Path) -> None:
    """What is called and not declared was not there; where nothing is declared nobody knows."""
    record = EVERY_FORMAT[name]
    (run,) = runs_in(written(tmp_path / "log.jsonl", record | tools))
    assert run.known == frozenset({"done", "read"})
    (silent,) = runs_in(written(tmp_path / "log.jsonl", record))
    assert silent.known is None


@pytest.mark.parametrize(
    "tools",
    [
        ["done", "read"],
        ["done", {"type": "function", "function": {"name": "read"}}],
        [{"name": "done", "input_schema": {}}, {"toolSpec": {"name": "read"}}],
        [{"functionDeclarations": [{"name": "done"}, {"name": "read"}]}],
    ],
)
def test_the_tools_of_a_run(tools: list[Any], tmp_path: Path) -> None:
    """Names, or declarations of any vendor; calls of others are found as unknown."""
    (run,) = runs_in(written(tmp_path / "log.jsonl", calls() | {"tools": tools}))
    assert run.known == frozenset({"done", "read"})
    settings = LoopSettings.model_validate({"max_repeats": 0, "detectors": {"no_news": False, "same_error": False}})
    found = [one.finding.kind for one in judge_run(run, settings) if one.finding]
    assert found == ["unknown_tool"]


@pytest.mark.parametrize("tools", [None, [], ["done", {"type": "mcp"}], ["done", "tool_search"]])
def test_a_list_of_tools_that_is_not_complete(tools: object, tmp_path: Path) -> None:
    """As in a request: others may exist."""
    (run,) = runs_in(written(tmp_path / "log.jsonl", calls() | {"tools": tools}))
    assert run.known is None


@pytest.mark.parametrize(
    ("tools", "what"),
    [
        ("done", "tools is a text; use a list of names or of declarations"),
        (["done", 7], "tools[1] is the number 7; use a name or a declaration"),
    ],
)
def test_tools_that_are_none(tools: object, what: str, tmp_path: Path) -> None:
    """The record is a fault that says what is wrong."""
    (fault,) = Reading([written(tmp_path / "log.jsonl", calls() | {"tools": tools})])
    assert isinstance(fault, Unreadable)
    assert fault.what == what


def test_the_tools_of_logs(tmp_path: Path) -> None:
    """LiteLLM's parameters and OpenTelemetry's definitions, which may be cut or of a kind that names no tool."""
    log = tmp_path / "log.jsonl"
    parameters = {"tools": [{"type": "function", "function": {"name": name}} for name in TOOLS]}
    (run,) = runs_in(written(log, litellm() | {"model_parameters": parameters}))
    assert run.known == frozenset({"done", "read"})
    definitions = [{"type": "function", "name": name, "parameters": {}} for name in TOOLS]
    for listed, known in (
        (definitions, frozenset({"done", "read"})),
        (json.dumps(definitions), frozenset({"done", "read"})),
        (json.dumps(definitions)[:-9], None),
        ([*definitions, {"type": "mcp"}], None),
    ):
        span = otel_flat()
        span["attributes"] |= {"gen_ai.tool.definitions": listed}
        (run,) = runs_in(written(log, span))
        assert run.known == known
        assert plain(run) == EXPECTED


@pytest.mark.parametrize("format_", FORMATS, ids=lambda format_: format_.name)
def test_each_format_knows_some_record(format_: Any) -> None:
    """No row of the table is there in vain."""
    assert any(format_of(record) is format_ for record in EVERY_FORMAT.values())


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("calls", ("run-1", "lab", "m", False)),
        ("chat", ("log.jsonl:1", "log", "m", None)),
        ("litellm", ("trace-1", "log", "m", None)),
        ("litellm spend log", ("s-1", "log", "m", None)),
        ("opentelemetry span", ("conv-1", "log", "m", None)),
        ("opentelemetry OTLP spans", ("conv-1", "shop", "m", None)),
    ],
)
def test_labels(name: str, label: tuple[str, str, str, bool | None], tmp_path: Path) -> None:
    """Id, source, model and success are the record's own; the file's name and line stand in for what it lacks."""
    (run,) = runs_in(written(tmp_path / "log.jsonl", EVERY_FORMAT[name]))
    assert (run.id.removeprefix(f"{tmp_path}/"), run.source, run.model, run.success) == label


def test_a_wrapped_body_has_its_own_labels(tmp_path: Path) -> None:
    """Keys beside the messages name the run; 0 and 1 are verdicts too; `source` given for all wins."""
    record = {"id": 7, "source": "lab", "model": "m2", "success": 1} | {"messages": chat_messages()}
    name = written(tmp_path / "log.jsonl", record)
    (run,) = runs_in(name)
    assert (run.id, run.source, run.model, run.success) == ("7", "lab", "m2", True)
    (run,) = runs_in(name, source="mine")
    assert run.source == "mine"


def test_the_digest_of_a_cut_result_decides(tmp_path: Path) -> None:
    """Results that begin alike are other outcomes where all of them was, and equal where only the cut was another."""
    record = calls()
    for at, digest in enumerate(("aa", "bb", "aa")):
        record["calls"][at] |= {"result": f"same beginning {at}", "result_norm_sha1": digest}
    (run,) = runs_in(written(tmp_path / "log.jsonl", record))
    outcomes = [call.outcome for call in run.calls()][:3]
    one, two, three = (outcome.digest for outcome in outcomes if outcome)
    assert one == three != two
    assert outcomes[0] is not None
    assert outcomes[0].text == "same beginning 0"


def test_the_digest_of_a_whole_result_does_not_count(tmp_path: Path) -> None:
    """It knows no numbers: where the text is whole, by its SHA-1, the text decides."""
    record = calls()
    for at, text in enumerate(("Row 3 selected", "Row 4 selected", "Row 4 selected")):
        whole = hashlib.sha1(text.encode()).hexdigest()[:16]
        record["calls"][at] |= {"result": text, "result_sha1": whole, "result_norm_sha1": "aa"}
    (run,) = runs_in(written(tmp_path / "log.jsonl", record))
    one, two, three = [outcome.digest for call in run.calls() if (outcome := call.outcome)][:3]
    assert one != two == three


def test_calls_without_turns_are_rounds_of_their_own(tmp_path: Path) -> None:
    """Where nobody says which calls came together, none did."""
    listed = [{"name": "a", "arguments": {"x": 1}, "result": {"n": 2}}, {"name": "b"}]
    (run,) = runs_in(written(tmp_path / "log.jsonl", {"calls": listed}))
    assert plain(run) == [[[("a", {"x": 1}, '{"n":2}')], [("b", {}, None)]]]
    assert [call.id for call in run.calls()] == ["#1", "#2"]


def test_wide_integers_are_not_merged(tmp_path: Path) -> None:
    """Ids of 30 digits that differ in the last are different calls, also where arguments are no text."""
    body = b"""{"messages": [{"role": "assistant", "content": [
        {"type": "tool_use", "id": "1", "name": "get", "input": {"id": 123456789012345678901234567890}},
        {"type": "tool_use", "id": "2", "name": "get", "input": {"id": 123456789012345678901234567891}}]}]}"""
    (run,) = runs_in(written(tmp_path / "log.jsonl", body.replace(b"\n", b"")))
    one, other = run.calls()
    assert one.signature != other.signature


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        (b'{"calls": [', "line 1: is not JSON: "),
        ("text", "line 1: holds a text; use an object, or a list of messages"),
        (17, "line 1: holds the number 17; use an object"),
        ([1, 2], "line 1: an element is the number 1; use objects"),
        ({}, "line 1: is an empty object, in none of the known formats (calls, opentelemetry, litellm, "),
        ({"a": 1, "b": 2}, "line 1: is an object with the keys a, b, in none of the known formats"),
        ({"calls": [3]}, "line 1: calls[0] is the number 3; use an object"),
        ({"calls": [{"name": None}]}, "line 1: calls[0].name = null: use a text"),
        ({"calls": [{"name": "a", "turn": "1"}]}, "line 1: calls[0].turn = '1': use a whole number"),
        ({"calls": [{"name": "a", "is_error": "no"}]}, "line 1: calls[0].is_error = 'no': use true, false or null"),
        ({"calls": [{"name": "a", "result_sha1": 1}]}, "line 1: calls[0].result_sha1 = 1: use a text"),
        ({"calls": [{"name": "a", "result_norm_sha1": 1}]}, "line 1: calls[0].result_norm_sha1 = 1: use a text"),
        (calls() | {"success": "yes"}, "line 1: success = 'yes': use true, false or null"),
        (calls() | {"id": ["a"]}, "line 1: id = ['a']: use a text"),
        (litellm() | {"messages": {}, "response": {}}, "line 1: has no messages: LiteLLM keeps them where"),
        ({"attributes": {"gen_ai.input.messages": '[{"ro'}}, "line 1: gen_ai.input.messages is not JSON (cut by the"),
        ({"attributes": {"gen_ai.input.messages": 1}}, "line 1: gen_ai.input.messages is the number 1; use a list"),
        ({"attributes": {"gen_ai.input.messages": [{"role": "user", "content": ""}]}}, "line 1: a message has no part"),
        ({"attributes": {"gen_ai.input.messages": [{"parts": [5]}]}}, "line 1: a part is the number 5; use an object"),
    ],
)  # fmt: skip
def test_a_bad_record_is_named(record: Any, fault: str, tmp_path: Path) -> None:
    """The fault says what is wrong, with which value, and what would be right; the next record is read."""
    name = written(tmp_path / "log.jsonl", record, chat())
    faults = faults_in(name)
    assert faults[0].startswith(fault)
    assert len(faults) == (2 if isinstance(record, list) else 1)


def test_a_reader_that_stumbles_leaves_the_other_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of a reader is the record's fault, and says which reader it was."""

    def stumble(value: Any, text: bytes) -> Any:
        raise KeyError(value["id"])

    odd = RecordFormat("odd", lambda record: isinstance(record, dict) and "odd" in record, stumble)
    monkeypatch.setattr("callfuse.offline.formats.FORMATS", (odd, *FORMATS))
    name = written(tmp_path / "log.jsonl", {"odd": True, "id": "x7"}, chat())
    assert faults_in(name) == ["line 1: cannot be read as odd: KeyError: 'x7'"]
    assert [isinstance(one, RecordedRun) for one in Reading([name])] == [False, True]


def test_one_bad_span_leaves_the_others(tmp_path: Path) -> None:
    """A batch in which one span's messages were cut still gives the runs of the others."""
    record = otlp_span()
    spans = record["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans.insert(0, {"traceId": "def", "attributes": otlp({"gen_ai.input.messages": '[{"role": "us'})})
    name = written(tmp_path / "log.jsonl", record)
    assert [fault.partition(" (")[0] for fault in faults_in(name)] == ["line 1: gen_ai.input.messages is not JSON"]
    assert [plain(one) for one in Reading([name]) if isinstance(one, RecordedRun)] == [EXPECTED]


def test_a_vendor_s_own_tools_are_no_calls(tmp_path: Path) -> None:
    """What the vendor ran itself is not the client's."""
    history = [
        {"role": "user", "parts": [{"type": "text", "content": "hi"}]},
        {"role": "assistant", "parts": [
            {"type": "tool_call", "id": "1", "name": "web_search", "arguments": {}, "builtin": True},
            {"type": "server_tool_call", "id": "2", "name": "code"},
            {"type": "tool_call", "id": "3", "name": "mine", "arguments": None}]},
    ]  # fmt: skip
    record = {"attributes": {"gen_ai.input.messages": history}}
    (run,) = runs_in(written(tmp_path / "log.jsonl", record))
    assert [call.name for call in run.calls()] == ["mine"]


def test_tokens_are_characters_by_four(tmp_path: Path) -> None:
    """Names, arguments and texts of results count; images do not."""
    image = [{"type": "text", "text": "12345678"}, {"type": "image", "source": {"data": "x" * 1000}}]
    record = anthropic()
    record["messages"][2]["content"][0]["content"] = image
    (run,) = runs_in(written(tmp_path / "log.jsonl", record))
    first, second, *_, last = run.calls()
    assert estimate_tokens(first) == -(-(len('search{"q":"x"}') + 8) // 4)
    assert estimate_tokens(second) == -(-(len('search{"q":"x"}') + len("nothing found")) // 4)
    assert estimate_tokens(last) == -(-len("done{}") // 4)
