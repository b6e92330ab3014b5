"""A store behind TLS: it is used like any other, and one that falls silent does not keep a process from ending."""

import asyncio
import ssl
from pathlib import Path

import pytest

from callfuse.observe.bus import Bus
from callfuse.observe.counts import Counts
from callfuse.observe.log import LogSink
from callfuse.stores import open_ledger
from callfuse.stores.redis import RedisLedger
from tests.stores.gate import Gate
from tests.support.certificates import make_certificate
from tests.support.kept import lane, rounds_of, state
from tests.support.redis import RedisServer


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that signs itself, with its key in the same file."""
    folder = tmp_path_factory.mktemp("certificate")
    certificate, key = make_certificate(folder)
    both = folder / "both.pem"
    both.write_text(key.read_text() + certificate.read_text())
    return both


async def test_the_end_waits_for_nobody(server: RedisServer, certificate: Path) -> None:
    """A connection of TLS says goodbye and waits for the answer, half a minute where nobody gives it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    counts = Counts()
    async with Gate(server.port, context).standing() as decrypting, Gate(decrypting.port).standing() as gate:
        url = f"rediss://127.0.0.1:{gate.port}?ssl_ca_certs={certificate}"
        ledger = open_ledger(url, max_lanes=9, ttl_s=100, timeout_s=20, bus=Bus(counts, LogSink()))
        assert isinstance(ledger, RedisLedger)
        await ledger.write({lane(1): state(7)}, 0)
        assert (await rounds_of(ledger, lane(1), 0))[0].position == 7
        assert counts.of("store_errors") == 0
        gate.shut()
        async with asyncio.timeout(60):
            await ledger.aclose()


async def test_a_client_certificate(server: RedisServer, certificate: Path) -> None:
    """A server that wants one is used with it, and refuses whoever has none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    async with Gate(server.port, context).standing() as gate:
        url = f"rediss://127.0.0.1:{gate.port}?ssl_ca_certs={certificate}"
        for with_own, errors in ((f"{url}&ssl_certfile={certificate}&ssl_keyfile={certificate}", 0), (url, 1)):
            counts = Counts()
            ledger = open_ledger(with_own, max_lanes=9, ttl_s=100, timeout_s=20, bus=Bus(counts, LogSink()))
            assert isinstance(ledger, RedisLedger)
            await ledger.write({lane(1): state(7)}, 0)
            await ledger.aclose()
            assert counts.of("store_errors") == errors
