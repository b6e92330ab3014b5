"""The rules of Gemini: what it takes, and what it refuses."""

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.testing.gemini import GeminiVendor, signed_text
from callfuse.testing.turn import signature_for
from tests.support.examples import more_examples
from tests.support.rules import violations

STAND_IN = "skip_thought_signature_validator"
GO = {"role": "user", "parts": [{"text": "go"}]}
F, G = {"functionCall": {"name": "f", "args": {"x": 1}}}, {"functionCall": {"name": "g"}}
F_DONE = {"functionResponse": {"name": "f", "response": {"result": "x"}}}
G_DONE = {"functionResponse": {"name": "g", "response": {}}}
TOOLS = [{"functionDeclarations": [{"name": "f"}, {"name": "g"}]}]
SIGNATURE = signature_for("r1", signed_text("f", {"x": 1}))


def body(*contents: Any, **more: Any) -> dict[str, Any]:
    """A request with these contents."""
    return {"contents": list(contents), "tools": TOOLS, **more}


def said(*parts: Any) -> dict[str, Any]:
    """A content of the model."""
    return {"role": "model", "parts": list(parts)}


def done(*parts: Any) -> dict[str, Any]:
    """A content of responses."""
    return {"role": "user", "parts": list(parts)}


def choosing(**choice: Any) -> dict[str, Any]:
    """A request with this tool choice."""
    return body(GO, toolConfig={"functionCallingConfig": choice})


def signing(*contents: Any) -> dict[str, Any]:
    """A request to a model that signs its thoughts."""
    return body(*contents, generationConfig={"thinkingConfig": {"thinkingLevel": "LOW"}})


def signed(part: dict[str, Any], signature: str) -> dict[str, Any]:
    """A part with a signature."""
    return {**part, "thoughtSignature": signature}


@pytest.mark.parametrize(
    "asked",
    [
        body(GO),
        body({"parts": [{"text": "no role"}]}),
        body(GO, said({"text": "hm"}), GO),
        body(GO, said({"text": "hm"}, F), done(F_DONE)),
        body(GO, said(F), said(G), done(F_DONE, G_DONE)),
        body(GO, said(F, G), done(G_DONE), done(F_DONE)),
        body(GO, said(F), done(F_DONE, {"text": "a reminder"}), said({"text": "so"}), GO),
        body(GO, said({"functionCall": {"name": "f", "id": "a"}}), done(F_DONE)),
        body(GO, said({"text": "x", "thought": True, "thoughtSignature": "c2ln"})  , GO),
        choosing(mode="ANY", allowedFunctionNames=["f"]),
        choosing(mode="VALIDATED"),
        choosing(mode="NONE"),
        signing(GO, said(signed(F, SIGNATURE), G), done(F_DONE, G_DONE)),
        signing(GO, said(signed(G, STAND_IN)), done(G_DONE)),
        signing(GO, said(signed(G, b64encode(STAND_IN.encode()).decode())), done(G_DONE)),
        signing(GO, said(signed(G, "c2ln")), done(G_DONE)),
        signing(GO, said(F), done(F_DONE), said({"text": "so"}), GO),
    ],
)  # fmt: skip
def test_taken(asked: dict[str, Any]) -> None:
    """Histories that the vendor takes break no rule."""
    assert violations("gemini", asked) == []


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ({}, "contents"),
        (body(), "contents"),
        (body(7), "contents[0]"),
        (body({"role": "assistant", "parts": [{"text": "x"}]}), "contents[0].role"),
        (body({"role": "user", "parts": []}), "contents[0].parts"),
        (body({"role": "user", "parts": [{}]}), "contents[0].parts[0]"),
        (body({"role": "user", "parts": [{"text": "x", "inlineData": {}}]}), "contents[0].parts[0]"),
        (body({"role": "user", "parts": [{"text": 7}]}), "contents[0].parts[0].text"),
        (body(said({"text": "x"}), GO), "contents[0]"),
        (body(GO, said({"text": "x"})), "contents[1]"),
        (body(GO, said(F), GO), "contents[1]"),
        (body(GO, said(F, G), done(F_DONE)), "contents[1]"),
        (body(GO, said(F), done(F_DONE, F_DONE)), "contents[1]"),
        (body(GO, said(F), done(G_DONE)), "contents[1]"),
        (body(GO, said({"functionCall": {"name": "f", "id": "a"}}),
              done({"functionResponse": {"name": "f", "id": "b", "response": {}}})), "contents[1]"),
        (body(GO, said({"text": "x"}), done(F_DONE)), "contents[2]"),
        (body(done(F_DONE)), "contents[0]"),
        (body({"role": "user", "parts": [F]}), "contents[0].parts[0]"),
        (body(GO, said(F_DONE), GO), "contents[1].parts[0]"),
        (body(GO, said({"functionCall": {"args": {}}}), done(F_DONE)), "contents[1].parts[0].functionCall.name"),
        (body(GO, said({"functionCall": {"name": "f", "args": "{}"}}), done(F_DONE)),
         "contents[1].parts[0].functionCall.args"),
        (body(GO, said({"functionCall": {"name": "f", "willContinue": True}}), done(F_DONE)),
         "contents[1].parts[0].functionCall"),
        (body(GO, said(F), done({"functionResponse": {"name": "f", "response": "x"}})),
         "contents[2].parts[0].functionResponse.response"),
        (choosing(mode="any"), "toolConfig.functionCallingConfig.mode"),
        (choosing(mode="AUTO", allowedFunctionNames=["f"]), "toolConfig.functionCallingConfig.allowedFunctionNames"),
        (choosing(mode="ANY", allowedFunctionNames=["h"]), "toolConfig.functionCallingConfig.allowedFunctionNames"),
        (signing(GO, said(F, signed(G, "c2ln")), done(F_DONE, G_DONE)), "contents[1].parts[0]"),
        (signing(GO, said(signed(G, SIGNATURE)), done(G_DONE)), "contents[1].parts[0]"),
        (body(GO, said(signed(G, SIGNATURE)), done(G_DONE)), "contents[1].parts[0]"),
    ],
)  # fmt: skip
def test_refused(asked: dict[str, Any], place: str) -> None:
    """Each broken rule is told with its place."""
    found = violations("gemini", asked)
    assert found
    assert any(sentence.startswith(f"{place}:") for sentence in found), found


KEYS = st.sampled_from(
    ["contents", "role", "parts", "text", "functionCall", "functionResponse", "name", "args", "id", "response", "mode",
     "thoughtSignature", "tools", "functionDeclarations", "toolConfig", "functionCallingConfig", "allowedFunctionNames",
     "generationConfig", "thinkingConfig", "thinkingLevel", "candidateCount"]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from(["user", "model", "f", "ANY", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=30,
)
CONTENTS = st.lists(
    st.fixed_dictionaries({"role": JSON, "parts": st.lists(st.dictionaries(KEYS, JSON, max_size=2))}) | JSON
)


@more_examples(5)
@given(body=st.fixed_dictionaries({"contents": CONTENTS | JSON}, optional={"tools": JSON, "toolConfig": JSON}))
def test_total(body: dict[str, Any]) -> None:
    """Any JSON object is judged, and has a last round."""
    assert all(violations("gemini", body) or ["taken"])
    calls, results = GeminiVendor().last_round(body)
    assert results or not calls
    assert GeminiVendor().choice_count(body) >= 1
