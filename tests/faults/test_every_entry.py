"""No error of the core reaches the host, wherever it begins: each function and method that `callfuse.asgi` can call
there raises in turn.

The entries are listed from the modules themselves, so that a new one is tested as soon as it is imported.
"""

import asyncio
import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from enum import EnumType
from types import ModuleType
from typing import Any

import pytest

import callfuse.asgi
from callfuse import CallFuseMiddleware
from callfuse.dialects import DIALECTS
from callfuse.dialects.base import Dialect
from callfuse.wire.jsontext import loads
from tests.faults.test_errors_of_our_own import raises
from tests.support.asgi import drive
from tests.support.config import settings
from tests.support.examples import some
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import ask, given_log, reply, streamed_and_whole
from tests.support.model import History, User
from tests.support.plain import again, elsewhere, saying, spin
from tests.support.scripted import Reply, play

CORE = ("commands", "conversations", "detect", "dialects", "guard", "harness", "model", "policy", "wire")
BEFORE_ANY_EXCHANGE = {
    "callfuse.policy.settings.LoopSettings",
    "callfuse.asgi.commands.closed_settings",
    "callfuse.commands.conversation.PrefixSearch",
    "callfuse.conversations.identity.KnownHeaders.__init__",
}
"""What is made with the middleware, where a wrong configuration may raise."""


def _modules() -> list[ModuleType]:
    found = pkgutil.iter_modules(callfuse.asgi.__path__, "callfuse.asgi.")
    return [importlib.import_module(each.name) for each in found]


def _is_core(thing: Any) -> bool:
    home = str(getattr(thing, "__module__", "")).split(".")
    return home[0] == "callfuse" and len(home) > 1 and home[1] in CORE


def _methods(kind: type) -> Iterator[str]:
    """The methods and properties that a class of the core defines itself, its constructor included."""
    for name, value in vars(kind).items():
        is_generated = name == "__init__" and dataclasses.is_dataclass(kind)
        is_private = name.startswith("_") and name != "__init__"
        if not (is_generated or is_private) and (inspect.isfunction(value) or isinstance(value, property)):
            yield name


def entries() -> dict[str, tuple[Any, str]]:
    """Where to break what: by a name for the test, the owner and its attribute."""
    found: dict[str, tuple[Any, str]] = {}
    for module in _modules():
        for name, thing in vars(module).items():
            if not _is_core(thing) or isinstance(thing, EnumType) or f"{module.__name__}.{name}" in BEFORE_ANY_EXCHANGE:
                continue
            if inspect.isfunction(thing):
                found[f"{module.__name__.removeprefix('callfuse.')}.{name}"] = module, name
            elif inspect.isclass(thing):
                found |= _of_class(thing)
    for dialect in DIALECTS:
        found |= _of_class(type(dialect))
    return found


def _of_class(kind: type) -> dict[str, tuple[Any, str]]:
    whole = f"{kind.__module__}.{kind.__qualname__}"
    if whole in BEFORE_ANY_EXCHANGE or getattr(kind, "_is_protocol", False):
        return {}
    names = [name for name in _methods(kind) if f"{whole}.{name}" not in BEFORE_ANY_EXCHANGE]
    return {f"{whole.removeprefix('callfuse.')}.{name}": (kind, name) for name in names}


ENTRIES = entries()
SOME = [kit for kit in KITS if kit.name in ("openai-chat", "anthropic", "openai-responses")]


def _request_entries(kit: DialectKit) -> dict[str, tuple[Any, str]]:
    """What the parsed request of a dialect, and its chain, can be asked."""
    dialect: Dialect = next(one for one in DIALECTS if one.name == kit.name)
    body = kit.request(spin(), stream=True)
    request = dialect.read_request(body, loads(body))
    assert request is not None
    kinds = [*type(request).__mro__, *(type(request.chain).__mro__ if request.chain else ())]
    found: dict[str, tuple[Any, str]] = {}
    for kind in reversed(kinds):
        if kind.__module__.startswith("callfuse."):
            found |= _of_class(kind)
    return found


def test_the_list_is_no_empty_one() -> None:
    """It has what an exchange cannot do without."""
    assert {"asgi.prepare.lane_of", "guard.guard.Guard.feed", "guard.judge.Judge.any_hold"} <= ENTRIES.keys()
    assert len(ENTRIES) > 80


def _break(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    value = owner.__dict__[name]
    monkeypatch.setattr(owner, name, property(raises) if isinstance(value, property) else raises)


COMMANDED = History((User("!/set(tool-loop-mode=warn) Find it."),))
LADDERS: dict[str, dict[str, Any]] = {
    "block": {},
    "chance_then_block": {},
    "chance_then_block, closed": {"fail_closed": True},
    "graduated": {},
}


def _exchanges(kit: DialectKit, number: int, *, stream: bool) -> None:
    """Exchanges of every kind under some of the ladders, others for each number; the host sees no error of
    callfuse's."""
    broken = Reply((b'data: {"choices": [-1]}\n\n', b"data: {\n\n"))
    answers = [again(), elsewhere(), saying("Well.")]
    ladders = [*LADDERS.items()]
    for ladder, more in [ladders[at] for at in some(range(len(ladders)), 2, number)]:
        for history in (spin(1), spin(), COMMANDED):
            for replies in ([reply(kit, one, stream=stream) for one in answers], [broken]):
                app = play(*replies)
                mode = ladder.partition(",")[0]
                guarded = CallFuseMiddleware(app, settings(mode, **more), on_loop=lambda _event: None)
                with given_log():
                    exchange = asyncio.run(drive(guarded, ask(kit, history, stream=stream)))
                assert exchange.raised is None, (ladder, history)
                assert exchange.complete, (ladder, history)


@pytest.mark.search
@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_of_the_core_that_raises_is_survived(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One dialect, streams."""
    _break(monkeypatch, *ENTRIES[entry])
    _exchanges(SOME[0], [*ENTRIES].index(entry), stream=True)


@pytest.mark.search
@pytest.mark.parametrize("kit", SOME, ids=lambda kit: kit.name)
@streamed_and_whole
def test_a_request_that_raises_is_survived(kit: DialectKit, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each method of the parsed request, and of its chain."""
    for number, (owner, name) in enumerate(_request_entries(kit).values()):
        with monkeypatch.context() as patch:
            _break(patch, owner, name)
            _exchanges(kit, number, stream=stream)
