"""The guardrail answers as LiteLLM's generic guardrail API asks, by the judge and the settings of the guard."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callfuse import CallFuseMiddleware, ConfigError
from callfuse.admin import AdminApp
from callfuse.config.environment import GUARDRAIL_KEY
from callfuse.detect import can_fire
from callfuse.integrations import guardrail
from callfuse.integrations.guardrail import judge, rewritten
from callfuse.model import MARKER
from callfuse.observe.events import ActionTaken, CallSeen, FailedOpen, FindingSeen, NotGuarded
from callfuse.offline import judging
from callfuse.offline.joining import run_of
from callfuse.offline.judging import Judged, judge_run
from callfuse.offline.memory import VerdictMemory
from callfuse.offline.runs import RecordedConversation, RecordedRun, RunLabel
from callfuse.policy.presets import MODES
from callfuse.policy.settings import LoopSettings
from tests.admin.asking import BEARER, PATH, TOKEN, Guarded
from tests.support.asgi import Exchange, Headers, Request, drive
from tests.support.observing import Observed

TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]
RESULT = "no results"
KEY = "the-key-of-litellm"
NONE = {"action": "NONE"}


def history(rounds: int, *, task: str = "find it", first: int = 0, width: int = 1) -> list[dict[str, Any]]:
    """A task, and this many rounds of the same call (or of `width` calls) with the same result."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": task}]
    for at in range(first, first + rounds):
        functions = [{"name": "search", "arguments": json.dumps({"query": f"x{n or ''}"})} for n in range(width)]
        calls = [{"id": f"call_{at}_{n}", "type": "function", "function": one} for n, one in enumerate(functions)]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": RESULT} for call in calls]
    return messages


def question(messages: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """What LiteLLM asks before a chat completion with this history."""
    asked = {
        "input_type": "request",
        "litellm_call_id": "1",
        "litellm_trace_id": "2",
        "structured_messages": messages,
        "images": None,
        "tools": TOOLS,
        "texts": [one["content"] for one in messages if one["content"] is not None],
        "request_data": {"user_api_key_hash": "hash of a key"},
        "request_headers": {"authorization": "[present]", "user-agent": "agent/1"},
        "litellm_version": "1.106.2",
        "additional_provider_specific_params": {},
        "tool_calls": None,
        "model": "gpt-4o",
    }
    return asked | changes


async def post(guarded: Guarded, body: object, headers: Headers = BEARER, path: str = "guardrail") -> Exchange:
    """What LiteLLM posts, as JSON unless it is bytes."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await drive(guarded.app, Request(f"{PATH}/{path}", content, headers))


async def asked(guarded: Guarded, body: object) -> Any:
    """The answer to a question, which is 200 whatever it says."""
    exchange = await post(guarded, body)
    assert exchange.status == 200, exchange.body
    return json.loads(exchange.body)


def of(config: dict[str, Any] | None = None) -> tuple[Guarded, Observed]:
    """A guard with these settings under `tool_call_loop`, and what it tells."""
    guarded, seen = Guarded({"tool_call_loop": config or {}}), Observed()
    guarded.fuse.bus.add(seen)
    return guarded, seen


async def test_a_loop_is_warned_of_and_then_blocked() -> None:
    """The third equal call gets a warning behind its result, and nothing else changes; the fourth ends the request."""
    guarded, _ = of()
    assert await asked(guarded, question(history(2))) == NONE
    warned = await asked(guarded, question(history(3)))
    assert warned["action"] == "GUARDRAIL_INTERVENED"
    *others, last = warned["texts"]
    assert others == ["find it", RESULT, RESULT]
    assert last.startswith(f"{RESULT}\n\n{MARKER} This is call 3 of search")
    blocked = await asked(guarded, question(history(4)))
    assert blocked["action"] == "BLOCKED"
    assert blocked["blocked_reason"].startswith(f"{MARKER} Stopped a tool call loop: this was call 4 of search")
    assert RESULT in blocked["blocked_reason"]
    assert "not run" not in blocked["blocked_reason"]


@pytest.mark.parametrize("mode", ["observe", "warn", "block", "chance_then_block", "graduated", "unattended"])
@pytest.mark.parametrize("rounds", range(1, 8))
def test_it_finds_what_a_replay_finds(mode: str, rounds: int) -> None:
    """The last call of a history is blocked where a replay of it blocks, warned of where that withholds or warns."""
    settings = LoopSettings.model_validate({"mode": mode})
    body = {"messages": history(rounds), "tools": TOOLS, "model": "gpt-4o"}
    request = guardrail._CHAT.read_request(json.dumps(body).encode(), body)
    assert request is not None
    *_, last = judge_run(run_of(RecordedConversation(RunLabel(), request)), settings)
    opinion = judge(question(history(rounds)), settings)
    assert opinion is not None
    if last.verdict is None or not (last.verdict.warns or last.verdict.withholds):
        assert opinion.answer == NONE
    elif last.verdict.blocks:
        assert opinion.answer["action"] == "BLOCKED"
    else:
        assert MARKER in opinion.answer["texts"][-1]


async def test_warnings_stay_where_they_are() -> None:
    """A later request gets the same warnings at the same places, so that a prompt cache holds; what was blocked before
    the user spoke is a warning then, and the request goes on."""
    guarded, _ = of()
    before = history(4)
    warned = (await asked(guarded, question(before[:-2])))["texts"]
    later = await asked(guarded, question([*before, {"role": "user", "content": "go on"}]))
    assert later["action"] == "GUARDRAIL_INTERVENED"
    assert later["texts"][: len(warned)] == warned
    assert MARKER in later["texts"][len(warned)]
    again = [*before, *history(1, task="go on", first=4)]
    assert (await asked(guarded, question(again)))["texts"][:-1] == later["texts"]


async def test_a_result_that_is_no_text_of_litellm_s_stays() -> None:
    """For the Responses API LiteLLM shows no results among the texts: the model cannot be told, so the finding is only
    observed; a block needs no text."""
    guarded, seen = of()
    assert await asked(guarded, question(history(3), texts=["find it"])) == NONE
    assert [event.action for event in seen.of(FindingSeen)] == ["observe"]
    assert not seen.of(ActionTaken)
    assert (await asked(guarded, question(history(4), texts=["find it"])))["action"] == "BLOCKED"


def test_the_text_of_the_right_message_is_changed() -> None:
    """Others that are equal, of a user or of an earlier result, and texts that LiteLLM shows in addition, stay."""
    before = [{"role": role, "content": "same"} for role in ("user", "tool", "tool", "user")]
    after = [*before[:2], {"role": "tool", "content": "same, warned"}, before[3]]
    shown = ["system", "same", "same", "same", "same"]
    assert rewritten(shown, before, after) == ["system", "same", "same", "same, warned", "same"]
    parts = [{"role": "tool", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    changed = [{"role": "tool", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "c"}]}]
    assert rewritten(["a", "b"], parts, changed) == ["a", "c"]
    assert rewritten(["a"], parts, changed) is None
    longer = [{"role": "tool", "content": [*parts[0]["content"], {"type": "text", "text": "c"}]}]
    assert rewritten(["a", "b"], parts, longer) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"input_type": "response"},
        {"request_headers": {"X-Callfuse-Via": "[present]"}},
        {"tools": None},
        {"tools": []},
        {"structured_messages": None},
        {"structured_messages": []},
        {"structured_messages": "text"},
        {"structured_messages": [None, 1, {}, {"role": "tool"}]},
        {"structured_messages": [{"role": "assistant", "tool_calls": [{"function": {"name": 1}}]}]},
        {"texts": None, "structured_messages": history(2)},
    ],
    ids=str,
)
async def test_there_may_be_nothing_to_judge(changes: dict[str, Any]) -> None:
    """Answers of models, requests without tools or that another callfuse guards, and all that is no history pass."""
    guarded, seen = of()
    assert await asked(guarded, question(history(4)) | changes) == NONE
    assert not seen.of(FailedOpen)


@pytest.mark.parametrize("changes", [{"texts": None}, {"texts": [1, None]}, {"request_headers": [1]}, {"model": 4}])
async def test_odd_values_beside_the_history_change_no_verdict(changes: dict[str, Any]) -> None:
    """Whatever LiteLLM sends beside the history, or leaves out, the loop is blocked."""
    guarded, _ = of()
    assert (await asked(guarded, question(history(4), **changes)))["action"] == "BLOCKED"


async def test_a_user_who_spoke_last_is_answered() -> None:
    """A loop that a message of a person has ended does not block the answer to it."""
    guarded, _ = of({"mode": "block"})
    said = [*history(6), {"role": "user", "content": "what have you got?"}]
    assert (await asked(guarded, question(said)))["action"] == "GUARDRAIL_INTERVENED"


@pytest.mark.parametrize(
    "config",
    [{"enabled": False}, {"mode": "observe"}, {"holdout": 1.0}, {"models": {"openai:gpt-4o": {"mode": "observe"}}}],
)
async def test_settings_hold(config: dict[str, Any]) -> None:
    """What is off, or only observed, changes nothing."""
    guarded, _ = of(config)
    assert await asked(guarded, question(history(4))) == NONE


async def test_it_tells_what_it_has_found_once_a_round() -> None:
    """The newest round's calls and findings are events, as those of the wire are, under the name of LiteLLM's session;
    feedback knows the finding."""
    guarded, seen = of()
    headers = {"x-litellm-session-id": "session-1", "authorization": "[present]", "x-session-id": "[present]"}
    for rounds in range(1, 5):
        await asked(guarded, question(history(rounds), request_headers=headers))
    assert [event.action for event in seen.of(CallSeen)] == ["none", "none", "warn", "block"]
    assert [event.action for event in seen.of(FindingSeen)] == ["warn", "block"]
    assert [event.rung for event in seen.of(ActionTaken)] == ["warn", "block"]
    assert {event.where.session for event in seen.of(CallSeen)} == {"session-1"}
    found = seen.of(FindingSeen)[-1].finding_id
    assert seen.of(ActionTaken)[-1].finding_id == found
    told = await post(guarded, {"finding": found, "kind": "false_positive"}, path="feedback")
    assert told.status == 200, told.body


@pytest.mark.parametrize("hidden", ["[present]", "[PRESENT]"])
async def test_hidden_headers_name_no_session(hidden: str) -> None:
    """The word that LiteLLM puts in place of a value is nobody's session; any other value is."""
    guarded, seen = of()
    await asked(guarded, question(history(1), request_headers={"x-my-session-id": hidden}))
    assert (seen.of(CallSeen)[-1].where.source == "fingerprint") == (hidden == guardrail.HIDDEN)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (((b"x-api-key", KEY.encode()),), 200),
        (((b"x-api-key", TOKEN.encode()),), 200),
        (BEARER, 200),
        (((b"authorization", b"Bearer " + KEY.encode()),), 200),
        ((), 401),
        (((b"x-api-key", b""),), 401),
        (((b"x-api-key", b"another"),), 401),
        (((b"authorization", b"Basic " + KEY.encode()),), 401),
        (((b"x-api-key", "schlüssel".encode("latin-1")),), 401),
    ],
)
@pytest.mark.parametrize("path", ["guardrail", "guardrail/beta/litellm_basic_guardrail_api"])
async def test_it_needs_a_key(monkeypatch: pytest.MonkeyPatch, headers: Headers, status: int, path: str) -> None:
    """The key of the environment, as LiteLLM sends it, or the page's token; at the path that LiteLLM makes, too."""
    monkeypatch.setenv(GUARDRAIL_KEY, KEY)
    assert (await post(Guarded(), question(history(1)), headers, path)).status == status


async def test_the_key_opens_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteLLM's key is not the token: it neither reads settings nor changes them."""
    monkeypatch.setenv(GUARDRAIL_KEY, KEY)
    headers: Headers = ((b"x-api-key", KEY.encode()), (b"authorization", b"Bearer " + KEY.encode()))
    assert (await Guarded().get("settings", headers=headers)).status == 401


async def test_a_cookie_does_not_do() -> None:
    """No page asks the guardrail, so a browser's cookie opens it to none."""
    guarded = Guarded()
    cookie = (await guarded.login(TOKEN)).header(b"set-cookie")
    assert cookie is not None
    headers: Headers = ((b"cookie", cookie.partition(b";")[0]),)
    assert (await guarded.get("settings", headers=headers)).status == 200
    assert (await post(guarded, question(history(1)), headers)).status == 401


async def test_a_key_that_cannot_be_used_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short one could be guessed; the message names the variable, not the key."""
    monkeypatch.setenv(GUARDRAIL_KEY, "short")
    with pytest.raises(ConfigError, match=GUARDRAIL_KEY) as raised:
        AdminApp(CallFuseMiddleware(Guarded().vendor, {}), token=TOKEN)
    assert "short)" not in str(raised.value)


@pytest.mark.parametrize(
    ("config", "cause"),
    [({"max_request_bytes": 2048}, "max_request_bytes"), ({"max_total_bytes": 2048}, "max_total_bytes")],
)
async def test_what_is_too_long_passes_and_is_counted(config: dict[str, Any], cause: str) -> None:
    """A question beyond the limits is not read, as a request that comes to the guard is not; nothing of it stays."""
    guarded, seen = of(config)
    body = question(history(4), images=["x" * 4096])
    assert await asked(guarded, body) == NONE
    assert seen.one(NotGuarded).cause == cause
    assert guarded.fuse.held_bytes == 0


async def test_too_many_values_pass_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody would wait while they are parsed."""
    monkeypatch.setattr(guardrail, "has_too_many_values", lambda body: body.count(b",") > 10)
    guarded, seen = of()
    assert await asked(guarded, question(history(4))) == NONE
    assert seen.one(NotGuarded).cause == "request values"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
async def test_what_is_no_json_is_refused(body: bytes) -> None:
    """So that a wrong address or a wrong program is seen at once."""
    guarded, _ = of()
    assert (await post(guarded, body)).status == 400
    assert guarded.fuse.held_bytes == 0


async def test_an_error_in_callfuse_lets_the_request_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told; with `fail_closed` the request is blocked."""

    def broken(*_: object) -> None:
        raise KeyError("broken")

    monkeypatch.setattr(guardrail, "judge", broken)
    guarded, seen = of()
    assert await asked(guarded, question(history(4))) == NONE
    assert seen.one(FailedOpen).kind.startswith("KeyError")
    guarded, _ = of({"fail_closed": True})
    assert (await asked(guarded, question(history(4))))["action"] == "BLOCKED"


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 20])
def test_a_long_history_is_judged_by_its_newest_rounds(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """However long it is, no more rounds and calls are judged than the bounds say, and the newest one always is."""
    judged: list[int] = []

    def counting(run: RecordedRun, *rest: Any) -> Iterator[Judged]:
        judged.append(sum(1 for _ in run.calls()))
        return judge_run(run, *rest)

    monkeypatch.setattr(guardrail, "judge_run", counting)
    for rounds in (50, 100, 200):
        opinion = judge(question(history(rounds, width=width)), LoopSettings(mode=MODES["block"], max_rounds=40))
        assert opinion is not None
        assert opinion.answer["action"] == "BLOCKED"
    most = 40 if width == 1 else guardrail.MOST_CALLS
    assert all(0.7 * most <= calls <= most for calls in judged)
    judge(question(history(1, width=2 * guardrail.MOST_CALLS)), LoopSettings())
    assert judged[-1] == 2 * guardrail.MOST_CALLS


def test_the_first_round_moves_in_steps() -> None:
    """While a history grows by rounds, most questions begin with the same round as the one before."""
    own, begins = LoopSettings(max_rounds=40), []
    for rounds in range(1, 200):
        shown = guardrail._read(question(history(rounds)))
        assert shown is not None
        most = guardrail._most(shown.request, own.max_rounds)
        begins.append(max(0, rounds + 1 - most))
        assert rounds <= 29 or 30 <= most <= 40
    assert len(set(begins)) <= 1 + 200 // 10


CALLS = st.sampled_from(["a", "b", "c"])
ROUND = st.tuples(st.lists(CALLS, min_size=1, max_size=2), st.sampled_from(["none", "same", "Error: no", "new"]))
ROUNDS = st.lists(st.tuples(ROUND | st.just("person"), st.integers(1, 6)), max_size=4).map(
    lambda stretches: [one for one, times in stretches for _ in range(times)]
)


def spoken(rounds: list[Any]) -> list[list[dict[str, Any]]]:
    """The messages of each round: calls of these tools with results of this kind, or a person's."""
    made: list[list[dict[str, Any]]] = []
    for at, one in enumerate(rounds):
        if one == "person":
            made.append([{"role": "user", "content": f"and now {at}"}])
            continue
        names, kind = one
        calls = [
            {"id": f"call_{at}_{n}", "type": "function", "function": {"name": name, "arguments": "{}"}}
            for n, name in enumerate(names)
        ]
        said = f"result {at}" if kind == "new" else kind
        results = [{"role": "tool", "tool_call_id": call["id"], "content": said} for call in calls]
        made.append([{"role": "assistant", "content": None, "tool_calls": calls}, *results])
    return made


def opinion_of(asked: dict[str, Any], settings: LoopSettings, memory: VerdictMemory | None) -> Any:
    """The answer, and what was found in the newest round."""
    opinion = judge(asked, settings, memory)
    if opinion is None:
        return None
    verdicts = [(one.turn, one.round, one.call.id, one.finding, one.verdict) for one in opinion.newest]
    found = [(*place, verdict and (verdict.rung, verdict.step, verdict.call.id)) for *place, verdict in verdicts]
    return opinion.answer, found


@settings(max_examples=30)
@given(ROUNDS, st.sampled_from(["warn", "chance_then_block", "graduated"]), st.sampled_from([10, 128]))
def test_what_is_known_changes_no_answer(rounds: list[Any], mode: str, max_rounds: int) -> None:
    """At each step of a conversation the answer is that of a guardrail that has seen nothing before, also where the
    oldest rounds are not looked at any more."""
    own = LoopSettings.model_validate({"mode": mode, "max_rounds": max_rounds})
    memory, messages = VerdictMemory(), [{"role": "user", "content": "find it"}]
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in "ab"]
    for more in spoken(rounds):
        messages += more
        asked = question(messages, tools=tools)
        assert opinion_of(asked, own, memory) == opinion_of(asked, own, None)


@pytest.mark.slow
def test_a_conversation_costs_what_is_new_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 questions each judges its newest round, and the whole window where that begins at another round."""
    judged, memory, own = [0], VerdictMemory(), LoopSettings(max_rounds=40)

    def counting(*arguments: Any) -> bool:
        judged[-1] += 1
        return can_fire(*arguments)

    monkeypatch.setattr(judging, "can_fire", counting)
    for rounds in range(1, 101):
        judged.append(0)
        assert judge(question(history(rounds)), own, memory) is not None
    assert sorted(judged)[93] == 1
    assert max(judged) <= own.max_rounds
    assert sum(judged) < 100 + 7 * own.max_rounds


def test_other_settings_are_judged_anew() -> None:
    """What was found under some is not taken for what others find."""
    memory = VerdictMemory()
    for mode, action in (("block", "BLOCKED"), ("observe", "NONE"), ("block", "BLOCKED")):
        opinion = judge(question(history(4)), LoopSettings(mode=MODES[mode]), memory)
        assert opinion is not None
        assert opinion.answer["action"] == action


def test_the_memory_is_bounded() -> None:
    """In bytes, whatever is asked; what was used last stays."""
    memory = VerdictMemory(max_bytes=50_000)
    for at in range(20):
        judge(question(history(8, first=100 * at)), LoopSettings(), memory)
        assert 0 < memory.size <= 50_000
    run = run_of(RecordedConversation(RunLabel(), asked_of(history(8, first=1900))))
    assert len(memory.recall(run, run.turns[0], LoopSettings()).rounds) == 8


def asked_of(messages: list[dict[str, Any]]) -> Any:
    """A history as it is read."""
    shown = guardrail._read(question(messages))
    assert shown is not None
    return shown.request
