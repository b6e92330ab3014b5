"""`callfuse feedback` against a running `callfuse serve`, and `callfuse tune --feedback` with what that has kept."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from callfuse.config import load_config
from tests.cli.processes import callfuse
from tests.cli.test_serve import TOKEN, serving
from tests.cli.test_tune import LOOP, good
from tests.offline.reading import written
from tests.support.kits import KITS
from tests.support.meeting import ask
from tests.support.plain import again, spin
from tests.support.redis import free_port

CHAT = next(kit for kit in KITS if kit.name == "openai-chat")


class Looping(BaseHTTPRequestHandler):
    """A vendor whose model makes the same call for ever."""

    def do_POST(self) -> None:
        """One answer."""
        self.rfile.read(int(self.headers["content-length"]))
        body = CHAT.whole(again())
        self.send_response_only(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Keep the tests' output clean."""


@pytest.fixture
def looping() -> Iterator[str]:
    """The base URL of a vendor on a free port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Looping) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_what_a_finding_was(looping: str, tmp_path: Path) -> None:
    """The id is that of the log; it is counted once, and kept in the file, which `tune` reads."""
    kept = tmp_path / "feedback.jsonl"
    env = {"CALLFUSE_ADMIN_FEEDBACK_FILE": str(kept), "TOOL_LOOP_MODE": "block"}
    with serving("--upstream", looping, "--log-format", "json", **env) as served:
        request = ask(CHAT, spin(), stream=False)
        url = f"http://127.0.0.1:{served.port}"
        headers = {"content-type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(url + request.path, request.body, headers), timeout=60).close()
        assert served.process.stderr is not None
        lines = iter(served.process.stderr.readline, "")
        found = next(one for line in lines if "callfuse.finding.id" in (one := json.loads(line)))
        said = (found["callfuse.finding.id"], "--kind", "false_positive", "--url", f"{url}/_callfuse/")
        for how in ("counted", "was counted before"):
            ended = callfuse("feedback", *said, CALLFUSE_ADMIN_TOKEN=TOKEN)
            assert (ended.returncode, ended.stderr) == (0, "")
            assert ended.stdout == f"{said[0]} (repeat, search, 3/3): false_positive, {how}\n"
        other = callfuse("feedback", "0" * 16, *said[1:], CALLFUSE_ADMIN_TOKEN=TOKEN)
        assert (other.returncode, "no finding with this id is known" in other.stderr) == (1, True)
        stranger = callfuse("feedback", *said, CALLFUSE_ADMIN_TOKEN="another-token-than-that")
        assert (stranger.returncode, "the token in CALLFUSE_ADMIN_TOKEN" in stranger.stderr) == (1, True)
    assert [json.loads(line)["finding"] for line in kept.read_text().splitlines()] == [said[0]] * 2
    tuned = tmp_path / "tuned.yaml"
    log = written(tmp_path / "log.jsonl", *good(), LOOP)
    ended = callfuse("tune", log, "--feedback", str(kept), "--write", str(tuned))
    assert "Feedback: search: max_repeats 2 -> 4, for 1 false positive" in ended.stdout
    assert "feedback on 1 finding, 1 false positive" in ended.stdout
    settings = load_config(tuned, env={}).tool_call_loop
    assert (settings.max_repeats, settings.for_tool("search").settings.max_repeats) == (2, 4)


def test_what_cannot_be_sent() -> None:
    """Each is told in a line, and nothing is sent without a token."""
    url = ("--url", f"http://127.0.0.1:{free_port()}/_callfuse")
    for arguments, env, code, why in (
        (("--kind", "false_positive", *url), {}, 2, "CALLFUSE_ADMIN_TOKEN"),
        (("--kind", "nonsense", *url), {"CALLFUSE_ADMIN_TOKEN": TOKEN}, 2, "false_positive, true_positive, too_late"),
        (("--kind", "too_late", "--url", "here"), {"CALLFUSE_ADMIN_TOKEN": TOKEN}, 2, "the address of the admin page"),
        (("--kind", "too_late", *url), {"CALLFUSE_ADMIN_TOKEN": TOKEN}, 1, "is `callfuse serve` running there?"),
    ):
        ended = callfuse("feedback", "0" * 16, *arguments, **env)
        assert (ended.returncode, ended.stdout) == (code, "")
        assert why in ended.stderr
        assert len(ended.stderr.splitlines()) == 1


def test_a_file_that_is_none(tmp_path: Path) -> None:
    """Is an error; lines that are no feedback are counted and left out."""
    log = written(tmp_path / "log.jsonl", *good(), LOOP)
    ended = callfuse("tune", log, "--feedback", str(tmp_path / "nothing"))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--feedback" in ended.stderr
    assert "cannot be read" in ended.stderr
    odd = tmp_path / "odd.jsonl"
    odd.write_text('nonsense\n{"finding": 1}\n\n')
    ended = callfuse("tune", log, "--feedback", str(odd))
    assert "feedback on 0 findings, 0 false positives; lines without feedback: 2" in ended.stdout
