"""Gemini's calls without ids: what a conversation shows is known by what its rounds call, and by their order."""

import json
from typing import Any

import pytest

from tests.support.asgi import Request
from tests.support.meeting import Session, in_session
from tests.support.scripted import whole

TOOLS = [{"functionDeclarations": [{"name": "search"}]}]


def ran(wanted: str, *, ids: bool, ladder: str) -> str:
    """What an agent gets whose model wants these calls, one an answer: a call, or `-` for a block, whose text stays in
    its history. `a` brings the same result each time."""
    contents: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": "Find it."}]}]
    got: list[str] = []

    async def talk(session: Session) -> None:
        for number, query in enumerate(wanted):
            call = {"name": "search", "args": {"query": query}} | ({"id": f"c{number}"} if ids else {})
            answer = {"candidates": [{"content": {"parts": [{"functionCall": call}]}, "finishReason": "STOP"}]}
            body = json.dumps({"contents": contents, "tools": TOOLS}).encode()
            reply = whole(json.dumps(answer).encode())
            met = await session.exchange(Request("/v1beta/models/m:generateContent", body), reply, reply)
            (part,) = json.loads(met.body)["candidates"][0]["content"]["parts"]
            contents.append({"role": "model", "parts": [part]})
            got.append(query if "functionCall" in part else "-")
            if "functionCall" in part:
                came = {"response": {"text": f"found {query}"}}
                contents.append({"role": "user", "parts": [{"functionResponse": call | came}]})

    in_session(talk, ladder)
    return "".join(got)


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
def test_a_blocked_call_runs_once_after_a_new_one(ladder: str, ids: bool) -> None:
    """And if it brings the same as before, the next one is blocked at once. The model's turns after a block are one
    round behind the other, so that no round stands where the ledger has it."""
    assert ran("aaaabaaca", ids=ids, ladder=ladder) == "aa--ba-ca"
