"""In-chat commands: run once, answered in the dialect, and never seen by a model."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.asgi import JSON_REQUEST, Headers, Request, drive
from tests.support.config import guard, settings
from tests.support.kits import KITS, DialectKit, target_of
from tests.support.meeting import MARK, Meeting, Session, ask, every_dialect, meet, reply, streamed_and_whole
from tests.support.model import History, Round, Style, User
from tests.support.plain import again, saying, spin
from tests.support.rules import violations
from tests.support.scripted import EVENT_STREAM, OTHER_STREAMS, play
from tests.support.streams import styles

SESSION = (b"x-callfuse-session-id", b"session-of-the-test")
HEADERS: Headers = (*JSON_REQUEST, SESSION)
DONE = Round((), (), "Done.")
"""An answer in words."""
SPELLINGS = {
    "!/set(tool-loop-detection=true)": "tool-loop-detection = true (session)",
    "!/set(tool-loop-detection=false)": "tool-loop-detection = false (session)",
    "!/set(tool-loop-max-repeats=4)": "tool-loop-max-repeats = 4 (session)",
    "!/set(tool-loop-ttl=120)": "tool-loop-ttl = 120 (session)",
    "!/set(tool-loop-mode=break)": "tool-loop-mode = block (session)",
    "!/set(tool-loop-mode=chance)": "tool-loop-mode = chance_then_block (session)",
    "!/set(tool-loop-mode=chance_then_break)": "tool-loop-mode = chance_then_block (session)",
    "!/set(tool_loop_detection_enabled=true)": "tool-loop-detection = true (session)",
    "!/set(tool_loop_max_repeats=4)": "tool-loop-max-repeats = 4 (session)",
    "!/set(tool_loop_ttl_seconds=600)": "tool-loop-ttl = 600 (session)",
    '!/set(tool_loop_mode="chance_then_block")': "tool-loop-mode = chance_then_block (session)",
    "!/SET(TOOL_LOOP_MODE=Break)": "tool-loop-mode = block (session)",
    "!/set(tool-loop-mode=chance-then-break)": "tool-loop-mode = chance_then_block (session)",
    "!/SET( Tool-Loop-TTL = '120' )": "tool-loop-ttl = 120 (session)",
}
UNSET = "!/unset(tool-loop-detection, tool-loop-max-repeats, tool-loop-ttl, tool-loop-mode)"
DEFAULTS = [
    "tool-loop-detection = true (default)",
    "tool-loop-max-repeats = 3 (default)",
    "tool-loop-ttl = 300 (default)",
    "tool-loop-mode = warn (server)",
]


def typing(kit: DialectKit, *texts: str, stream: bool = False, headers: Headers = HEADERS) -> Request:
    """A request of a conversation in which the user has said these things."""
    return ask(kit, History(tuple(map(User, texts))), stream=stream, headers=headers)


def told(kit: DialectKit, met: Meeting, *, stream: bool = False) -> list[str]:
    """The lines of an answer that is callfuse's own; no app was asked."""
    assert met.app.heard == []
    assert (met.client.status, met.client.complete) == (200, True)
    assert met.client.header(b"x-callfuse-action") == b"command"
    assert met.client.header(b"content-length") == str(len(met.body)).encode()
    declared = OTHER_STREAMS.get(target_of(kit, stream=True)[0], EVENT_STREAM) if stream else b"application/json"
    assert (met.client.header(b"content-type") or b"").partition(b";")[0] == declared.partition(b";")[0]
    if stream:
        assert kit.faults(met.body) == []
    (view,) = kit.sdk(met.body, stream=stream)
    assert (view.calls, view.thinking, view.finish) == ((), "", kit.stopped)
    assert kit.read(met.body, stream=stream)[0].text == view.text
    assert view.text.startswith(f"{MARK} ")
    return view.text.removeprefix(f"{MARK} ").split("\n")


def talk(talking: Callable[[Session], Any], **settings: Any) -> None:
    """A talk of several exchanges under `warn`."""
    asyncio.run(talking(Session("warn", settings)))


def ok(kit: DialectKit, *, stream: bool = False) -> Any:
    """What a model says that has nothing to do."""
    return reply(kit, saying("Ok."), stream=stream)


def messages(kit: DialectKit, body: bytes) -> Any:
    """The conversation in a request."""
    return json.loads(body)[kit.history_key]


@pytest.mark.slow
@every_dialect
@streamed_and_whole
def test_every_spelling(kit: DialectKit, stream: bool) -> None:
    """Each is answered, holds in the next exchange, and is undone."""

    async def talking(session: Session) -> None:
        for command, line in SPELLINGS.items():
            said = told(kit, await session.exchange(typing(kit, command, stream=stream)), stream=stream)
            assert said[0].endswith("for this session.")
            assert line in told(kit, await session.exchange(typing(kit, "!/status", stream=stream)), stream=stream)
            told(kit, await session.exchange(typing(kit, UNSET, stream=stream)), stream=stream)
            status = await session.exchange(typing(kit, "!/status", stream=stream))
            assert told(kit, status, stream=stream) == DEFAULTS

    talk(talking)


@streamed_and_whole
@pytest.mark.parametrize(("asked", "given"), [(2, 2), (1000, 128)])
def test_several_choices(stream: bool, asked: int, given: int) -> None:
    """Each says the same, as far as the vendor would give so many."""
    kit = KITS[0]
    met = meet(ask(kit, History((User("!/help"),)), stream=stream, n=asked, headers=HEADERS), [])
    assert stream is False or kit.faults(met.body) == []
    views = kit.sdk(met.body, stream=stream)
    assert [(view.calls, view.finish) for view in views] == [((), kit.stopped)] * given
    assert {view.text for view in views} == {views[0].text}
    assert views[0].text.startswith(MARK)


@every_dialect
@streamed_and_whole
def test_help(kit: DialectKit, stream: bool) -> None:
    """It names every command and key."""
    said = "\n".join(told(kit, meet(typing(kit, "!/help", stream=stream), []), stream=stream))
    for word in ("!/set", "!/unset", "!/status", "tool-loop-detection", "tool-loop-mode", "graduated"):
        assert word in said


@every_dialect
@streamed_and_whole
def test_the_pair_is_left_out(kit: DialectKit, stream: bool) -> None:
    """The next request, as the SDK sends it back, reaches the vendor without the command and the answer to it."""
    history = History((User("!/set(tool-loop-mode=block) !/help"),))

    async def talking(session: Session) -> None:
        path, query = target_of(kit, stream=stream)
        met = await session.exchange(ask(kit, history, stream=stream, headers=HEADERS))
        told(kit, met, stream=stream)
        following = kit.replay(history, met.body, stream=stream, result="")
        asked = await session.exchange(Request(path, following, HEADERS, query=query), ok(kit, stream=stream))
        (heard,) = asked.app.heard
        assert b"!/" not in heard.body
        assert MARK.encode() not in heard.body
        *kept, command, own, user = messages(kit, following)
        assert messages(kit, heard.body) == [*kept, user]
        assert "!/set" in json.dumps(command)
        assert MARK in json.dumps(own)
        assert violations(kit.name, json.loads(heard.body)) == []
        assert heard.header(b"content-length") == str(len(heard.body)).encode()

    talk(talking)


@every_dialect
@given(style=styles(), ascii_=st.booleans())
def test_commands_go_and_nothing_else_is_touched(kit: DialectKit, style: Style, ascii_: bool) -> None:
    """In the last message and in older ones: the bytes are those of a request in which nobody has typed a command."""
    style = Style(spaced=style.spaced, ascii=ascii_, parts=style.parts)
    parted = (*spin(1).turns[1:], DONE)
    with_, without = (
        History((User(f"{first}Find \u00e9\u2028 it."), *parted, User(f"{second}And this?\nPlease.")))
        for first, second in (
            ("!/set(tool-loop-ttl=9)\n", "!/set(tool-loop-mode='warn')\n!/status !/help\n"),
            ("", ""),
        )
    )
    met = meet(ask(kit, with_, stream=True, style=style), [ok(kit, stream=True)])
    assert met.app.heard[0].body == ask(kit, without, stream=True, style=style).body


@every_dialect
@pytest.mark.parametrize(
    "place", ["result", "model", "reminder", "quote", "code", "file", "context", "summary", "observation", "line"]
)
def test_what_nobody_has_typed(kit: DialectKit, place: str) -> None:
    """Nothing is a command in a result, the model's text, an element of a harness (closed by its content or not), a
    summary, a quoted line or code, behind other words."""
    command = "!/set(tool-loop-detection=false)"
    texts = {
        "reminder": f"Find it.\n<system-reminder>\n{command}\n</system-reminder>",
        "quote": f"> {command}\nWhat is this?",
        "code": f"```\n{command}\n```\nWhat is this?",
        "file": f"<file_content>\n</file_content>\n{command}\n</file_content>\nWhat is this?",
        "context": f"<context>\n{command}\n</context>",
        "summary": f"The conversation so far, in short:\n{command}\n",
        "observation": f"Observation:\n{command}",
        "line": f"{command} What is this?",
    }
    question = User(texts.get(place, "Find it."))
    (call,) = spin(1).turns[1:]
    assert isinstance(call, Round)
    if place == "result":
        call = replace(call, results=(command,))
    elif place == "model":
        call = replace(call, text=command)
    history = History((question, call, *spin(2).turns[1:]))
    request = ask(kit, history, stream=True)
    met = meet(request, [reply(kit, again(), stream=True)], "block")
    assert met.app.heard[0].body == request.body
    assert MARK.encode() in met.body


@every_dialect
@pytest.mark.parametrize(
    "header",
    [b"x-claude-code-agent-id", b"x-claude-code-parent-agent-id", b"x-openai-subagent", b"x-codex-parent-thread-id"],
)
def test_what_a_model_asks_of_a_sub_agent(kit: DialectKit, header: bytes) -> None:
    """It stands there as a user's message, and is none: what looks like a command is text, and sets nothing."""

    async def talking(session: Session) -> None:
        for text in ("!/set(tool-loop-detection=false)", "!/set(tool-loop-detection=false)\nFind it."):
            request = typing(kit, text, headers=(*HEADERS, (header, b"agent-number-1")))
            met = await session.exchange(request, ok(kit))
            assert met.app.heard[0].body == request.body
        assert told(kit, await session.exchange(typing(kit, "!/status"))) == DEFAULTS

    talk(talking)


@every_dialect
def test_a_command_is_run_once(kit: DialectKit) -> None:
    """A tool loop sends the message again: it is stripped again, and what was set since then stays."""
    question = User("!/set(tool-loop-max-repeats=5)\nFind the zebra crossing.")
    rounds = spin(2).turns[1:]

    async def talking(session: Session) -> None:
        for count in range(3):
            request = ask(kit, History((question, *rounds[:count])), stream=False, headers=HEADERS)
            heard = (await session.exchange(request, ok(kit))).app.heard
            assert b"!/" not in heard[0].body
            if count == 0:
                await session.exchange(typing(kit, "!/set(tool-loop-max-repeats=7)"))
        status = told(kit, await session.exchange(typing(kit, "!/status")))
        assert "tool-loop-max-repeats = 7 (session)" in status

    talk(talking)


@every_dialect
def test_a_command_is_run_once_wherever_it_stands(kit: DialectKit) -> None:
    """An agent that shortens its history moves the message; typed anew at the end, the same words are run again."""
    question = User("!/set(tool-loop-max-repeats=5)\nGo on.")
    long = (User("Find it."), *spin(2).turns[1:], DONE)
    shown = []

    async def talking(session: Session) -> None:
        async def send(*turns: User | Round) -> None:
            await session.exchange(ask(kit, History(turns), stream=False, headers=HEADERS), ok(kit))
            status = await session.exchange(typing(kit, "!/status"))
            shown.append(told(kit, status)[1].removeprefix("tool-loop-max-repeats = "))

        await send(*long, question)
        await session.exchange(typing(kit, "!/set(tool-loop-max-repeats=7)"))
        await send(*long, question, *spin(1).turns[1:])
        await send(question, *spin(1).turns[1:])
        await send(question, *spin(1).turns[1:], DONE, question)

    talk(talking)
    assert shown == ["5 (session)", "7 (session)", "7 (session)", "5 (session)"]


@every_dialect
def test_who_sees_what_a_session_has_set(kit: DialectKit) -> None:
    """Every lane of it; no other session, and nobody else under the same name."""

    async def talking(session: Session) -> None:
        told(kit, await session.exchange(typing(kit, "!/set(tool-loop-ttl=77)")))
        other_tenant = tuple((name, b"Bearer other" if name == b"authorization" else text) for name, text in HEADERS)
        other_session = (*JSON_REQUEST, (SESSION[0], b"another-session"))
        lines = [
            told(kit, await session.exchange(typing(kit, "Hello.", "!/status", headers=headers)))[2]
            for headers in (HEADERS, other_tenant, other_session, JSON_REQUEST)
        ]
        assert lines == ["tool-loop-ttl = 77 (session)", *["tool-loop-ttl = 300 (default)"] * 3]

    talk(talking)


@every_dialect
def test_without_a_credential_a_conversation_sets_for_itself(kit: DialectKit) -> None:
    """Whoever names the same session, in another conversation, neither sees that nor changes it."""
    bare = tuple(pair for pair in HEADERS if pair[0] != b"authorization")

    async def talking(session: Session) -> None:
        said = "!/set(tool-loop-ttl=77)"
        told(kit, await session.exchange(typing(kit, said, headers=bare)))
        lines = [
            told(kit, await session.exchange(typing(kit, first, "!/status", headers=bare)))[2]
            for first in (said, "Hello.")
        ]
        assert lines == ["tool-loop-ttl = 77 (session)", "tool-loop-ttl = 300 (default)"]

    talk(talking)


@every_dialect
@pytest.mark.parametrize("header", [b"x-user", b"cookie"])
def test_who_is_told_apart_by_a_header_that_a_setting_names(kit: DialectKit, header: bytes) -> None:
    """What one has set does not hold for the other, though both have the same key and name the same session."""

    async def talking(session: Session) -> None:
        alice, bob = ((*HEADERS, (header, b"user=" + name)) for name in (b"alice", b"bob"))
        told(kit, await session.exchange(typing(kit, "!/set(tool-loop-ttl=77)", headers=alice)))
        lines = [
            told(kit, await session.exchange(typing(kit, "Hello.", "!/status", headers=headers)))[2]
            for headers in (alice, bob)
        ]
        assert lines == ["tool-loop-ttl = 77 (session)", "tool-loop-ttl = 300 (default)"]

    talk(talking, credential_headers=[header.decode()])


@every_dialect
def test_a_session_without_a_name_goes_by_its_opening(kit: DialectKit) -> None:
    """What its first message has set holds in those behind it, whose history begins with it."""

    async def talking(session: Session) -> None:
        told(kit, await session.exchange(typing(kit, "!/set(tool-loop-ttl=77)", headers=JSON_REQUEST)))
        lines = told(kit, await session.exchange(typing(kit, "!/set(tool-loop-ttl=77)", "!/status",
                                                        headers=JSON_REQUEST)))  # fmt: skip
        assert lines[2] == "tool-loop-ttl = 77 (session)"

    talk(talking)


@every_dialect
@streamed_and_whole
def test_detection_off_and_on_again(kit: DialectKit, stream: bool) -> None:
    """Off, a loop passes as it comes, and commands still work; on again it is blocked."""

    async def talking(session: Session) -> None:
        def loop() -> Request:
            return ask(kit, spin(), stream=stream, headers=HEADERS)

        calls = reply(kit, again(), stream=stream)
        told(kit, await session.exchange(typing(kit, "!/set(tool-loop-mode=block, tool-loop-detection=off)")))
        passed = await session.exchange(loop(), calls)
        assert (passed.body, passed.app.heard[0].body) == (calls.body, loop().body)
        history = History((User("!/status\nFind it."), *spin().turns[1:]))
        stripped = await session.exchange(ask(kit, history, stream=stream, headers=HEADERS), calls)
        assert (stripped.body, b"!/" in stripped.app.heard[0].body) == (calls.body, False)
        told(kit, await session.exchange(typing(kit, "!/set(tool-loop-detection=on)")))
        blocked = await session.exchange(loop(), calls)
        assert MARK.encode() in blocked.body
        assert b"call_first" not in blocked.body

    talk(talking)


@every_dialect
@streamed_and_whole
def test_a_wrong_command(kit: DialectKit, stream: bool) -> None:
    """It is answered with what is right, even beside other text; nothing is changed, nothing goes on."""

    async def talking(session: Session) -> None:
        history = History((User("!/set(tool-loop-ttl=9) !/set(tool-loop-mode=blok)\nFind it."),))
        met = await session.exchange(ask(kit, history, stream=stream, headers=HEADERS))
        (said,) = told(kit, met, stream=stream)
        assert said.startswith("Nothing was changed: tool-loop-mode = 'blok': use observe, warn, block")
        status = await session.exchange(typing(kit, "!/status", stream=stream))
        assert told(kit, status, stream=stream) == DEFAULTS
        path, query = target_of(kit, stream=stream)
        following = kit.replay(history, met.body, stream=stream, result="")
        asked = await session.exchange(Request(path, following, HEADERS, query=query), ok(kit, stream=stream))
        (heard,) = asked.app.heard
        stays = kit.name == "bedrock-converse"  # where roles alternate, callfuse's own answer parts the user's messages
        assert len(messages(kit, heard.body)) == len(messages(kit, following)) - (not stays)
        assert "Find it." in json.dumps(messages(kit, heard.body))
        assert (b"!/" in heard.body, MARK.encode() in heard.body) == (False, stays)
        assert violations(kit.name, json.loads(heard.body)) == []

    talk(talking)


@every_dialect
@pytest.mark.parametrize("spelt", ["tool-loop-ttl", "tool_loop_ttl_seconds"])
def test_locked_keys(kit: DialectKit, spelt: str) -> None:
    """A key that operators have pinned stays as it is, and who tries is told so; in each spelling."""
    locked = {"locked": [spelt]}
    for typed in ("tool-loop-ttl=9", "tool_loop_ttl_seconds=9"):
        (said,) = told(kit, meet(typing(kit, f"!/set({typed})"), [], "block", commands=locked))
        assert said == "Nothing was changed: tool-loop-ttl can only be set by the operator of this server."


@every_dialect
@pytest.mark.parametrize(
    ("command", "level", "text"),
    [
        (
            "!/set(tool-loop-detection=off)",
            30,
            "has switched the guard off with a command: tool-loop-detection = false",
        ),
        ("!/set(tool-loop-mode=observe)", 30, "has switched the guard off with a command: tool-loop-mode = observe"),
        ("!/set(tool-loop-ttl=9)", 20, "has changed its settings with a command: tool-loop-ttl = 9"),
    ],
)
def test_whoever_runs_the_server_is_told(kit: DialectKit, command: str, level: int, text: str) -> None:
    """A session that has switched the guard off is a warning, the first time; other changes are told at INFO."""

    async def talking(session: Session) -> None:
        first, second = [await session.exchange(typing(kit, command)) for _ in range(2)]
        assert [(at, line) for _, at, line in first.log if "with a command" in line] == [
            (level, f"Session {SESSION[1].decode()} {text}")
        ]
        assert not any("with a command" in line for _, _, line in second.log)

    talk(talking)


def test_a_closed_key() -> None:
    """`keys` leaves some open: the others are not to be set."""
    (said,) = told(KITS[0], meet(typing(KITS[0], "!/set(tool-loop-detection=off)"), [], "block",
                                 commands={"keys": ["tool-loop-ttl"]}))  # fmt: skip
    assert said == "Nothing was changed: tool-loop-detection cannot be set here; use tool-loop-ttl."


@pytest.mark.parametrize(
    "commands", [{"locked": ["tool-loop-ttl"]}, {"keys": ["tool-loop-max-repeats"]}], ids=["locked", "keys"]
)
def test_a_lock_comes_later(commands: Any) -> None:
    """What a session has set before a key was closed holds no more; what is still open does."""
    kit = KITS[0]
    guarded: Any = guard(play(ok(kit)), "warn")

    async def talking() -> list[str]:
        await drive(guarded, typing(kit, "!/set(tool-loop-ttl=77, tool-loop-max-repeats=7)"))
        guarded.configure(settings("warn", commands=commands))
        status = await drive(guarded, typing(kit, "!/status"))
        return kit.read(status.body, stream=False)[0].text.split("\n")

    assert asyncio.run(talking())[1:3] == ["tool-loop-max-repeats = 7 (session)", "tool-loop-ttl = 300 (default)"]


def test_commands_are_turned_off_later() -> None:
    """What a session has set by them holds no more: nobody could take it back."""
    kit = KITS[0]
    calls = reply(kit, again(), stream=True)
    guarded: Any = guard(play(calls), "block")

    async def talking() -> bytes:
        await drive(guarded, typing(kit, "!/set(tool-loop-detection=off)"))
        guarded.configure(settings("block", commands=False))
        return (await drive(guarded, ask(kit, spin(), stream=True, headers=HEADERS))).body

    assert MARK.encode() in asyncio.run(talking())


@every_dialect
@pytest.mark.parametrize("commands", [False, {"enabled": False}, {"prefix": "%%"}], ids=["off", "disabled", "other"])
def test_no_commands(kit: DialectKit, commands: Any) -> None:
    """Off, or with another prefix, a command is text like any other."""
    request = typing(kit, "!/set(tool-loop-mode=observe)", stream=True)
    met = meet(request, [ok(kit, stream=True)], commands=commands)
    assert met.app.heard[0].body == request.body


@every_dialect
def test_another_prefix(kit: DialectKit) -> None:
    """The prefix is a setting, whatever characters it has."""
    met = meet(typing(kit, "\u00a7/help"), [], commands={"prefix": "\u00a7/"})
    assert "\u00a7/set(key=value, ...)" in "\n".join(told(kit, met))


@every_dialect
def test_a_signed_request_keeps_its_commands(kit: DialectKit) -> None:
    """It must not be changed: its command goes on, does nothing, and is counted."""
    signed = (*HEADERS, (b"content-digest", b"sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:"))

    async def talking(session: Session) -> None:
        request = typing(kit, "!/set(tool-loop-ttl=77)", headers=signed)
        met = await session.exchange(request, ok(kit))
        assert met.app.heard[0].body == request.body
        assert any("signed command" in text for text in met.log_at(30))
        assert told(kit, await session.exchange(typing(kit, "!/status"))) == DEFAULTS

    talk(talking)


@every_dialect
def test_a_request_without_tools(kit: DialectKit) -> None:
    """Nothing of it is judged, but commands are read everywhere."""
    history = History((User("!/set(tool-loop-ttl=77)\nHello."),), tools=())

    async def talking(session: Session) -> None:
        met = await session.exchange(ask(kit, history, stream=False, headers=HEADERS), ok(kit))
        assert (met.body, b"!/" in met.app.heard[0].body) == (kit.whole(saying("Ok.")), False)
        status = told(kit, await session.exchange(typing(kit, "!/status")))
        assert "tool-loop-ttl = 77 (session)" in status

    talk(talking)


@every_dialect
def test_slashes_may_be_escaped(kit: DialectKit) -> None:
    """As PHP writes JSON."""
    request = typing(kit, "!/set(tool-loop-ttl=9)\na/b")
    escaped = Request(request.path, request.body.replace(b"/", b"\\/"), HEADERS, query=request.query)
    met = meet(escaped, [ok(kit)])
    wanted = typing(kit, "a/b").body.replace(b"/", b"\\/")
    assert met.app.heard[0].body == wanted


@every_dialect
def test_a_retry_is_answered_again(kit: DialectKit) -> None:
    """A message of commands only is answered whenever it comes."""

    async def talking(session: Session) -> None:
        first, second = [await session.exchange(typing(kit, "!/set(tool-loop-ttl=9)")) for _ in range(2)]
        assert told(kit, first) == told(kit, second) == ["tool-loop-ttl = 9 for this session."]

    talk(talking)


@every_dialect
def test_commands_are_counted(kit: DialectKit) -> None:
    """By what has come of them."""
    guarded: Any = guard(play(), "warn")

    async def talking() -> None:
        for text in ("!/status", "!/set(tool-loop-ttl=9)", "!/set(x=9)"):
            await drive(guarded, typing(kit, text))

    asyncio.run(talking())
    assert [guarded.counts.of("commands", label) for label in ("run", "refused")] == [2, 1]


def test_status_tells_where_a_value_is_from() -> None:
    """Session over header over model over server; what a user has set counts more than a header."""
    kit = KITS[0]
    headers = (*HEADERS, (b"x-callfuse-ttl-seconds", b"50"), (b"x-callfuse-max-repeats", b"5"))
    settings = {"header_overrides": True, "models": {"openai:gpt-*": {"mode": "block", "ttl_seconds": 40}}}

    async def talking(session: Session) -> None:
        told(kit, await session.exchange(typing(kit, "!/set(tool-loop-max-repeats=7)")))
        assert told(kit, await session.exchange(typing(kit, "!/status", headers=headers))) == [
            "tool-loop-detection = true (default)",
            "tool-loop-max-repeats = 7 (session)",
            "tool-loop-ttl = 50 (header)",
            "tool-loop-mode = block (models openai:gpt-*)",
        ]

    talk(talking, **settings)
