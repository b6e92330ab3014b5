"""Settings by model, and the log, know a model that only the path names: Vertex, Bedrock and Azure."""

import json

import pytest

from tests.guard.written import ANTHROPIC, OPENAI
from tests.support.asgi import JSON_REQUEST, Request
from tests.support.kits import DialectKit
from tests.support.meeting import meet, reply
from tests.support.plain import again, spin

CASES = [
    (ANTHROPIC, "/v1/projects/p/locations/l/publishers/anthropic/models/claude-x@1:rawPredict", "claude-x@1", False),
    (ANTHROPIC, "/projects/p/publishers/anthropic/models/claude-x@1:streamRawPredict", "claude-x@1", True),
    (ANTHROPIC, "/model/eu.anthropic.claude-x-v1:0/invoke", "eu.anthropic.claude-x-v1:0", False),
    (OPENAI, "/v1/projects/p/publishers/mistralai/models/codestral-2@1:rawPredict", "codestral-2@1", False),
    (OPENAI, "/v1/projects/p/publishers/mistralai/models/codestral-2@1:streamRawPredict/", "codestral-2@1", True),
    (OPENAI, "/openai/deployments/my-gpt/chat/completions", "my-gpt", True),
]  # fmt: skip
ids = [path.rpartition("/")[2] for _, path, _, _ in CASES]


def asked(kit: DialectKit, path: str, *, stream: bool) -> Request:
    """A request about a loop whose body names no model."""
    body = json.loads(kit.request(spin(), stream=stream))
    del body["model"]
    return Request(path, json.dumps(body | {"anthropic_version": "vertex-2023-10-16"}).encode(), JSON_REQUEST)


@pytest.mark.parametrize(("kit", "path", "model", "stream"), CASES, ids=ids)
def test_settings_by_model(kit: DialectKit, path: str, model: str, stream: bool) -> None:
    """They hold for the model of the path and for no other, and the log names it."""
    backend = {"anthropic": "anthropic", "openai-chat": "openai"}[kit.name]
    said = reply(kit, again(), stream=stream)
    blocked = meet(asked(kit, path, stream=stream), [said], "observe", models={f"{backend}:{model}": {"mode": "block"}})
    other = meet(asked(kit, path, stream=stream), [said], "observe", models={f"{backend}:other": {"mode": "block"}})
    assert b"call_first" not in blocked.body
    assert other.body == said.body
    assert all(any(model in line for _, _, line in met.log) for met in (blocked, other))


@pytest.mark.parametrize("end", ["", "/"])
def test_other_publishers_are_told_of(end: str) -> None:
    """Vertex passes each publisher's own format; what no dialect reads is counted, however it ends."""
    path = f"/v1/projects/p/publishers/someone/models/x@1:rawPredict{end}"
    said = reply(OPENAI, again(), stream=False)
    met = meet(asked(OPENAI, path, stream=False), [said])
    assert met.body == said.body
    assert any("vertex-raw-predict" in text for _, _, text in met.log)
