"""Serving an app for a `with` block: it answers inside, and is gone outside."""

from collections.abc import MutableMapping
from typing import Any

import httpx2
import pytest

from callfuse.testing import Answer, served
from tests.support.rules import StrictVendor

pytestmark = pytest.mark.slow


def test_answers_inside_and_is_gone_outside() -> None:
    """The URL answers in the block; after it nothing listens there."""
    with served(StrictVendor([Answer("hi")])) as url, httpx2.Client(trust_env=False) as client:
        assert client.get(f"{url}/health").status_code == 404
    with httpx2.Client(trust_env=False) as client, pytest.raises(httpx2.ConnectError):
        client.get(f"{url}/health")


def test_two_at_once() -> None:
    """Two servers have two ports."""
    with served(StrictVendor([])) as one, served(StrictVendor([])) as other:
        assert one != other


async def refusing(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
    """An app whose start fails."""
    await receive()
    await send({"type": f"{scope['type']}.startup.failed", "message": "no"})


def test_app_that_refuses_to_start() -> None:
    """An app that fails to start is an error, not a client that waits."""
    with pytest.raises(RuntimeError, match="the app refused to start"), served(refusing):
        pytest.fail("there is nothing to talk to")
