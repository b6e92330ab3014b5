"""What is shown: the settings as `callfuse config explain` has them, and what sessions have set."""

import json
import re
import time
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from callfuse.admin.page import SESSIONS_SHOWN
from callfuse.config import resolve
from callfuse.conversations.identity import Lane
from callfuse.conversations.ledger import LaneState, Read, SessionKey, SessionState
from callfuse.conversations.memory import MemoryLedger
from callfuse.policy.settings import MODES
from callfuse.policy.tiers import Overrides
from tests.admin.asking import BEARER, BROWSER, Guarded
from tests.cli.processes import callfuse
from tests.project.sources import document

SETTINGS = """\
tool_call_loop:
  max_repeats: 4
  models: {"openai:gpt-4o*": {mode: block}}
  per_tool:
    search_*: {max_calls: 9}
serve: {upstream: "https://me:s3cret@h.example/v1", routes: ["/b=http://you:s3cret@g.example"]}
store: "rediss://me:s3cret@cache.example/1?ssl_password=s3cret"
"""
HOSTILE = "<script>alert('x')</script>\"&\u202e\x1b[31m\n"
SESSION = "session-of-the-test"
OTHER = "session-of-another"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with settings of every tier."""
    path = tmp_path / "c.yaml"
    path.write_text(SETTINGS)
    return path


def of(rows: list[dict[str, Any]], *keys: str) -> dict[str, tuple[Any, str, str]]:
    """Value, tier and source of some keys of the block."""
    found = {row["key"].removeprefix("tool_call_loop."): row for row in rows}
    return {key: (found[key]["value"], found[key]["tier"], found[key]["source"]) for key in keys}


def cells(page: str) -> list[list[str]]:
    """The table of settings as a reader sees it."""
    rows = re.findall(r"<tr[^>]*><th scope=\"row\"><code>(.*?)</code></th><td>(.*?)</td><td>(.*?)</td></tr>", page)
    return [[unescape(re.sub(r"</?code>", "", cell)) for cell in row] for row in rows]


@pytest.mark.parametrize(
    ("model", "tool"), [("", ""), ("openai:gpt-4o-mini", ""), ("", "search_web"), ("OpenAI:gpt-4o", "search_web")]
)
async def test_settings_are_what_explain_prints(file: Path, model: str, tool: str) -> None:
    """To the letter: as JSON, and as cells of the page; no credential is in either."""
    asked = [*(["--model", model] if model else []), *(["--tool", tool] if tool else [])]
    explained = callfuse("config", "explain", "--config", str(file), "--json", *asked)
    told = callfuse("config", "explain", "--config", str(file), *asked)
    guarded = Guarded(resolve(file, {}))
    exchange = await guarded.get("settings", f"model={model}&tool={tool}&session=")
    assert exchange.header(b"content-type") == b"application/json"
    assert exchange.body.decode() + "\n" == explained.stdout
    page = await guarded.page(f"model={model}&tool={tool}")
    rows = re.split(r"\n(?=\S)", told.stdout.strip())  # what has no room in a line goes on in an indented one
    assert [row.split() for row in rows] == [" ".join(row).split() for row in cells(page)]
    for text in (explained.stdout, page):
        assert "https://***@h.example/v1" in text
        assert "http://***@g.example" in text
        assert "rediss://***@cache.example/1?***" in text
        assert "s3cret" not in text


async def test_only_what_differs_from_the_defaults(file: Path) -> None:
    """As JSON and on the page, where a box for it is ticked; without any such setting a sentence says so."""
    guarded = Guarded(resolve(file, {}))
    every = await guarded.told("settings")
    changed = [row for row in every if row["tier"] != "default"]
    assert 0 < len(changed) < len(every)
    assert await guarded.told("settings", "changed=1") == changed
    page = await guarded.page("changed=1")
    assert [row[0] for row in cells(page)] == [row["key"] for row in changed]
    assert 'name="changed" value="1" checked>' in page
    assert 'href="settings?changed=1"' in page
    assert 'name="changed" value="1">' in await guarded.page()
    assert "Every setting is its default." in await Guarded(resolve({}, {})).page("changed=1")


async def test_what_a_session_has_set_is_shown() -> None:
    """With its tier and source, under its name in the log; it holds for that session alone."""
    guarded = Guarded()
    assert b"tool-loop-mode = warn" in await guarded.type("!/set(tool-loop-mode=warn, tool-loop-ttl=20)", SESSION)
    rows = await guarded.told("settings", f"session={SESSION}")
    assert of(rows, "mode", "ttl_seconds", "window") == {
        "mode": ("warn", "session", "command in the chat, or admin page"),
        "ttl_seconds": (20.0, "session", "command in the chat, or admin page"),
        "window": (10, "default", ""),
    }
    for query in ("", f"session={OTHER}"):
        assert of(await guarded.told("settings", query), "mode")["mode"] == ("chance_then_block", "default", "")
    page = await guarded.page(f"session={SESSION}")
    assert ["tool_call_loop.mode", "warn", "session: command in the chat, or admin page"] in cells(page)
    assert "set nothing" not in page
    assert "This session has no settings of its own here." in await guarded.page(f"session={OTHER}")


@pytest.mark.parametrize("session", ["7", "my own session", "x" * 300, "a/b\tc"])
async def test_a_session_is_found_by_the_id_of_its_client(session: str) -> None:
    """However the log names it; as JSON and on the page."""
    guarded = Guarded()
    await guarded.type("!/set(tool-loop-mode=warn)", session)
    asked = f"session={quote(session)}"
    assert of(await guarded.told("settings", asked), "mode")["mode"][0] == "warn"
    page = await guarded.page(asked)
    assert "set nothing" not in page
    assert "It is unknown" not in page


async def test_an_unknown_session_is_said_to_be_unknown() -> None:
    """One that is known and has set nothing is not."""
    guarded = Guarded()
    lane = Lane(b"key", SESSION, b"f" * 16, "x-session-id")
    await guarded.fuse.ledger.write({lane: LaneState()}, time.time())
    known, unknown = await guarded.page(f"session={SESSION}"), await guarded.page(f"session={OTHER}")
    assert "has no settings of its own" in known
    assert "It is unknown" not in known
    assert "It is unknown" in unknown
    for session, header in ((SESSION, None), (OTHER, b"unknown")):
        exchange = await guarded.get("settings", f"session={session}")
        assert (exchange.status, exchange.header(b"x-callfuse-session")) == (200, header)


async def test_a_cache_key_names_the_sessions_made_of_it() -> None:
    """Those whose name is the key and a fingerprint; no other that begins so."""
    ledger = MemoryLedger(max_lanes=9, ttl_s=60)
    names = ("key", "key." + "f" * 32, "key." + "e" * 32, "key.other", "keys", "key." + "f" * 33)
    for name in names:
        await ledger.write({Lane(b"c", name, b"f" * 16, "prompt_cache_key"): LaneState()}, 1)
    assert {one.key[1] for one in await ledger.find_sessions("key", 2)} == set(names[:3])
    assert await ledger.find_sessions("key", 62) == []


async def test_sessions_are_listed() -> None:
    """With what they have set and when they were last used, the last one first; those that have set nothing are not."""
    guarded = Guarded()
    assert await guarded.told("sessions", "changed=1") == []
    assert "No session has settings of its own." in await guarded.page()
    await guarded.type("!/set(tool-loop-mode=warn)", SESSION)
    await guarded.type("!/set(tool-loop-max-repeats=7)", OTHER)
    await guarded.type("!/status", "session-that-only-asked")
    one, other = await guarded.told("sessions", "changed=1")
    assert (one["session"], one["set"]) == (OTHER, {"max_repeats": 7})
    assert (other["session"], other["set"]) == (SESSION, {"mode": "warn"})
    assert set(one) == {"session", "client", "last_used", "set"}
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\+00:00", one["last_used"])
    page = await guarded.page("tool=a&model=openai:x")
    link = f'<a href="plain?model=openai%3Ax&amp;tool=a&amp;session={OTHER}&amp;client={one["client"]}">{OTHER}</a>'
    assert f'<th scope="row">{link}</th>' in page
    assert "<code>max_repeats = 7</code>" in page


async def test_all_sessions_are_listed() -> None:
    """Those that have set nothing, too, with what is counted of each, the last used one first."""
    guarded = Guarded()
    await guarded.type("!/set(tool-loop-mode=warn)", SESSION)
    for session in ("asked-first", "asked-last"):
        await guarded.type("!/status", session)
    listed = await guarded.told("sessions")
    assert [(one["session"], bool(one["set"])) for one in listed] == [
        ("asked-last", False), ("asked-first", False), (SESSION, True),
    ]  # fmt: skip
    assert {one["dialect"] for one in listed} == {"openai-chat"}
    assert all(one["calls"] == one["findings"] == one["loops"] == 0 for one in listed)
    assert [one["session"] for one in await guarded.told("sessions", "changed=1")] == [SESSION]


async def test_what_operators_have_locked_since_is_not_what_a_session_has_set() -> None:
    """It holds no more, so it is not shown."""
    guarded = Guarded()
    await guarded.type("!/set(tool-loop-mode=warn, tool-loop-ttl=20)", SESSION)
    await guarded.type("!/set(tool-loop-mode=warn)", OTHER)
    guarded.fuse.configure({"tool_call_loop": {"commands": {"locked": ["tool-loop-mode"]}}})
    (one,) = await guarded.told("sessions", "changed=1")
    assert (one["session"], one["set"]) == (SESSION, {"ttl_seconds": 20.0})
    assert of(await guarded.told("settings", f"session={SESSION}"), "mode")["mode"][1] == "default"


async def test_two_clients_with_one_name_for_their_sessions() -> None:
    """Neither is taken for the other; both are told apart without a word on their keys."""
    guarded = Guarded()
    await guarded.type("!/set(tool-loop-mode=warn)", SESSION, key="key-one")
    await guarded.type("!/set(tool-loop-mode=block)", SESSION, key="key-two")
    two, one = await guarded.told("sessions", "changed=1")
    assert one["client"] != two["client"]
    for query in ("settings", "plain"):
        exchange = await guarded.get(query, f"session={SESSION}", headers=(*BEARER, *BROWSER))
        assert exchange.status == 400
        told = unescape(exchange.body.decode())
        assert f"several clients have a session of this name; add client={two['client']} or {one['client']}" in told
    for listed, mode in ((one, "warn"), (two, "block")):
        rows = await guarded.told("settings", f"session={SESSION}&client={listed['client']}")
        assert of(rows, "mode")["mode"][0] == mode
        assert "key-" not in json.dumps(rows)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("model=gpt-4o", "model 'gpt-4o': there is no such backend; use backend and model, as in openai:gpt-4o"),
        ("model=opnai:x", "model 'opnai:x': there is no such backend; did you mean openai:x?"),
        ("modle=openai:x", "there is no parameter 'modle'; did you mean model?"),
        ("q=x", "there is no parameter 'q'; use model, tool, session, client, changed"),
        ("tool=a&tool=b", "tool is given twice; keep one"),
    ],
)
async def test_a_wrong_question(query: str, problem: str) -> None:
    """What is wrong with it, and what would be right: for programs, and on the page."""
    guarded = Guarded()
    exchange = await guarded.get("settings", query)
    assert (exchange.status, json.loads(exchange.body)) == (400, {"error": problem})
    page = await guarded.get("plain", query)
    assert page.status == 400
    assert f'role="alert">{problem}</p>' in unescape(page.body.decode())


class Forgetful:
    """A store that keeps no list of its sessions."""

    async def read(self, lane: Lane, now: float) -> tuple[LaneState, SessionState]:
        """Nothing is kept."""
        return LaneState(), SessionState()

    async def write(self, lanes: Mapping[Lane, LaneState], now: float, read: Read | None = None) -> None:
        """Nothing is kept."""

    async def write_session(
        self, session: SessionKey, state: SessionState, now: float, read: SessionState | None = None
    ) -> None:
        """Nothing is kept."""


async def test_a_store_that_cannot_list_its_sessions() -> None:
    """It is said, and everything else is shown."""
    guarded = Guarded(store=Forgetful())
    unlisted = "the store that is in use cannot list its sessions"
    exchange = await guarded.get("sessions")
    assert (exchange.status, json.loads(exchange.body)) == (501, {"error": unlisted})
    exchange = await guarded.get("settings", "session=x")
    assert (exchange.status, json.loads(exchange.body)) == (400, {"error": f"session 'x': {unlisted}"})
    assert unlisted in await guarded.page()
    assert of(await guarded.told("settings"), "window")["window"][0] == 10


async def hostile() -> Guarded:
    """Settings, and a store, with names that a page must not take at their word."""
    ledger = MemoryLedger(max_lanes=1000, ttl_s=10**12)
    tools = {HOSTILE: {"mode": MODES["warn"]}}
    await ledger.write_session((b"key", HOSTILE), SessionState(Overrides({"ttl_seconds": 9.0}, tools)), 0)
    loop = {"per_tool": {f"*{HOSTILE}": {"max_repeats": 7}}, "error_messages": {"block": HOSTILE}}
    return Guarded({"tool_call_loop": loop}, store=ledger)


async def test_hostile_names_stay_text() -> None:
    """Of sessions, tools, patterns and texts: nothing of them is markup, none turns the text around it."""
    guarded = await hostile()
    asked = "tool=%3Cscript%3Ealert('x')%3C/script%3E%22%26%E2%80%AE%1B%5B31m%0A&session=%22%3E%3Cimg%20src=x%3E"
    pages = [
        await guarded.page(),
        await guarded.page(asked),
        await guarded.page("session=%3Cscript%3Ealert('x')%3C/script%3E%22%26%E2%80%AE%1B%5B31m"),
        (await guarded.get("plain", "%3Cimg%20src=x%3E=1")).body.decode(),
        (await guarded.get("plain", "model=%3Cimg%20src=x%3E")).body.decode(),
    ]
    for page in pages:
        assert not re.search(r"<(script|img)", page)
        assert not set(page) & set("\u202e\x1b")
        assert "&lt;script&gt;" in page or "&lt;img src=x&gt;" in page
        assert {tag.lower() for tag in re.findall(r"</?(\w+)", page)} <= {
            "a", "body", "br", "button", "caption", "code", "form", "h1", "h2", "head", "html", "input", "label",
            "main", "meta", "p", "small", "style", "table", "tbody", "td", "th", "thead", "title", "tr",
        }  # fmt: skip
    assert f'value="{"&quot;&gt;&lt;img src=x&gt;"}"' in pages[1]


async def test_a_page_shows_some_sessions_of_many() -> None:
    """The last used; all of them are in the JSON."""
    guarded = await hostile()
    for number in range(SESSIONS_SHOWN + 1):
        await guarded.fuse.ledger.write_session(
            (b"key", f"session-{number}"), SessionState(Overrides({"max_repeats": 2})), 1
        )
    page = await guarded.page()
    assert page.count("<td><code>max_repeats = 2</code></td>") == SESSIONS_SHOWN
    assert f"the last {SESSIONS_SHOWN} of {SESSIONS_SHOWN + 2}" in page
    assert len(await guarded.told("sessions", "changed=1")) == SESSIONS_SHOWN + 2


async def test_new_settings_are_shown_at_once() -> None:
    """Wherever the middleware has them from."""
    guarded = Guarded()
    guarded.fuse.configure({"tool_call_loop": {"enabled": False, "window": 20}})
    assert of(await guarded.told("settings"), "window")["window"] == (20, "server", "keyword")
    assert json.loads((await guarded.get("health", headers=())).body)["enabled"] is False


async def test_the_page_is_there_for_everyone() -> None:
    """Every field has its label, every table its heads; nothing is from elsewhere, and nothing runs."""
    guarded = Guarded()
    await guarded.type("!/set(tool-loop-mode=warn)", SESSION)
    for page in (await guarded.page(), (await guarded.get("", headers=BROWSER)).body.decode()):
        fields = re.findall(r'<input id="(\w+)"', page)
        assert fields
        assert fields == re.findall(r'<label for="(\w+)"', page)
        assert '<html lang="en">' in page
        assert "prefers-color-scheme: dark" in page
        assert ":focus-visible" in page
        assert not re.search(r"\b(src|srcset|data|style|on\w+)=|url\(|@import|https?:", page)
        assert page.count("<thead>") == page.count("<table")


async def test_the_document_is_true() -> None:
    """Each endpoint that it names is there, and as open as it says."""
    guarded = Guarded({"admin": {"keep_exchanges": True}})
    kept = guarded.fuse.exchanges.open()
    assert kept is not None
    kept.note("known")
    first = document("docs/admin.md").partition("\n|---")[2].partition("\n\n")[0]
    table = [line.strip("|").split("|") for line in first.splitlines() if line.startswith("| `")]
    for name, what, who in table:
        below, known = name.strip().strip("`./"), 405 if what.strip().startswith("POST: ") else 200
        if below == "events":
            guarded.admin.stop()  # the feed ends
        query = "id=known" if below == "findings/exchange" else ""
        assert (await guarded.get(below, query)).status == known
        is_open = known == 405 or who.strip() == "open"
        assert (await guarded.get(below, headers=())).status == (known if is_open else 401)
