"""Traces of `callfuse serve`, whose process somebody else has given an SDK, as `opentelemetry-instrument` does."""

import asyncio
import http.client
import json
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_serve import PATIENCE_S, Served, serving
from tests.observe.test_otel import CHAT, PARENT, TALK, TRACE, TRACEPARENT, traced
from tests.support.asgi import Request
from tests.support.meeting import framewise
from tests.support.plain import again, spin
from tests.support.scripted import play
from tests.support.serving import serve

pytestmark = pytest.mark.slow
SETUP = """
import os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

out = open(os.environ["SPANS"], "a")
exporter = ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + "\\n")
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
"""


def post(served: Served, request: Request) -> int:
    """Send a request and read its answer; returns its status."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
    headers = {name.decode(): value.decode() for name, value in request.headers if name != b"host"}
    with closing(connection):
        connection.request("POST", request.path, request.body, headers)
        with connection.getresponse() as answer:
            answer.read()
            return answer.status


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_spans_of_a_server(tmp_path: Path, workers: str) -> None:
    """One for each exchange with a finding, below the client's span, and above the second request; in each worker."""
    (tmp_path / "sitecustomize.py").write_text(SETUP)
    file = tmp_path / "spans"
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    env = {"PYTHONPATH": path, "SPANS": str(file), "CALLFUSE_OTEL_ENABLED": "on", "TOOL_LOOP_MODE": "chance"}
    app = play(framewise(CHAT, again()), framewise(CHAT, TALK))
    async with serve(app) as upstream:
        with serving("--upstream", upstream, "--workers", workers, **env) as served:
            assert await asyncio.to_thread(post, served, traced(CHAT, spin())) == 200
            code, printed = await asyncio.to_thread(served.end, signal.SIGTERM)
    assert (code, "Traceback" in printed) == (0, False)
    spans: list[dict[str, Any]] = [json.loads(line) for line in file.read_text().splitlines()]
    (span,) = spans
    assert span["context"]["trace_id"] == f"0x{TRACE}"
    assert span["parent_id"] == f"0x{PARENT}"
    assert (span["attributes"]["callfuse.action"], span["attributes"]["callfuse.ending"]) == ("steer", "complete")
    own = span["context"]["span_id"].removeprefix("0x")
    assert [heard.header(b"traceparent") for heard in app.heard] == [TRACEPARENT, f"00-{TRACE}-{own}-01".encode()]
