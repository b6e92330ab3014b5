"""What the vendor sent and what the client got, over HTTP: of exchanges with a finding, where keeping them is on."""

import json
from dataclasses import replace
from typing import Any

import pytest

from callfuse import CallFuseMiddleware
from callfuse.observe.events import FindingSeen
from callfuse.observe.exchanges import KeptAnswer
from tests.admin.asking import Guarded
from tests.support.asgi import JSON_REQUEST, App, Exchange, Receive, Scope, Send, drive
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import ask, framewise, reply
from tests.support.observing import Observed
from tests.support.plain import RESULT, again, elsewhere, spin
from tests.support.scripted import Reply, ScriptedApp, gzipped, whole

CHAT = next(kit for kit in KITS if kit.name == "openai-chat")
SECRET = b"sk-live-0123456789abcdef"


class Recorded(Guarded):
    """A vendor, by default one with a script, behind callfuse, which keeps exchanges."""

    def __init__(self, *replies: Reply, app: App | None = None, loop: Any = None, **admin: Any) -> None:
        self.script = ScriptedApp(replies)
        config = {"admin": {"keep_exchanges": True, **admin}, "tool_call_loop": loop or {}}
        super().__init__(config, vendor=app or self.script)
        self.seen = Observed()
        self.fuse.bus.add(self.seen)

    async def ask_model(self, kit: DialectKit, *, times: int = 2, stream: bool = True) -> Exchange:
        """One request of an agent that has made a call so many times."""
        headers = (*JSON_REQUEST, (b"x-session-id", b"one"))
        return await drive(self.app, ask(kit, spin(times), stream=stream, headers=headers))

    @property
    def findings(self) -> list[str]:
        """The ids of all findings."""
        return list(dict.fromkeys(one.finding_id for one in self.seen.of(FindingSeen)))

    async def shown(self, finding: str) -> Any:
        """What is kept of the exchange of a finding."""
        return await self.told("findings/exchange", f"id={finding}")


@pytest.mark.parametrize("kit", KITS, ids=lambda kit: kit.name)
async def test_both_sides_of_a_steered_answer(kit: DialectKit) -> None:
    """Each answer of the vendor, and the one that the client got: all as they came."""
    replies = (reply(kit, again(), stream=True), reply(kit, elsewhere(), stream=True))
    guarded = Recorded(*replies)
    exchange = await guarded.ask_model(kit)
    (finding,) = guarded.findings
    told = await guarded.shown(finding)
    assert (told["is_over"], told["findings"]) == (True, [finding])
    assert [one["size"] for one in told["vendor"]] == [len(one.body) for one in replies]
    assert told["client"]["size"] == len(exchange.body)
    assert [one["status"] for one in (*told["vendor"], told["client"])] == [200, 200, 200]
    assert [one["left_out"] for one in (*told["vendor"], told["client"])] == [0, 0, 0]
    if not kit.name.startswith("bedrock"):  # that one is binary
        assert [as_text(one) for one in told["vendor"]] == [one.body.decode().replace("\r", "\\r") for one in replies]
        assert as_text(told["client"]) == exchange.body.decode().replace("\r", "\\r")


def as_text(answer: Any) -> str:
    """The whole text of an answer."""
    text: str = answer["first"] + answer["last"]
    return text


async def test_a_healthy_exchange_is_not_kept() -> None:
    """Nothing is left of it at its end."""
    guarded = Recorded(reply(CHAT, elsewhere(), stream=True))
    await guarded.ask_model(CHAT, times=1)
    assert guarded.findings == []
    assert guarded.fuse.exchanges.size == 0


async def test_it_is_off_by_default() -> None:
    """Nothing is kept, and the endpoint says so."""
    guarded = Recorded(reply(CHAT, again(), stream=True), reply(CHAT, elsewhere(), stream=True), keep_exchanges=False)
    await guarded.ask_model(CHAT)
    (finding,) = guarded.findings
    answer = await guarded.get("findings/exchange", f"id={finding}")
    assert answer.status == 404
    assert json.loads(answer.body) == {"error": "no exchange is kept: admin.keep_exchanges is off"}
    assert guarded.fuse.exchanges.size == 0
    assert (await guarded.told("findings/detail", f"id={finding}"))["keeps_exchanges"] is False


async def test_without_an_admin_page_nothing_is_kept() -> None:
    """Nobody could see it."""
    script = ScriptedApp((reply(CHAT, again(), stream=True), reply(CHAT, elsewhere(), stream=True)))
    fuse = CallFuseMiddleware(script, {"admin": {"keep_exchanges": True}})
    await drive(fuse, ask(CHAT, spin(), stream=True))
    assert fuse.exchanges.size == 0


async def test_it_is_turned_on_and_off_while_it_serves() -> None:
    """A reload is enough; off drops what was kept."""
    script = reply(CHAT, again(), stream=True), reply(CHAT, elsewhere(), stream=True)
    guarded = Recorded(*script, keep_exchanges=False)
    guarded.fuse.configure({"admin": {"keep_exchanges": True}})
    await guarded.ask_model(CHAT)
    (finding,) = guarded.findings
    assert (await guarded.shown(finding))["client"]["status"] == 200
    assert (await guarded.told("findings/detail", f"id={finding}"))["keeps_exchanges"] is True
    guarded.fuse.configure({})
    assert guarded.fuse.exchanges.size == 0


async def test_it_needs_the_token() -> None:
    """As everything else."""
    guarded = Recorded(reply(CHAT, again(), stream=True), reply(CHAT, elsewhere(), stream=True))
    await guarded.ask_model(CHAT)
    (finding,) = guarded.findings
    assert (await guarded.get("findings/exchange", f"id={finding}", ())).status == 401


@pytest.mark.parametrize("query", ["", "id=", "id=0123456789abcdef", "id=%3Cscript%3E"])
async def test_an_unknown_finding(query: str) -> None:
    """404, and why that may be."""
    answer = await Recorded().get("findings/exchange", query)
    assert answer.status == 404
    assert json.loads(answer.body)["error"].startswith("this exchange is not kept: ")


async def test_no_request_and_no_header_of_it_is_shown() -> None:
    """Of the headers of an answer only what tells how to read its body."""
    said = reply(CHAT, again(), stream=False)
    cookie = replace(said, headers=(*said.headers, (b"set-cookie", b"id=of-the-vendor")))
    guarded = Recorded(cookie, reply(CHAT, elsewhere(), stream=False))
    await guarded.ask_model(CHAT, stream=False)
    answer = await guarded.get("findings/exchange", f"id={guarded.findings[0]}")
    assert answer.status == 200
    for word in (
        "key-of-the-test",
        "of-the-vendor",
        "authorization",
        "x-session-id",
        RESULT,
        "Find the zebra crossing.",
    ):
        assert word.encode() not in answer.body
    told = json.loads(answer.body)
    assert set(told) == {"began", "is_over", "findings", "vendor", "client"}
    fields = {"status", "media_type", "coding", "is_unpacked", "size", "ended", "first", "left_out", "last"}
    assert set(told["client"]) == set(told["vendor"][0]) == fields


async def test_secrets_are_starred_and_controls_escaped() -> None:
    """In what a vendor sends, whatever it is."""
    said = reply(CHAT, again(), stream=True)
    odd = b": token " + SECRET + b" \x1b[31m \xe2\x80\xae \xff <script>\n\n"
    guarded = Recorded(said.cut((*said.chunks, odd)), reply(CHAT, elsewhere(), stream=True), loop={"mode": "observe"})
    await guarded.ask_model(CHAT)
    text = as_text((await guarded.shown(guarded.findings[0]))["vendor"][0])
    assert SECRET.decode() not in text
    assert text.endswith(": token *** \\x1b[31m \\u202e \N{REPLACEMENT CHARACTER} <script>\n\n")


async def test_a_packed_answer_is_unpacked() -> None:
    """As text, whether it is whole or a stream."""
    for stream in (False, True):
        plain = reply(CHAT, again(), stream=stream)
        packed = gzipped(plain)
        guarded = Recorded(packed, reply(CHAT, elsewhere(), stream=stream))
        await guarded.ask_model(CHAT, stream=stream)
        told = await guarded.shown(guarded.findings[0])
        came = told["vendor"][0]
        assert (came["coding"], came["is_unpacked"], came["size"]) == ("gzip", True, len(packed.body))
        assert as_text(came) == plain.body.decode()
        assert told["client"]["coding"] == ""


async def test_a_packed_answer_is_unpacked_within_the_limit() -> None:
    """However much it unpacks to, and as far as it can be read."""
    said = reply(CHAT, again(), stream=True)
    padded = said.cut((*said.chunks, b"".join(b": padding %d\n\n" % at for at in range(9000))))
    packed = gzipped(padded)
    for answer in (packed, packed.cut((packed.body[:-2000] + b"broken",))):
        guarded = Recorded(answer, reply(CHAT, elsewhere(), stream=True), max_exchange_bytes=98_304)
        await guarded.ask_model(CHAT)
        came = (await guarded.shown(guarded.findings[0]))["vendor"][0]
        assert (came["is_unpacked"], came["left_out"]) == (False, 0)
        assert padded.body.startswith(came["first"].encode())
        assert len(said.body) < len(came["first"]) <= 98_304


async def test_a_long_answer_loses_its_middle() -> None:
    """How many bytes are left out is told."""
    said = reply(CHAT, again(), stream=True)
    padding = tuple(b": padding %d\n\n" % at for at in range(10_000))
    long = said.cut((*padding, *said.chunks))
    guarded = Recorded(long, reply(CHAT, elsewhere(), stream=True), max_exchange_bytes=16_384)
    await guarded.ask_model(CHAT)
    came = (await guarded.shown(guarded.findings[0]))["vendor"][0]
    assert came["size"] == len(long.body)
    assert came["first"].startswith(": padding 0\n")
    assert len(came["first"]) + came["left_out"] + len(came["last"]) == came["size"]
    assert guarded.fuse.exchanges.size <= 16_384


async def test_buffers_and_headers_of_other_types() -> None:
    """Bytes that an app may write over are copied; headers that can be read once reach the client."""
    said = reply(CHAT, again(), stream=True)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": (pair for pair in said.headers)})
        buffer = bytearray(said.body)
        await send({"type": "http.response.body", "body": buffer, "more_body": True})
        buffer[:] = bytes(len(buffer))
        await send({"type": "http.response.body"})

    guarded = Recorded(app=app, loop={"mode": "observe"})
    exchange = await guarded.ask_model(CHAT)
    assert exchange.header(b"content-type") == dict(said.headers)[b"content-type"]
    (came,) = (await guarded.shown(guarded.findings[0]))["vendor"]
    assert as_text(came) == said.body.decode()


async def test_an_answer_that_goes_on() -> None:
    """It is shown as far as it has come."""
    seen: list[Any] = []
    first, second = reply(CHAT, again(), stream=True), reply(CHAT, elsewhere(), stream=True)
    said = iter([first, second])

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        answer = next(said)
        await send({"type": "http.response.start", "status": 200, "headers": answer.headers})
        await send({"type": "http.response.body", "body": answer.body, "more_body": True})
        if answer is second:
            seen.append(await guarded.shown(guarded.findings[0]))
        await send({"type": "http.response.body"})

    guarded = Recorded(app=app)
    await guarded.ask_model(CHAT)
    (before,) = seen
    assert (before["is_over"], before["client"]["ended"]) == (False, False)
    assert [as_text(one) for one in before["vendor"]] == [first.body.decode(), second.body.decode()]
    after = await guarded.shown(guarded.findings[0])
    assert (after["is_over"], after["client"]["ended"]) == (True, True)


async def test_an_answer_of_callfuse_itself() -> None:
    """The vendor was not asked; the client got a block."""
    storm = {"detectors": {"retry_storm": 2, "retry_storm_most": "block"}}
    guarded = Recorded(whole(b"{}", 503), loop={"mode": "block", **storm})
    for _ in range(2):
        exchange = await guarded.ask_model(CHAT, stream=False)
    assert exchange.status == 200
    told = await guarded.shown(guarded.findings[-1])
    assert told["vendor"] == []
    assert (told["client"]["status"], as_text(told["client"])) == (200, exchange.body.decode())


async def test_the_client_gets_the_same() -> None:
    """Message by message, whether exchanges are kept or not; and so does the vendor."""
    replies = (framewise(CHAT, again()), framewise(CHAT, elsewhere()))
    on, off = Recorded(*replies), Recorded(*replies, keep_exchanges=False)
    with_it, without = await on.ask_model(CHAT), await off.ask_model(CHAT)
    assert with_it.sent == without.sent
    assert on.script.heard == off.script.heard


async def test_a_recording_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is not recorded, and the error is counted."""

    def fail(*_: object) -> None:
        raise RuntimeError

    replies = (framewise(CHAT, again()), framewise(CHAT, elsewhere()))
    expected = await Recorded(*replies, keep_exchanges=False).ask_model(CHAT)
    guarded = Recorded(*replies)
    monkeypatch.setattr(KeptAnswer, "add", fail)
    assert (await guarded.ask_model(CHAT)).sent == expected.sent
    assert guarded.fuse.counts.of("fail_open", "RuntimeError while recording") == 1
