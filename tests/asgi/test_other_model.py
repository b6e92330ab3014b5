"""A request for another model finds its way: by the path where that names models, else by its body, or not at all."""

import json
from typing import Any

import pytest

from callfuse import CallFuseMiddleware
from callfuse.asgi.headers import route_to_model
from tests.support.asgi import Request, drive
from tests.support.config import OTHER_MODEL, settings
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import MARK, given_log, reply
from tests.support.plain import again, elsewhere, spin
from tests.support.scripted import ScriptedApp, play

BY_NAME = {kit.name: kit for kit in reversed(KITS)}
AZURE = "/openai/deployments/a/chat/completions"
VERTEX = "/v1/projects/p/locations/l/publishers/anthropic/models/claude-a@1:streamRawPredict"


def body(kit: DialectKit, *, without_model: bool = False, **more: Any) -> bytes:
    """A streaming request, perhaps without a model."""
    asked = json.loads(kit.request(spin(), stream=True)) | more
    return json.dumps({key: value for key, value in asked.items() if not (without_model and key == "model")}).encode()


async def heard(app: ScriptedApp, request: Request) -> tuple[list[tuple[str, Any]], bytes, CallFuseMiddleware]:
    """Paths and models as the app heard them, what the client got, and the guard."""
    guarded = CallFuseMiddleware(app, settings("escalate"))
    with given_log():
        exchange = await drive(guarded, request)
    assert exchange.raised is None
    assert exchange.complete
    return [(one.path, json.loads(one.body).get("model")) for one in app.heard], exchange.body, guarded


@pytest.mark.parametrize(
    ("name", "path", "more", "there"),
    [
        ("openai-chat", AZURE, {}, AZURE.replace("/a/", f"/{OTHER_MODEL}/")),
        ("openai-chat", AZURE, {"without_model": True}, AZURE.replace("/a/", f"/{OTHER_MODEL}/")),
        ("anthropic", VERTEX, {"without_model": True, "anthropic_version": "vertex-2023-10-16"},
         VERTEX.replace("claude-a@1", OTHER_MODEL)),
        ("gemini", "/v1beta/models/a:streamGenerateContent", {}, f"/v1beta/models/{OTHER_MODEL}:streamGenerateContent"),
    ],
)  # fmt: skip
async def test_the_other_model_is_named(name: str, path: str, more: dict[str, Any], there: str) -> None:
    """In the path, in the body, or in both; a body that names none on Vertex still names none."""
    kit = BY_NAME[name]
    app = play(*(reply(kit, one, stream=True) for one in (again(), elsewhere())))
    found, out, _ = await heard(app, Request(path, body(kit, **more)))
    model = OTHER_MODEL if name == "openai-chat" and not more else None
    assert found[1] == (there, model)
    assert b"call_second" in out


@pytest.mark.parametrize(
    ("name", "path", "more"),
    [
        ("gemini", "/v1beta/tunedModels/a:streamGenerateContent", {}),
        ("gemini", "/v1/projects/p/locations/l/endpoints/123:streamGenerateContent", {}),
        ("anthropic", "/own/v1/messages", {"without_model": True}),
        ("openai-chat", "/own/v1/chat/completions", {"without_model": True}),
    ],
)
async def test_where_no_model_is_named_the_next_rung_is_taken(name: str, path: str, more: dict[str, Any]) -> None:
    """A tuned model, an endpoint, a server of one model: nobody else can be asked there. It is counted."""
    kit = BY_NAME[name]
    app = play(reply(kit, again(), stream=True))
    found, out, guarded = await heard(app, Request(path, body(kit, **more)))
    assert len(found) == 1
    assert MARK.encode() in out
    assert b"call_first" not in out
    assert kit.faults(out) == []
    assert guarded.counts.of("not_asked", "path") == 1


@pytest.mark.parametrize(
    ("path", "raw", "model", "there", "raw_there"),
    [
        ("/v1/chat/completions", b"/v1/chat/completions", "b", "/v1/chat/completions", b"/v1/chat/completions"),
        ("/x/models/a b:generateContent", b"/x/models/a%20b:generateContent?alt=sse", "c/d",
         "/x/models/c/d:generateContent", b"/x/models/c%2Fd:generateContent?alt=sse"),
        ("/model/arn:x/a/converse", b"/model/arn%3Ax%2Fa/converse", "us.b:0", "/model/us.b:0/converse",
         b"/model/us.b:0/converse"),
        ("/deployments/a/chat/completions", None, "b", "/deployments/b/chat/completions", None),
    ],
)  # fmt: skip
def test_both_spellings_of_a_path(
    path: str, raw: bytes | None, model: str, there: str, raw_there: bytes | None
) -> None:
    """The raw path, which proxies send on, is quoted as paths are."""
    scope = {"path": path, "raw_path": raw}
    assert route_to_model(scope, model, in_body=True)
    assert scope == {"path": there, "raw_path": raw_there}
