"""The live page's files and endpoints: nothing from elsewhere, nothing without the token, nothing without a bound."""

import json
import re
from importlib.resources import files
from typing import Any

import pytest

from callfuse.admin.live import BEADS_SHOWN, LANES_SHOWN, PAGE_SIZE
from callfuse.commands.run import KEYS
from callfuse.model import ToolCall
from callfuse.observe import events
from callfuse.observe.events import Event, SettingsChanged, Where
from callfuse.observe.feed import Feed
from callfuse.testing import ScriptedVendor, looping_model
from tests.admin.asking import BEARER, PATH, Guarded
from tests.admin.test_settings import HOSTILE, OTHER, SESSION, Forgetful, of
from tests.support.asgi import Exchange, Headers
from tests.support.kits import KITS
from tests.support.meeting import ask
from tests.support.plain import spin

CHAT = next(kit for kit in KITS if kit.name == "openai-chat")
WHERE = Where(SESSION, "x-session-id", "lane", "gpt-4o", "openai", "openai-chat")
FILES = ("live.html", "page.js", "findings.js", "exchange.js", "page.css")


def text_of(name: str) -> str:
    """A file of the package."""
    return files("callfuse.admin").joinpath(name).read_text(encoding="utf-8")


def looping(**settings: Any) -> Guarded:
    """A model that makes the same call again and again, behind callfuse."""
    script = looping_model("search", {"query": "zebra crossing", "limit": 5}, stubborn=True)
    return Guarded({"tool_call_loop": settings}, vendor=ScriptedVendor(script))


async def turn(guarded: Guarded, times: int, session: str = SESSION) -> Exchange:
    """One request of an agent that has made the call so many times."""
    request = ask(CHAT, spin(times), stream=True)
    headers = (*request.headers, (b"x-session-id", session.encode()))
    return await guarded.ask(request.path, headers, method="POST", body=request.body)


async def change(
    guarded: Guarded, body: object, query: str = f"session={SESSION}", headers: Headers = BEARER
) -> Exchange:
    """Change settings of a session."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await guarded.ask(f"{PATH}/change", headers, query, "POST", content)


def test_all_of_it_is_in_the_package() -> None:
    """In a few files, of 185 kB together at most, wherever the wheel has them."""
    sizes = {one.name: len(one.read_bytes()) for one in files("callfuse.admin").iterdir() if one.is_file()}
    assert set(FILES) <= set(sizes)
    assert sum(sizes.values()) <= 185_000


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_from_elsewhere(name: str) -> None:
    """No other host is named, but in a comment."""
    code = re.sub(r"//.*|/\*.*?\*/", "", text_of(name).replace("http://www.w3.org/2000/svg", ""), flags=re.DOTALL)
    assert not re.search(r"https?:|//\w|@import|url\(", code)


def test_nothing_runs_that_is_not_in_the_file() -> None:
    """No text becomes HTML or code, no handler or style stands in the HTML."""
    banned = (
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|srcdoc|DOMParser|createContextual"
    )
    for script in ("page.js", "findings.js", "exchange.js"):
        text = re.sub(r"^//.*", "", text_of(script), flags=re.MULTILINE)
        assert not re.search(banned, text)
        assert not re.search(r"setAttribute\(\"(on|style|href|src)", text)
    assert not re.search(r"<style|<script>|\son\w+=|\sstyle=|javascript:", text_of("live.html"))


async def test_the_page_and_its_files() -> None:
    """With their types, and a policy that lets in nothing else."""
    guarded = Guarded()
    kinds = {"": b"text/html", "page.js": b"text/javascript", "page.css": b"text/css"}
    for below, kind in kinds.items():
        exchange = await guarded.get(below)
        assert (exchange.header(b"content-type") or b"").startswith(kind)
    policy = (await guarded.get("")).header(b"content-security-policy")
    assert policy == (
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'self'; "
        b"base-uri 'none'; frame-ancestors 'none'"
    )


def test_the_page_is_there_for_everyone() -> None:
    """Landmarks, a language, labels, texts that are told, and a way without script."""
    page = text_of("live.html")
    for wanted in ('<html lang="en">', "<main>", "<header>", "<noscript>", 'role="search"', 'role="status"', "<aside"):
        assert wanted in page
    assert set(re.findall(r'<input id="(\w+)"', page)) == set(re.findall(r'<label for="(\w+)"', page))
    assert set(re.findall(r'aria-labelledby="([\w-]+)"', page)) <= set(re.findall(r'\sid="([\w-]+)"', page))
    style = text_of("page.css")
    for wanted in ("prefers-color-scheme: dark", ":focus-visible", "prefers-reduced-motion", "forced-colors"):
        assert wanted in style


async def test_a_loop_is_seen() -> None:
    """Each call is a bead; the steer and the block stand on theirs, with what was said."""
    guarded = looping()
    for times in range(4):
        await turn(guarded, times)
    (session,) = (await guarded.told("activity"))["sessions"]
    assert (session["session"], session["model"], session["dialect"]) == (SESSION, "gpt-test", "openai-chat")
    told = await guarded.told("activity/session", f"session={SESSION}")
    beads = told["lanes"][0]["beads"]
    assert [bead["action"] for bead in beads] == ["none", "none", "steer", "block", "block"]
    assert {bead["sign"] for bead in beads} == {0}
    assert beads[2]["held"] > 0
    assert beads[2]["told"].startswith("[callfuse] This call was not run.")
    assert beads[3]["told"].startswith("[callfuse] Stopped a tool call loop")
    rates = await guarded.told("rates")
    assert rates["totals"]["saved_calls"] == pytest.approx(5.8)  # more than the three that were withheld
    assert sum(rates["series"]["calls"]) == 5


async def test_results_come_to_their_calls() -> None:
    """Once the client sends them."""
    guarded = looping(mode="observe")
    first = await turn(guarded, 0)
    call_id = re.search(rb'"id":"(call_\w+)"', first.body)
    assert call_id is not None
    request = ask(CHAT, spin(1), stream=True)
    body = request.body.replace(b"call_s0", call_id[1])
    headers = (*request.headers, (b"x-session-id", SESSION.encode()))
    await guarded.ask(request.path, headers, method="POST", body=body)
    told = await guarded.told("activity/session", f"session={SESSION}")
    assert told["lanes"][0]["beads"][0]["outcome"] == {"kind": "no_data", "text": "nothing was found"}


async def test_who_reads_nothing_costs_nothing() -> None:
    """Where no page is, nobody makes the events of results."""
    guarded = looping()
    (feed,) = [sink for sink, _ in guarded.fuse.bus._sinks if isinstance(sink, Feed)]
    assert guarded.fuse.bus.wants(events.ResultSeen)
    guarded.fuse.bus.remove(feed)
    assert not guarded.fuse.bus.wants(events.ResultSeen)


async def test_a_setting_that_is_changed_holds_from_the_next_request_on() -> None:
    """As if a user had typed it; unset, what was before holds again. It is told as an event of the page's."""
    guarded = looping()
    seen: list[Event] = []

    class Sink:
        kinds = frozenset({SettingsChanged})

        def take(self, event: Event) -> None:
            seen.append(event)

    guarded.fuse.bus.add(Sink())
    await turn(guarded, 2)
    exchange = await change(guarded, {"tool-loop-mode": "observe", "tool-loop-ttl": "20"})
    assert (exchange.status, json.loads(exchange.body)) == (200, {"changed": [SESSION]})
    assert b'"tool_calls"' in (await turn(guarded, 5)).body
    rows = await guarded.told("settings", f"session={SESSION}")
    assert of(rows, "mode")["mode"] == ("observe", "session", "command in the chat, or admin page")
    await change(guarded, {"tool-loop-mode": None})
    assert b'"tool_calls"' not in (await turn(guarded, 6)).body
    assert seen == [
        SettingsChanged(SESSION, "tool-loop-ttl = 20, tool-loop-mode = observe", True, "page"),
        SettingsChanged(SESSION, "tool-loop-mode unset", False, "page"),
    ]
    told = await guarded.told("activity/session", f"session={SESSION}")
    assert {one["key"]: one["set"] for one in told["keys"]} == dict.fromkeys(KEYS) | {"tool-loop-ttl": "20.0"}
    assert [one["by"] for one in told["changes"]] == ["page", "page"]


@pytest.mark.parametrize(
    ("body", "query", "status", "said"),
    [
        ({"tool-loop-mode": "brake"}, f"session={SESSION}", 400, "tool-loop-mode = 'brake': use observe, warn, block"),
        ({"tool-loop-max-repeats": "1"}, f"session={SESSION}", 400, "use 0 (off) or a whole number from 2"),
        ({"tool-lop-mode": "warn"}, f"session={SESSION}", 400, "did you mean tool-loop-mode?"),
        (
            {"tool-loop-ttl": "9"},
            f"session={SESSION}",
            400,
            "tool-loop-ttl can only be set by the operator of this server",
        ),
        ({}, f"session={SESSION}", 400, "name the keys to set"),
        ({"tool-loop-mode": 1}, f"session={SESSION}", 400, "send an object of keys with texts"),
        (b"[" * 4000, f"session={SESSION}", 400, "send an object of keys with texts"),
        (b"\xff", f"session={SESSION}", 400, "send an object of keys with texts"),
        (b" " * 5000, f"session={SESSION}", 413, "longer than 4096 bytes"),
        ({"tool-loop-mode": "warn"}, "", 400, "name the session"),
        ({"tool-loop-mode": "warn"}, "session=nobody", 404, "session 'nobody' is unknown"),
        ({"tool-loop-mode": "warn"}, "sesion=x", 400, "there is no parameter 'sesion'"),
    ],
)
async def test_a_wrong_change(body: object, query: str, status: int, said: str) -> None:
    """It is said what is right, and nothing is changed."""
    guarded = looping(commands={"locked": ["tool-loop-ttl"]})
    await turn(guarded, 2)
    exchange = await change(guarded, body, query)
    assert exchange.status == status
    assert said in json.loads(exchange.body)["error"]
    assert await guarded.told("sessions", "changed=1") == []


@pytest.mark.parametrize("below", ["change", "reset"])
async def test_no_page_of_another_site_changes_anything(below: str) -> None:
    """Though its request had the cookie; nor does anybody without token or cookie."""
    guarded = looping()
    await turn(guarded, 2)
    body = b'{"tool-loop-mode": "observe"}'
    for headers, status in (((*BEARER, (b"sec-fetch-site", b"cross-site")), 403), ((), 401)):
        exchange = await guarded.ask(f"{PATH}/{below}", headers, f"session={SESSION}", "POST", body)
        assert exchange.status == status
    assert (await guarded.get(below)).status == 405
    assert await guarded.told("sessions", "changed=1") == []


async def test_where_commands_are_off_nothing_can_be_set() -> None:
    """For it would not hold; the page is told so."""
    guarded = looping(commands={"enabled": False})
    await turn(guarded, 2)
    assert (await guarded.told("activity/session", f"session={SESSION}"))["keys"] == []
    assert (await change(guarded, {"tool-loop-mode": "warn"})).status == 400


async def test_two_clients_with_one_name_for_their_sessions() -> None:
    """Which of them is meant must be said."""
    guarded = Guarded()
    for key in ("one", "two"):
        await guarded.type("!/set(tool-loop-ttl=20)", SESSION, key=key)
    told = await guarded.told("activity/session", f"session={SESSION}")
    assert len(told["clients"]) == 2
    assert (await change(guarded, {"tool-loop-mode": "warn"})).status == 400
    exchange = await change(guarded, {"tool-loop-mode": "warn"}, f"session={SESSION}&client={told['clients'][0]}")
    assert exchange.status == 200
    assert sorted(len(one["set"]) for one in await guarded.told("sessions", "changed=1")) == [1, 2]


async def test_a_store_that_cannot_find_sessions() -> None:
    """What goes on is shown all the same; that nothing can be set is said."""
    guarded = Guarded(store=Forgetful())
    await guarded.type("!/set(tool-loop-ttl=20)", SESSION)
    told = await guarded.told("activity/session", f"session={SESSION}")
    assert told["problem"].endswith("the store that is in use cannot list its sessions")
    assert (await change(guarded, {"tool-loop-mode": "warn"})).status == 400


async def test_an_unknown_session() -> None:
    """It is said."""
    exchange = await Guarded().get("activity/session", "session=%3Cimg%3E%ff")
    assert exchange.status == 404
    assert exchange.header(b"content-type") == b"application/json"


@pytest.mark.parametrize("query", ["page=-1", "page=x", "page=99999999999", "since=9&server=x", "page=%00", "found=1"])
async def test_any_question_has_an_answer(query: str) -> None:
    """A number that is none is 0."""
    guarded = looping()
    await turn(guarded, 0)
    await guarded.told("activity", query)


async def test_foreign_texts_are_json() -> None:
    """Of tools, arguments, models and lanes; what turns the text around it is gone."""
    guarded = Guarded()
    where = WHERE._replace(model=HOSTILE, session="<img src=x>")
    guarded.fuse.bus.emit(events.CallSeen(where, ToolCall(HOSTILE, HOSTILE + "\ud800", HOSTILE), "none"))
    for below in ("activity", "activity/session?session=%3Cimg%20src=x%3E"):
        path, _, query = below.partition("?")
        exchange = await guarded.get(path, query)
        assert (exchange.status, exchange.header(b"content-type")) == (200, b"application/json")
        assert not set(exchange.body.decode()) & set("\u202e\x1b")


async def test_an_answer_does_not_grow_with_the_sessions() -> None:
    """With five times as many it has as many beads."""
    sizes, beads = [], []
    for sessions in (300, 1500):
        guarded = Guarded()
        for number in range(sessions):
            for lane in range(LANES_SHOWN + 1):
                where = WHERE._replace(session=f"session-{number:05}", lane=f"lane-{lane}")
                for at in range(2):
                    guarded.fuse.bus.emit(events.CallSeen(where, ToolCall("", "search", f'{{"a": {at}}}'), "none"))
        exchange = await guarded.get("activity")
        told = json.loads(exchange.body)
        assert len(told["sessions"]) == PAGE_SIZE
        assert all(len(one["lanes"]) == LANES_SHOWN and one["more_lanes"] == 1 for one in told["sessions"])
        sizes.append(len(exchange.body))
        beads.append(sum(len(lane["beads"]) for one in told["sessions"] for lane in one["lanes"]))
        found = await guarded.told("activity", "search=session-00007&page=0")
        assert [one["session"] for one in found["sessions"]] == ["session-00007"]
    assert beads[0] == beads[1] <= PAGE_SIZE * LANES_SHOWN * BEADS_SHOWN
    assert abs(sizes[1] - sizes[0]) < 2000
    assert (await guarded.told("activity", f"session={OTHER}"))["matching"] == 1500


async def test_what_is_known_is_only_named() -> None:
    """To who says from which process it is."""
    guarded = looping()
    await turn(guarded, 0)
    told = await guarded.told("activity")
    query = f"since={told['version']}&server="
    assert (await guarded.told("activity", query + told["server"]))["sessions"] == [{"session": SESSION}]
    assert "lanes" in (await guarded.told("activity", query + "another"))["sessions"][0]
