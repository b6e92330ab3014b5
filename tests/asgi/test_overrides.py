"""Headers with which trusted callers change settings for one exchange."""

import json
import logging
from typing import Any

import pytest

from callfuse import CallFuseMiddleware, ConfigError
from callfuse.asgi.overrides import KEYS, read_overrides
from callfuse.policy.sections import TierSettings
from callfuse.policy.settings import MODES, Rung
from tests.guard.written import OPENAI
from tests.support.asgi import JSON_REQUEST, Headers, Request, drive
from tests.support.meeting import MARK, ask, reply
from tests.support.plain import again, spin
from tests.support.scripted import ScriptedApp, play

ALLOWED = {"header_overrides": True, "mode": "block"}


def looping(*headers: tuple[bytes, bytes]) -> Request:
    """A request whose next call is the one too many."""
    return ask(OPENAI, spin(), stream=True, headers=(*JSON_REQUEST, *headers))


def app() -> ScriptedApp:
    """A model that calls the same again."""
    return play(reply(OPENAI, again(), stream=True))


def guarded(inner: ScriptedApp, settings: dict[str, Any]) -> CallFuseMiddleware:
    """The app behind callfuse."""
    return CallFuseMiddleware(inner, {"tool_call_loop": settings})


def mode(text: bytes) -> Headers:
    """The header that names a mode."""
    return ((b"x-callfuse-mode", text),)


def test_every_plain_key_of_a_tier_has_a_header() -> None:
    """By the key's own name."""
    sections = {"detectors", "error_messages"}
    assert set(TierSettings.model_fields) - sections <= set(KEYS.values())
    assert KEYS[b"x-callfuse-max-repeats"] == "max_repeats"
    assert all(key.replace("_", "-").encode() == name.removeprefix(b"x-callfuse-") for name, key in KEYS.items())


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        (b"mode", b"warn", MODES["warn"]),
        (b"mode", b" warn, steer,block ", (Rung.WARN, Rung.STEER, Rung.BLOCK)),
        (b"max-repeats", b"5", 5),
        (b"max-repeats", b"0", 0),
        (b"enabled", b"off", False),
        (b"ttl-seconds", b"1.5", 1.5),
        (b"similarity-threshold", b"0.9", 0.9),
        (b"max-calls", b"7", 7),
    ],
)
def test_a_value_is_read(name: bytes, text: bytes, value: object) -> None:
    """As in the file and the environment."""
    overrides, wrong = read_overrides(
        {b"x-callfuse-" + name: text, b"x-callfuse-session-id": b"s"}, has_other_model=False
    )
    assert (dict(overrides.values), wrong) == ({name.decode().replace("-", "_"): value}, {})


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("mode", b"escalate,block", "'escalate,block': `escalate` needs another model"),
        ("max-repeats", b"1", "'1': use 0 (off) or a whole number from 2"),
        ("max-repeats", b"", "'': use 0 (off) or a whole number from 2"),
        ("mode", b"warn,stop", "'warn,stop': 'stop' is not a rung; use observe, "),
        ("enabled", b"\xff", "'\xff': use true or false"),
        ("ttl-seconds", b"-1", "'-1': use a number above 0"),
    ],
)
def test_a_wrong_value_sets_nothing(name: str, text: bytes, problem: str) -> None:
    """And is named, beside those that do."""
    found = {f"x-callfuse-{name}".encode(): text, b"x-callfuse-max-calls": b"9"}
    overrides, wrong = read_overrides(found, has_other_model=False)
    assert dict(overrides.values) == {"max_calls": 9}
    assert list(wrong) == [f"x-callfuse-{name}"]
    assert wrong[f"x-callfuse-{name}"].startswith(problem)


@pytest.mark.parametrize(
    ("headers", "has_other_model"), [({}, True), ({b"x-callfuse-escalate-model": b"other"}, False)]
)
def test_another_model_to_escalate_to(headers: dict[bytes, bytes], has_other_model: bool) -> None:
    """It may be the settings' or the caller's own."""
    overrides, wrong = read_overrides(
        {b"x-callfuse-mode": b"escalate,block", **headers}, has_other_model=has_other_model
    )
    assert (overrides.values["mode"], wrong) == ((Rung.ESCALATE, Rung.BLOCK), {})


@pytest.mark.parametrize(
    ("settings", "headers", "blocked"),
    [
        (ALLOWED, (), True),
        (ALLOWED, mode(b"observe"), False),
        (ALLOWED, ((b"x-callfuse-enabled", b"false"),), False),
        (ALLOWED, ((b"x-callfuse-max-repeats", b"9"), (b"x-callfuse-max-repeats-changing", b"9")), False),
        (ALLOWED | {"enabled": False}, (), False),
        (ALLOWED | {"enabled": False}, ((b"x-callfuse-enabled", b"true"),), True),
        (ALLOWED | {"per_tool": {"*": {"mode": "observe"}}}, mode(b"block"), True),
        (ALLOWED | {"models": {"openai:*": {"mode": "observe"}}}, mode(b"block"), True),
        ({"mode": "block"}, mode(b"observe"), True),
        ({"mode": "observe"}, mode(b"block"), False),
        (ALLOWED, mode(b"blok"), True),
    ],
)
async def test_headers_win_where_they_are_allowed(settings: dict[str, Any], headers: Headers, blocked: bool) -> None:
    """Over every tier, for their own exchange; and the app never sees them."""
    inner = app()
    guard = guarded(inner, settings)
    exchange = await drive(guard, looping(*headers))
    assert (MARK.encode() in exchange.body) is blocked
    assert not [name for name, _ in inner.heard[-1].headers if name in KEYS]
    assert (b"content-type", b"application/json") in inner.heard[-1].headers


async def test_headers_hold_for_one_exchange() -> None:
    """The next one of the session is judged by the settings again."""
    guard = guarded(app(), ALLOWED)
    assert MARK.encode() not in (await drive(guard, looping(*mode(b"observe")))).body
    assert MARK.encode() in (await drive(guard, looping())).body


async def test_a_wrong_header_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The exchange goes on as without it."""
    guard = guarded(app(), ALLOWED)
    with caplog.at_level(logging.WARNING, "callfuse"):
        for _ in range(3):
            await drive(guard, looping(*mode(b"blok\n")))
    assert guard.counts.of("ignored_headers", "x-callfuse-mode") == 3
    (line,) = [record.getMessage() for record in caplog.records if "x-callfuse-mode" in record.getMessage()]
    assert line.startswith(
        "the header x-callfuse-mode is ignored; further ones like it are not logged: 'blok': use one of"
    )


@pytest.mark.parametrize(
    ("name", "right"),
    [
        (b"x-callfuse-mod", "did you mean x-callfuse-mode?"),
        (b"X-Callfuse-Max-Repeat", "did you mean x-callfuse-max-repeats?"),
        (b"x-callfuse-session", "did you mean x-callfuse-session-id?"),
        (b"x-callfuse-qqq", "use x-callfuse-enabled, x-callfuse-escalate-model, "),
    ],
)
@pytest.mark.parametrize("settings", [ALLOWED, {"mode": "block"}], ids=["allowed", "not allowed"])
async def test_an_unknown_header_is_told_the_right_one(
    settings: dict[str, Any], name: bytes, right: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, whatever its name; its value stays out of the log, and the exchange goes on as without it."""
    guard = guarded(app(), settings)
    with caplog.at_level(logging.WARNING, "callfuse"):
        for one in (name, b"x-callfuse-other"):
            exchange = await drive(guard, looping((one, b"s3cret"), (b"x-callfuse-action", b"block")))
            assert MARK.encode() in exchange.body
    assert guard.counts.of("ignored_headers", "unknown") == 2
    (line,) = [record.getMessage() for record in caplog.records if "header" in record.getMessage()]
    told = f"the header {name.decode().lower()} is ignored; further ones like it are not logged: "
    told += "there is no header of this name; "
    assert line.startswith(told + right)
    assert "s3cret" not in line


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/models"), ("POST", "/v1/embeddings")])
async def test_headers_of_other_requests_go_no_further(method: str, path: str) -> None:
    """SDKs send them with everything."""
    heard: list[Any] = []

    async def bare(scope: Any, receive: Any, send: Any) -> None:
        heard.append(scope["headers"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    headers = [(b"accept", b"*/*"), (b"x-callfuse-mode", b"warn"), (b"x-callfuse-session-id", b"s")]
    scope = {"type": "http", "method": method, "path": path, "headers": headers}

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}"}

    async def send(_: Any) -> None:
        pass

    await CallFuseMiddleware(bare, {})(scope, receive, send)
    assert heard == [[(b"accept", b"*/*"), (b"x-callfuse-session-id", b"s")]]
    assert scope["headers"] == headers


def model_of(request: Request) -> str:
    """The model that a request names."""
    name = json.loads(request.body)["model"]
    assert isinstance(name, str)
    return name


@pytest.mark.parametrize(
    ("pattern", "blocked"),
    [("openai:*", True), ("anthropic:*", False), ("openai:{model}", True), ("openai:other", False)],
)
async def test_settings_of_a_model(pattern: str, blocked: bool) -> None:
    """By the dialect's vendor and the request's model; one that is switched on alone is guarded alone."""
    request = looping()
    pattern = pattern.format(model=model_of(request))
    for settings in (
        {"mode": "observe", "models": {pattern: {"mode": "block"}}},
        {"enabled": False, "mode": "block", "models": {pattern: {"enabled": True}}},
    ):
        exchange = await drive(guarded(app(), settings), request)
        assert (MARK.encode() in exchange.body) is blocked


async def test_a_route_names_the_backend(caplog: pytest.LogCaptureFixture) -> None:
    """For the globs over models, and in the log."""
    config = {
        "tool_call_loop": {"mode": "observe", "models": {"vllm:*": {"mode": "block"}}},
        "serve": {"routes": [{"path": "/own", "upstream": "http://h", "backend": "vllm"}]},
    }
    request = looping()
    for path, backend, blocked in (("/own" + request.path, "vllm", True), (request.path, "openai", False)):
        caplog.clear()
        with caplog.at_level(logging.INFO, "callfuse"):
            exchange = await drive(CallFuseMiddleware(app(), config), Request(path, request.body, request.headers))
        assert (MARK.encode() in exchange.body) is blocked
        assert [record.backend for record in caplog.records if hasattr(record, "backend")] == [backend]


async def test_new_settings_hold_for_new_exchanges() -> None:
    """`configure` changes them in place, streaks are kept, and wrong ones change nothing."""
    guard = guarded(app(), {"mode": "observe"})
    assert MARK.encode() not in (await drive(guard, looping())).body
    guard.configure({"tool_call_loop": {"mode": "block"}})
    assert MARK.encode() in (await drive(guard, looping())).body
    with pytest.raises(ConfigError, match=r"tool_call_loop\.mode = 'blok'"):
        guard.configure({"tool_call_loop": {"mode": "blok"}})
    assert MARK.encode() in (await drive(guard, looping())).body
    guard.configure({"tool_call_loop": {"enabled": False}})
    assert MARK.encode() not in (await drive(guard, looping())).body
