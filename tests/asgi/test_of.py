"""The middleware that a framework has made is found from its app."""

import pytest
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware

from callfuse import CallFuseMiddleware
from tests.support.asgi import Request, drive
from tests.support.config import settings


def make() -> Starlette:
    """An app with callfuse between two other layers."""
    app = Starlette()
    app.add_middleware(GZipMiddleware)
    app.add_middleware(CallFuseMiddleware, config=settings("block", max_repeats=7))
    app.add_middleware(GZipMiddleware)
    return app


async def test_it_is_found_once_the_app_has_started() -> None:
    """With its counts and settings."""
    app = make()
    with pytest.raises(LookupError, match="has not started yet"):
        CallFuseMiddleware.of(app)
    await drive(app, Request("/"))
    found = CallFuseMiddleware.of(app)
    assert found.settings.max_repeats == 7
    assert found.counts.of("findings") == 0


def test_it_is_found_in_wrappers() -> None:
    """Its own instance, and one within ASGI middleware that names its app."""
    fuse = CallFuseMiddleware(Starlette(), settings("block"))
    assert CallFuseMiddleware.of(fuse) is fuse
    assert CallFuseMiddleware.of(GZipMiddleware(fuse)) is fuse


@pytest.mark.parametrize("app", [None, Starlette(), GZipMiddleware(Starlette())])
def test_there_is_none(app: object) -> None:
    """It says so."""
    with pytest.raises(LookupError, match="no CallFuseMiddleware in this app"):
        CallFuseMiddleware.of(app)
