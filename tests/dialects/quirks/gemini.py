"""Gemini's chunks, as its own tests do not have them right through the middleware."""

import json
from typing import Any

from tests.dialects.quirks import ZEBRA, Quirk

HEAD = {"modelVersion": "gemini-2.5-flash", "responseId": "r1"}


def chunk(*parts: dict[str, Any], finish: Any = None) -> bytes:
    """A chunk of Gemini's, its lines ended as Google does."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    candidate |= {"finishReason": finish} if finish else {}
    return f"data: {json.dumps({'candidates': [candidate], **HEAD})}\r\n\r\n".encode()


def call(**fields: Any) -> dict[str, Any]:
    """A part with a call, or a piece of one."""
    return {"functionCall": fields}


def piece(text: str) -> dict[str, Any]:
    """A piece of a call's argument."""
    return {"jsonPath": "$.query", "stringValue": text, "willContinue": True}


CODE = {"executableCode": {"language": "PYTHON", "code": "print(1)"}}
RAN = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}}
THOUGHT = {"text": "Hm.", "thought": True}

QUIRKS = [
    Quirk("no args field", chunk(call(name="search"), finish="STOP"), [(0, "", "search", "")]),
    Quirk(
        "a thought, and a signature at the call",
        chunk(THOUGHT) + chunk({**call(name="search", args={"query": "zebra"}), "thoughtSignature": "c2ln"})
        + chunk({"text": ""}, finish="STOP"),
        [(0, "", "search", ZEBRA)],
        kept=b'"thought": true',
    ),
    Quirk(
        "arguments in pieces that nothing ends but the finish",
        chunk(call(name="search", willContinue=True))
        + chunk(call(partialArgs=[piece("ze")], willContinue=True))
        + chunk(call(partialArgs=[piece("bra")], willContinue=True))
        + chunk({"text": ""}, finish="STOP"),
        [(0, "", "search", ZEBRA)],
    ),
    Quirk(
        "code that Google has run",
        chunk(CODE) + chunk(RAN) + chunk({"text": "So."}, finish="STOP"),
        withheld=False,
        history=[("executable_code", '{"code":"print(1)"}')],
    ),
    Quirk(
        "a call beside code that Google has run",
        chunk(CODE) + chunk(RAN) + chunk(call(name="search", args={"query": "zebra"}), finish="STOP"),
        [(0, "", "search", ZEBRA)],
        kept=b"codeExecutionResult",
    ),
]  # fmt: skip
