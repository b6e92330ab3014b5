"""The endpoint `metrics`, and `ready` beside `health`."""

import json
import sys
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from callfuse import CallFuseMiddleware
from callfuse.admin import AdminApp
from callfuse.admin.readiness import PARTS, Readiness
from callfuse.config.serve import FAILED_FOR_S
from callfuse.observe.bus import Bus
from callfuse.observe.events import NOWHERE, FuseBlown, StoreDown, StoreFailed, StoreUp
from callfuse.observe.prometheus import Metrics
from tests.admin.asking import BEARER, TOKEN, Guarded, Vendor
from tests.support.asgi import Request, drive

STORE = "redis://h"
READY = {"status": "ready", "settings": "ok", "upstream": "unknown", "store": "ok", "serving": "ok"}


def value(body: bytes, name: str) -> float:
    """A sample without labels."""
    families = text_string_to_metric_families(body.decode())
    return next(one.value for family in families for one in family.samples if one.name == name)


async def test_metrics_need_the_token() -> None:
    """As the rest; with it they are what prometheus-client reads."""
    guarded = Guarded()
    assert (await guarded.get("metrics", headers=())).status == 401
    guarded.fuse.bus.emit(FuseBlown(NOWHERE, 5))
    exchange = await guarded.get("metrics")
    assert exchange.status == 200
    assert exchange.header(b"content-type") == b"text/plain; version=0.0.4; charset=utf-8"
    assert exchange.header(b"cache-control") == b"no-store"
    assert value(exchange.body, "callfuse_blown_total") == 1


async def test_formats_are_negotiated() -> None:
    """By the headers that Prometheus sends."""
    wanted = b"application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"
    exchange = await Guarded().get("metrics", headers=(*BEARER, (b"accept", wanted), (b"accept-encoding", b"gzip")))
    content_type = exchange.header(b"content-type")
    assert content_type is not None
    assert content_type.startswith(b"application/openmetrics-text; version=")
    assert exchange.header(b"content-encoding") == b"gzip"
    assert exchange.body[:2] == b"\x1f\x8b"


async def test_metrics_of_the_host_s_registry() -> None:
    """An app that is given metrics shows those, and makes no others."""
    fuse, metrics = CallFuseMiddleware(Vendor(), {}), Metrics(CollectorRegistry())
    metrics.watch(fuse)
    page = AdminApp(fuse, token=TOKEN, metrics=metrics)
    fuse.bus.emit(FuseBlown(NOWHERE, 5))
    exchange = await drive(page, Request("/metrics", b"", BEARER, "GET"))
    assert value(exchange.body, "callfuse_blown_total") == 1


async def test_without_the_package_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page goes on without, and the endpoint says what to install."""
    monkeypatch.delitem(sys.modules, "callfuse.observe.prometheus")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    guarded = Guarded()
    exchange = await guarded.get("metrics")
    assert exchange.status == 501
    assert "callfuse[serve]" in json.loads(exchange.body)["error"]
    assert (await guarded.get("settings")).status == 200


async def test_ready_is_open_and_says_little() -> None:
    """Names of parts and their states, no host and no store."""
    guarded = Guarded()
    exchange = await guarded.get("ready", headers=())
    assert (exchange.status, json.loads(exchange.body)) == (200, READY)


async def test_ready_names_what_is_not() -> None:
    """With 503, for each part, until it is left out or right again."""
    guarded = Guarded()
    guarded.fuse.bus.emit(StoreDown(STORE, "s3cret"))
    exchange = await guarded.get("ready", headers=())
    assert exchange.status == 503
    assert json.loads(exchange.body) == {**READY, "status": "not ready", "store": "failed"}
    exchange = await guarded.get("ready", "exclude=store", ())
    assert exchange.status == 200
    assert "store" not in json.loads(exchange.body)
    guarded.fuse.bus.emit(StoreUp(STORE))
    assert (await guarded.get("ready", headers=())).status == 200
    wrong = await guarded.get("ready", "exclude=stoer", ())
    assert wrong.status == 400
    assert "store" in json.loads(wrong.body)["error"]


class Clock:
    """Seconds that pass when a test says so."""

    now = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def test_a_store_that_nobody_tries_is_not_failed_for_ever() -> None:
    """A process that gets no requests tries nothing: after a while it may be ready; a probe in vain starts anew."""
    clock, bus = Clock(), Bus()
    readiness = Readiness(clock=clock)
    readiness.watch(bus)
    bus.emit(StoreFailed(STORE, "read"))
    assert readiness.states()["store"] == "ok", "one failure does not open the circuit"
    bus.emit(StoreDown(STORE, ""))
    clock.now += FAILED_FOR_S - 1
    assert readiness.states()["store"] == "failed"
    clock.now += 1
    assert readiness.states()["store"] == "unknown"
    bus.emit(StoreFailed(STORE, "probe"))
    assert readiness.states()["store"] == "failed"
    bus.emit(StoreUp(STORE))
    assert readiness.states()["store"] == "ok"


@pytest.mark.parametrize(("reached", "state"), [(None, "unknown"), (True, "ok"), (False, "failed")])
def test_the_upstream(reached: bool | None, state: str) -> None:
    """As the proxy has found it at its last try."""
    assert Readiness(lambda: reached).states()["upstream"] == state


def test_draining_is_not_ready() -> None:
    """Every part is told by name."""
    readiness = Readiness()
    assert tuple(readiness.states()) == PARTS
    readiness.draining = True
    states: dict[str, Any] = {**readiness.states()}
    assert states["serving"] == "failed"
