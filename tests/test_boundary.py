"""The one place that catches whatever goes wrong inside callfuse."""

import asyncio
import gc
import weakref

import pytest

from callfuse.boundary import Boundary


class Body:
    """Something large that a frame refers to."""


def test_an_error_is_kept_and_the_block_left() -> None:
    """What was raised is at hand afterwards, in one line for logs."""
    with Boundary() as boundary:
        raise ValueError("odd")
    assert isinstance(boundary.error, ValueError)
    assert boundary.cause == "ValueError: odd"


def test_no_error_leaves_nothing() -> None:
    """A boundary can be entered again, and forgets the error of the time before."""
    boundary = Boundary()
    with boundary:
        raise ValueError
    with boundary:
        pass
    assert boundary.error is None
    assert boundary.cause == ""


async def test_cancellation_passes() -> None:
    """What is no `Exception` goes on."""
    with pytest.raises(asyncio.CancelledError), Boundary():
        raise asyncio.CancelledError


def test_an_error_keeps_nothing_alive() -> None:
    """The frames of the traceback are let go, and with them what they hold."""

    def fail(body: Body) -> None:
        raise ValueError(body.__class__.__name__)

    body = Body()
    kept = weakref.ref(body)
    gc.disable()
    try:
        with Boundary() as boundary:
            fail(body)
        del body
        assert kept() is None
        assert boundary.error is not None
    finally:
        gc.enable()


def test_a_traceback_is_kept_on_request() -> None:
    """For errors that people are to see."""
    with Boundary(keep_traceback=True) as boundary:
        raise ValueError("odd")
    assert boundary.error is not None
    assert boundary.error.__traceback__ is not None


@pytest.mark.slow
def test_every_error_has_a_cause() -> None:
    """One that quotes what is nested too deep to be printed has its type."""
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with Boundary() as boundary:
        raise KeyError(deep)
    assert boundary.cause.startswith("KeyError: ")
