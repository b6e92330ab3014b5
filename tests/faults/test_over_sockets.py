"""Vendor failures over sockets: an SDK behind the guard fails exactly as one that talks to the vendor itself."""

import logging
from typing import Any

import pytest

from callfuse.testing import Answer, Call, Fault, VendorRequest
from tests.sdk.talks import QUESTION, TALKS, Way
from tests.sdk.wiring import wired
from tests.support.meeting import given_log
from tests.support.rules import StrictVendor
from tests.support.serving import serve

LOOP = Answer("Let me look again.", (Call("search_web", {"query": "llamas and alpacas, and all their kin"}),))
FAULTS = {
    "before the first byte": Fault.http(503),
    "rate limited": Fault.http(429),
    "cut before all": Fault.cut(LOOP, after_frames=0),
    "cut in text": Fault.cut(LOOP, after_frames=3),
    "cut in a held call": Fault.cut(LOOP, after_frames=7),
    "error event in text": Fault.error_event(LOOP, after_frames=3),
    "error event in a held call": Fault.error_event(LOOP, after_frames=7),
    "malformed in text": Fault.malformed(LOOP, after_frames=3),
}


def failing_at_third(fault: Fault) -> Any:
    """A model that loops, at a vendor that fails when the loop is at its third call."""

    def script(request: VendorRequest) -> Answer | Fault:
        return LOOP if request.number < 3 else fault

    return script


async def failure(url: str, sdk: str, way: Way) -> tuple[str, str]:
    """How the third answer fails, as (type, message)."""
    talk = TALKS[sdk](url, way, False)
    messages: list[Any] = [QUESTION]
    for _ in range(2):
        said = await talk.say(messages)
        messages += [said.turn, *talk.results(said, "Nothing new.")]
    try:
        said = await talk.say(messages)
    except Exception as error:  # noqa: BLE001 - which error it is, is the question
        return type(error).__name__, str(error)
    return "answer", f"{said.text} {len(said.calls)}"


@pytest.mark.parametrize("sdk", list(TALKS))
@pytest.mark.parametrize("way", ["whole", "raw"])
@pytest.mark.parametrize("name", FAULTS)
async def test_the_sdk_sees_the_same_failure(sdk: str, way: Way, name: str) -> None:
    """Same exception with and without callfuse, the same number of requests at the vendor, at most one line of it."""
    plain, guarded = (StrictVendor(failing_at_third(FAULTS[name])) for _ in range(2))
    async with serve(plain) as url:
        expected = await failure(url, sdk, way)
    with given_log() as log:
        async with wired(guarded, "block") as url:
            seen = await failure(url, sdk, way)
    assert seen[0] == expected[0]
    assert len(guarded.requests) == len(plain.requests) == 3
    errors = [text for _, level, text in log if level >= logging.ERROR]
    assert all(text.startswith("callfuse failed open") for text in errors)
    assert len(errors) <= 1
