"""Clients that hang up in the middle of a round trip: no exchange gets the answer that was on its way to another."""

import asyncio
import random
from collections import Counter

import anyio
import pytest

from callfuse.conversations.ledger import SessionState
from callfuse.policy.tiers import Overrides
from tests.stores.gate import Gate
from tests.stores.test_down import PATIENCE_S, beside
from tests.support.kept import lane, session, state
from tests.support.redis import RedisServer

CLIENTS = 50


def own(number: int) -> SessionState:
    """What the session of a client has set, unlike that of any other."""
    return SessionState(Overrides({"ttl_seconds": 1.0 + number}))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("way", ["cancel", "scope"])
async def test_nobody_gets_what_is_anothers(server: RedisServer, way: str, seed: int) -> None:
    """Bytes come in pieces, and half of the exchanges end anywhere between them: cancelled once, as asyncio does it, or
    at every step from then on, as the scopes of anyio do."""
    chance = random.Random(seed)
    seen: Counter[str] = Counter()
    async with Gate(server.port).standing() as gate, beside(server.url) as before:
        for number in range(CLIENTS):
            await before.ledger.write({lane(number): state(number)}, 0)
            await before.ledger.write_session(session(number), own(number), 0)
        gate.piece = lambda size: size if chance.random() < 0.7 else chance.randint(1, size)
        async with beside(f"redis://127.0.0.1:{gate.port}", PATIENCE_S) as one:

            async def exchange(scope: anyio.CancelScope) -> None:
                number = chance.randrange(CLIENTS)
                with scope:
                    found, kept = await one.ledger.read(lane(number), 0)
                    seen["own" if (found.rounds[0].position, kept) == (number, own(number)) else "another's"] += 1
                    await one.ledger.write({lane(number): state(number)}, 0)

            exchanges = []
            for _ in range(400):
                scope = anyio.CancelScope()
                exchanges.append(asyncio.create_task(exchange(scope)))
                if chance.random() < 0.5:
                    leave = exchanges[-1].cancel if way == "cancel" else scope.cancel
                    asyncio.get_running_loop().call_later(0.008 * chance.random(), leave)
                await asyncio.sleep(0.002 * chance.random())
            await asyncio.wait(exchanges)
            assert one.told() == {}
    assert set(seen) == {"own"}
    assert 100 < seen["own"] < 400
