"""The page in a real browser, where there is one: its own form lets it in, and what it shows can be read and seen."""

import asyncio
import json
import re
import shutil
from html import unescape
from pathlib import Path

import pytest

from tests.admin.asking import PATH, TOKEN, Guarded
from tests.admin.test_settings import SESSION, hostile
from tests.support.asgi import Message, Receive, Scope, Send
from tests.support.serving import serve

BROWSER = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), "")
LOOK = """
<script>addEventListener('load', () => {
  const field = document.querySelector('#token');
  if (field) { field.value = 'TOKEN'; document.querySelector('button').click(); return; }
  const style = element => getComputedStyle(element);
  const row = document.querySelector('tr.given');
  document.title = JSON.stringify({
    cookie: document.cookie, alerts: document.querySelectorAll('[role=alert]').length,
    elements: [document.images.length, document.scripts.length], rows: document.querySelectorAll('tbody tr').length,
    given: row && [...row.cells].map(cell => cell.innerText.trim()), bold: row && style(row.cells[1]).fontWeight,
    labels: [...document.querySelectorAll('input')].map(one => one.labels[0].innerText),
    wide: document.documentElement.scrollWidth <= innerWidth,
    stacked: style(document.querySelector('tbody tr')).display === 'block',
    colours: [style(document.body).color, style(document.body).backgroundColor], width: innerWidth,
  });
});</script></body>"""
"""The page itself allows no script: for the look at it, one is let in that types the token, and says what it sees."""

pytestmark = pytest.mark.skipif(not BROWSER, reason="no chromium here; on Debian: apt-get install chromium")


def looked_at(guarded: Guarded) -> object:
    """The app with the script in its pages."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def with_script(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    (name, value.replace(b"style-src", b"script-src 'unsafe-inline'; style-src"))
                    for name, value in message["headers"]
                    if name != b"content-length"
                ]
            elif b"</body>" in message.get("body", b""):
                script = LOOK.replace("TOKEN", TOKEN)
                message["body"] = message["body"].replace(b"</body>", script.encode())
            await send(message)

        await guarded.app(scope, receive, with_script)

    return app


async def seen(guarded: Guarded, folder: Path, *options: str, host: str = "127.0.0.1") -> dict[str, object]:
    """What a browser sees that logs in by the form, at this machine under some name."""
    async with serve(looked_at(guarded), interface="asgi3") as base_url:  # type: ignore[arg-type]
        process = await asyncio.create_subprocess_exec(
            BROWSER,
            *("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile", *options),
            *("--no-proxy-server", f"--host-resolver-rules=MAP {host} 127.0.0.1", "--virtual-time-budget=20000"),
            *("--dump-dom", f"{base_url.replace('127.0.0.1', host)}{PATH}"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(120):
            dom, errors = await process.communicate()
    found = re.search(r"<title>(.*?)</title>", dom.decode())
    assert found is not None, errors.decode()
    assert found[1].startswith("{"), dom.decode()
    told: dict[str, object] = json.loads(unescape(found[1]))
    return told


@pytest.mark.parametrize("host", ["127.0.0.1", "here.test"])
async def test_a_person_types_the_token(host: str, tmp_path: Path) -> None:
    """Into the form, once: the page is there, its cookie is no script's, and its own style holds. Where a form is from
    the browser says in one header to a host that it trusts, and in another to any other host."""
    guarded = Guarded({"tool_call_loop": {"mode": "warn"}})
    await guarded.type("!/set(tool-loop-ttl=20)", SESSION)
    told = await seen(guarded, tmp_path, host=host)
    assert told["cookie"] == ""
    assert (told["alerts"], told["elements"]) == (0, [0, 1])
    assert told["given"] == ["tool_call_loop.mode", "warn", "server: keyword"]
    assert told["bold"] == "600"
    assert told["labels"] == ["Model, with its backend", "Tool", "Session, as the log names it"]
    assert told["colours"] == ["rgb(27, 31, 36)", "rgb(255, 255, 255)"]
    assert (told["wide"], told["stacked"]) == (True, False)


async def test_on_a_phone_in_the_dark(tmp_path: Path) -> None:
    """Nothing is wider than the screen, whatever names there are, and none of them has become an element."""
    guarded = await hostile()
    dark = "--blink-settings=preferredColorScheme=0"
    told = await seen(guarded, tmp_path, "--window-size=500,900", dark)
    assert told["width"] == 500
    assert told["elements"] == [0, 1]
    assert (told["wide"], told["stacked"]) == (True, True)
    assert told["colours"] == ["rgb(230, 237, 243)", "rgb(13, 17, 23)"]
