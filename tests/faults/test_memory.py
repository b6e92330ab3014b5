"""What stays in memory: after an exchange only the ledger, which is bounded."""

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.asgi import App, drive
from tests.support.config import guard
from tests.support.kits import DialectKit
from tests.support.meeting import ask, every_dialect, framewise
from tests.support.model import Call, History, Round, User
from tests.support.plain import again, elsewhere, new_call, same_call, saying, spin
from tests.support.scripted import Reply, ScriptedApp, play

pytestmark = pytest.mark.usefixtures("frozen_heap")
PER_EXCHANGE = ("callfuse.guard", "callfuse.asgi", "callfuse.wire", "callfuse.dialects")
"""Where the objects that serve one exchange are made."""


def living(*, collected: bool = True) -> Counter[str]:
    """The objects of callfuse's exchange-bound modules that are alive, by class."""
    if collected:
        gc.collect()
    kinds = [type(thing) for thing in gc.get_objects()]
    ours = [kind for kind in kinds if str(kind.__module__).startswith(PER_EXCHANGE)]
    return Counter(f"{kind.__module__}.{kind.__qualname__}" for kind in ours)


QUIET_WAYS = ("pass", "steer", "block", "garbage", "error status")
WAYS = (*QUIET_WAYS, "break in a hold", "end in a hold")


LONG = History(
    (
        User("Read it all."),
        *[Round((Call(f"call_p{page}", "lookup", (f'{{"page": {page}}}',)),), (f"page {page}",)) for page in range(20)],
    )
)
"""More different calls than a window holds."""


class Broke(Exception):
    """The upstream broke."""


def scripts(kit: DialectKit) -> dict[str, tuple[Reply, ...]]:
    """Exchanges that end in every way."""
    looping, changed = framewise(kit, again()), framewise(kit, elsewhere())
    held = [frame.raw for frame in kit.frames(saying(same_call()))][:3]
    return {
        "pass": (framewise(kit, saying("Hi.")),),
        "steer": (looping, changed),
        "block": (looping, looping),
        "break in a hold": (Reply(tuple(held), raises=Broke("x")),),
        "end in a hold": (Reply(tuple(held)),),
        "garbage": (Reply((b"data: {\n\n" * 3,)),),
        "error status": (Reply((b"{}",), status=500),),
    }


async def _exchange(guarded: App, kit: DialectKit) -> None:
    await drive(guarded, ask(kit, spin(), stream=True))


@every_dialect
@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_an_exchange_stays(kit: DialectKit, way: str) -> None:
    """However it ends, its buffers, frames and calls are gone, and a hundred of them leave what one does."""
    app = ScriptedApp(())
    guarded = guard(app, "chance_then_block")

    def run(times: int) -> Counter[str]:
        async def each() -> None:
            for _ in range(times):
                app.replies = scripts(kit)[way]
                app.heard.clear()
                await _exchange(guarded, kit)

        asyncio.run(each())
        return living()

    once = run(1)
    assert run(100) == once


@pytest.fixture
def _no_collector(frozen_heap: None) -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@every_dialect
@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("stored", [False, True], ids=["", "stored"])
@pytest.mark.parametrize("way", ["healthy", *QUIET_WAYS])
def test_the_collector_has_nothing_to_do(kit: DialectKit, way: str, stored: bool) -> None:
    """An exchange is gone with its last message: no cycle holds its body, which may be large, any longer."""
    app = ScriptedApp(())
    guarded = guard(app, "chance_then_block")
    asked = ask(kit, LONG if way == "healthy" else spin(), stream=True)
    if stored:  # by vendors that do
        asked = replace(asked, body=asked.body.replace(b'"store":false', b'"store":true'))

    async def talk() -> None:
        for _ in range(3):  # the first leaves something in the ledger
            app.replies = scripts(kit).get(way) or (framewise(kit, saying("Well.", new_call())),)
            await drive(guarded, asked)
            app.heard.clear()

    asyncio.run(talk())
    left = living(collected=False)
    gc.collect()
    assert left - living() == Counter()


@every_dialect
async def test_nothing_stays_when_the_client_leaves(kit: DialectKit) -> None:
    """A client that leaves during a hold leaves no task and no buffer behind."""
    before, tasks = living(), len(asyncio.all_tasks())
    for _ in range(20):
        await _leave_in_a_hold(kit)
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == tasks
    assert sum((living() - before).values()) == 0


async def _leave_in_a_hold(kit: DialectKit) -> None:
    leave, app = asyncio.Event(), play()
    listed = kit.frames(again())
    last = max(at for at, frame in enumerate(listed) if frame.item == 1)

    async def gate(at: int) -> None:
        if at == last:
            leave.set()
            assert app.left
            await app.left.wait()
            raise Broke("the server ends what nobody reads")

    app.replies, app.left = (Reply(tuple(frame.raw for frame in listed), gate=gate),), asyncio.Event()
    await drive(guard(app), ask(kit, spin(), stream=True), leave=leave)
    assert app.heard[0].disconnected
