"""The calculation of `docs/fleet.md`: the page has what the program prints, and the model is what it says."""

import random

import pytest
from benchmarks.fleet import Demand, Figures, Load, busiest_share, demand, limits, report

from callfuse.config.serve import ServeSettings
from callfuse.policy.settings import LoopSettings
from tests.project.sources import document

MILLION = Load(1_000_000, 30, 20)


def test_the_page_has_what_is_printed() -> None:
    """Line by line, and the figures that it rests on."""
    page, figures = document("docs/fleet.md"), Figures()
    assert "\n".join(report(MILLION, figures)) in page
    assert f"| {figures.exchange_us / 1000:g} ms |" in page
    assert f"| {figures.event_us:g} us |" in page
    assert f"| {figures.stream_kb:g} KB, and its request's {figures.request_kb:g} KB |" in page
    assert f"| {figures.store_trips_per_s:,.0f} a second |" in page


def test_what_a_load_takes() -> None:
    """CPU of events and exchanges, and nothing of what there is not."""
    figures = Figures(exchange_us=1000, event_us=10, busy=0.5, core_dollars_h=2)
    found = demand(Load(1000, 100, 10), figures)
    assert found.cores == pytest.approx((1000 * 100 * 10 + 100 * 1000) / 1e6 / 0.5)
    assert found.dollars_h == pytest.approx(2 * found.cores)
    assert found.exchanges_per_s == 100
    twice = demand(Load(2000, 100, 10), figures)
    assert isinstance(twice, Demand)
    assert twice.cores == pytest.approx(2 * found.cores)


def test_the_limits_are_callfuse_s() -> None:
    """As the settings come."""
    found = limits(MILLION, Figures(request_kb=1))
    assert found["serve.max_connections"] == ServeSettings().max_connections
    assert found["max_total_bytes"] * 1000 == pytest.approx(LoopSettings().max_total_bytes)


def test_the_busiest_worker() -> None:
    """One has all; of many connections each has its part."""
    rng = random.Random(1)
    assert busiest_share(32, 1, rng) == 1
    assert busiest_share(1, 4, rng) == 1
    assert 0.5 < busiest_share(32, 2, rng) < 0.6
    assert 0.25 < busiest_share(1000, 4, rng) < 0.3
