"""Settings that the host's code gives one session: they hold as those of a command do, and users' own win."""

import logging
import re
from typing import Any

import pytest

from callfuse import CallFuseMiddleware, ConfigError, ToolCallLoopConfig, ToolLoopMode
from callfuse.admin.access import Access
from callfuse.admin.queries import Query, rows_of, sessions_of
from callfuse.asgi.session_settings import session_overrides
from callfuse.conversations.ledger import SessionState
from callfuse.policy.rungs import Rung
from callfuse.policy.sections import ToolSettings
from callfuse.policy.settings import LoopSettings
from callfuse.stores.values import decode_session, encode_session
from tests.support.asgi import JSON_REQUEST, Headers, drive
from tests.support.config import settings
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import MARK, ask, every_dialect, given_log, reply
from tests.support.model import History, User
from tests.support.plain import again, saying, spin
from tests.support.scripted import play

CHAT = KITS[0]
NAME = "session-of-zebras"
KEY = (b"authorization", b"Bearer sk-one")
OTHER_KEY = (b"authorization", b"Bearer sk-other")


def headers_of(*more: tuple[bytes, bytes], name: str = NAME) -> Headers:
    """The headers of a client's request in a session."""
    return (*JSON_REQUEST, (b"x-callfuse-session-id", name.encode()), *more)


class Guarded:
    """A guard, and what it does about a third equal call."""

    def __init__(self, kit: DialectKit = CHAT, ladder: str = "block", **more: Any) -> None:
        self.kit = kit
        self.app = play()
        self.guard = CallFuseMiddleware(self._app, settings(ladder, **more))

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)

    async def blocks(self, headers: Headers, history: History | None = None) -> bool:
        """Whether the call is withheld in this session."""
        self.app = play(reply(self.kit, again(), stream=True))
        exchange = await drive(self.guard, ask(self.kit, history or spin(), stream=True, headers=headers))
        return MARK.encode() in exchange.body


@every_dialect
async def test_it_holds_for_the_session_of_that_client(kit: DialectKit) -> None:
    """Also before its first request; not for another session, nor for another's session of that name."""
    one = Guarded(kit)
    await one.guard.set_session(NAME, ToolCallLoopConfig(max_repeats=4), headers={"Authorization": "Bearer sk-one"})
    assert not await one.blocks(headers_of(KEY))
    assert await one.blocks(headers_of(KEY), spin(3))
    assert await one.blocks(headers_of(KEY, name="another-session"))
    assert await one.blocks(headers_of(OTHER_KEY))
    await one.guard.set_session(NAME, None, headers=[KEY])
    assert await one.blocks(headers_of(KEY))


async def test_without_a_credential_the_sessions_that_are_known() -> None:
    """Of this name, whoever's they are; LookupError where there is none, and where the store cannot look for it."""
    one = Guarded()
    with pytest.raises(LookupError, match="pass the headers"):
        await one.guard.set_session(NAME, {"enabled": False})
    for own in (headers_of(), headers_of(OTHER_KEY)):
        assert await one.blocks(own)
    await one.guard.set_session(NAME, {"enabled": False})
    for own in (headers_of(), headers_of(OTHER_KEY)):
        assert not await one.blocks(own)


async def test_what_users_set_wins_where_they_may() -> None:
    """Locked keys cannot be set by commands, but by code."""
    for locked, expected in (([], False), (["tool-loop-mode"], True)):
        one = Guarded(ladder="observe", commands={"locked": locked})
        await one.guard.set_session(NAME, {"mode": ToolLoopMode.BLOCK}, headers=[KEY])
        await one.blocks(headers_of(KEY), History((User("!/set(tool-loop-mode=observe)\nGo on."),)))
        assert await one.blocks(headers_of(KEY)) is expected
        await one.guard.set_session(NAME, {"mode": "block", "max_repeats": 5}, headers=[KEY])
        assert not await one.blocks(headers_of(KEY))


async def test_status_tells_them() -> None:
    """As settings of the session; headers are above them."""
    one = Guarded(header_overrides=True)
    await one.guard.set_session(NAME, {"max_repeats": 7, "ttl_seconds": 60}, headers=[KEY])
    one.app = play(reply(CHAT, saying("Ok."), stream=True))
    own = headers_of(KEY, (b"x-callfuse-ttl-seconds", b"90"))
    exchange = await drive(one.guard, ask(CHAT, History((User("!/status"),)), stream=False, headers=own))
    assert b"tool-loop-max-repeats = 7 (session)" in exchange.body
    assert b"tool-loop-ttl = 90 (header)" in exchange.body


async def test_the_admin_page_tells_them() -> None:
    """Among the sessions with settings of their own, and in what holds for one."""
    one = Guarded()
    await one.guard.set_session(NAME, {"max_repeats": 7}, headers=[KEY])
    access = Access("a-token-of-sixteen")
    (listed,) = await sessions_of(one.guard, access) or []
    assert (listed.name, listed.set) == (NAME, {"max_repeats": 7})
    rows, is_known = await rows_of(one.guard, access, Query(session=NAME))
    assert is_known
    assert [row.value for row in rows if row.key == "tool_call_loop.max_repeats"] == [7]


async def test_a_tool_of_a_session() -> None:
    """The highest tier there is."""
    one = Guarded(per_tool={"search": {"max_repeats": 2}})
    await one.guard.set_session(NAME, {"per_tool": {"sea*": {"max_repeats": 4}}, "max_repeats": 2}, headers=[KEY])
    assert not await one.blocks(headers_of(KEY))
    assert await one.blocks(headers_of(KEY), spin(3))


async def test_that_a_session_is_switched_off_is_told() -> None:
    """At WARNING, as that of a command."""
    one = Guarded()
    with given_log() as log:
        await one.guard.set_session(NAME, {"enabled": False}, headers=[KEY])
    (line,) = [text for _, level, text in log if level == logging.WARNING]
    assert NAME in line


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"max_repeat": 4}, "did you mean tool_call_loop.max_repeats?"),
        ({"mode": "gentle"}, "use one of observe"),
        ({"window": 20}, "window: cannot be set for one session; use enabled, mode, "),
        (ToolCallLoopConfig(heartbeat_s=1), "heartbeat_s: cannot be set for one session"),
        ({"mode": ["escalate"]}, "escalate_model"),
    ],
)
async def test_what_is_wrong_is_an_error(config: Any, problem: str) -> None:
    """And nothing has changed."""
    one = Guarded()
    with pytest.raises(ConfigError, match=re.escape(problem)):
        await one.guard.set_session(NAME, config, headers=[KEY])
    assert await one.blocks(headers_of(KEY))


def test_presets_and_ladders_are_kept() -> None:
    """With all that a preset sets, and through a store; `escalate` may name the server's other model."""
    for config in ({"mode": "unattended"}, ToolCallLoopConfig(mode=ToolLoopMode.UNATTENDED)):
        overrides = session_overrides(config, LoopSettings())
        state = SessionState(by_code=overrides)
        assert decode_session(encode_session(state)) == state
        held = LoopSettings().for_exchange("openai:gpt", overrides)
        assert (held.blow_after, held.detectors.cap("same_error", hard=False, waits=False)) == (3, Rung.BLOCK)
    other = session_overrides({"mode": ["escalate", "block"]}, LoopSettings(escalate_model="gpt-big"))
    assert other.values == {"mode": (Rung.ESCALATE, Rung.BLOCK)}
    old = SessionState(session_overrides({"max_repeats": 4}, LoopSettings()), (b"x" * 16,), 7.0)
    assert decode_session(encode_session(old)) == old


def test_a_class_stands_where_a_mapping_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it does not set is from environment and file."""
    monkeypatch.setenv("TOOL_LOOP_MAX_REPEATS", "7")
    monkeypatch.setenv("TOOL_LOOP_TTL_SECONDS", "60")
    config = ToolCallLoopConfig(
        ttl_seconds=90, mode=ToolLoopMode.GRADUATED, per_tool={"a": ToolSettings(max_repeats=2)}
    )
    made = CallFuseMiddleware(play(), config).settings
    assert (made.max_repeats, made.ttl_seconds, made.mode) == (7, 90, (Rung.WARN, Rung.WARN, Rung.BLOCK))
    assert made.for_tool("a").settings.max_repeats == 2
