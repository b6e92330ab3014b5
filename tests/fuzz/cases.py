"""Cases: drawn from a seed and an index, and built into what a client sends and an app answers.

In: a seed, an index. Out: a `Case`, plain values all of them, so that `shrunk` can leave out one after another, and
its `Turn`s, built by `request_of` and `replies_of`.
"""

import gzip
import random
import zlib
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any, Literal, TypeVar

from pydantic import Base64UrlBytes

from callfuse.config import Resolved, resolve
from tests.fuzz.material import Material, own, recorded
from tests.fuzz.mutations import Mutation, draw, mutate
from tests.fuzz.plain import draw_history
from tests.support.asgi import JSON_REQUEST, Headers, Request
from tests.support.config import LADDERS, ONLY_REPEATS, settings
from tests.support.kits import KITS
from tests.support.model import Style
from tests.support.scripted import EVENT_STREAM, Reply
from tests.support.wire import bytewise, cut
from tests.support.zstd import zstd

T = TypeVar("T")
Ending = Literal["end", "leave", "cancel", "send fails", "upload aborted"]
ENDINGS: tuple[Ending, ...] = ("end", "leave", "cancel", "send fails", "upload aborted")
Callback = Literal["", "keep", "slow", "raise", "cancelled", "junk", "allow", "block", "steer", "async raise"]
CALLBACKS: tuple[Callback, ...] = (
    "keep", "slow", "raise", "cancelled", "junk", "allow", "block", "steer", "async raise",
)  # fmt: skip
SETTINGS = 200
SMALL = 3000
"""Bodies up to this size may be cut into single bytes."""
KINDS = (
    "",
    "text/event-stream",
    "application/json",
    "application/x-ndjson",
    "text/plain",
    "\xff",
    "TEXT/EVENT-Stream ;x",
)
CODINGS = ("gzip", "deflate", "zstd")


@dataclass(frozen=True, slots=True)
class Part:
    """A body: what it is made of, its damages, its cuts (shares of its length; a cut at -1 is after every byte)."""

    material: int
    mutations: tuple[Mutation, ...] = ()
    cuts: tuple[float, ...] = ()
    coding: str = ""
    kind: str | None = None
    """Its content type in Latin-1; None for the usual one, empty for none."""
    status: int = 200
    dies: bool = False
    """Whether the app raises where the body would end."""
    pause_s: float = 0.0
    """Of the app, or of the client, before its second chunk."""
    body: Base64UrlBytes | None = None
    """What stands in place of its material."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange: `history` is the seed of its conversation; `request` is damaged, its material only if recorded."""

    history: int
    request: Part
    replies: tuple[Part, ...]
    ending: Ending = "end"
    after: int = 0
    """The messages after which it ends as it does."""


@dataclass(frozen=True, slots=True)
class Case:
    """A case: indexes into `pool` and `configurations`, and what is drawn for each exchange."""

    configuration: int
    callback: Callback
    turns: tuple[Turn, ...]
    own_only: bool = False


@cache
def pool(*, own_only: bool) -> tuple[Material, ...]:
    """All material."""
    return own() if own_only else (*own(), *recorded())


@cache
def _usable(*, own_only: bool) -> tuple[tuple[int, ...], dict[int, tuple[int, ...]]]:
    """The indexes of answers, and by the identity of a kit those of its own that stream, and of its requests."""
    answers = tuple(at for at, one in enumerate(pool(own_only=own_only)) if not one.is_request)
    requests: dict[int, list[int]] = {}
    for at, one in enumerate(pool(own_only=own_only)):
        if one.is_request:
            requests.setdefault(id(one.kit), []).append(at)
    return answers, {kit: tuple(found) for kit, found in requests.items()}


@cache
def configurations() -> tuple[Resolved, ...]:
    """Settings in many ways; the first are the defaults."""
    dice = random.Random("settings")
    return (resolve({}, {}), *(resolve(_drawn_settings(dice), {}) for _ in range(SETTINGS - 1)))


def _drawn_settings(dice: random.Random) -> dict[str, Any]:
    more: dict[str, Any] = {}

    def perhaps(share: float, **values: Any) -> None:
        if dice.random() < share:
            more.update({key: dice.choice(value) for key, value in values.items()})

    perhaps(0.3, fail_closed=[True])
    perhaps(0.12, max_held_bytes=[1, 100, 400, 2000])
    perhaps(0.08, max_response_bytes=[1, 300, 2000])
    perhaps(0.08, max_request_bytes=[1, 500, 3000])
    perhaps(0.1, usage=["sum"])
    perhaps(0.1, finish_reason=["error"])
    perhaps(0.15, similarity_threshold=[0.5, 0.9])
    perhaps(0.1, max_calls=[1, 3], max_calls_of_tool=[0, 2])
    perhaps(0.1, commands=[{"enabled": False}, {"prefix": "/"}])
    perhaps(0.1, header_overrides=[True])
    perhaps(0.1, per_tool=[{"sea*": {"max_repeats": 2}}, {"*": {"enabled": False}}, {"search": {"ignore": ["query"]}}])
    perhaps(0.1, models=[{"*": {"mode": "block"}}])
    perhaps(0.1, state_changing=[["lookup"], ["*"]])
    perhaps(0.1, max_rounds=[10], max_sessions=[1])
    perhaps(0.08, max_total_bytes=[1, 3000, 9000])
    perhaps(0.15, blow_after=[0, 1, 2])
    perhaps(0.1, read_timeout_s=[1, 90])
    if dice.random() < 0.25:
        more |= ONLY_REPEATS
    return settings(dice.choice(list(LADDERS)), max_repeats=dice.choice((2, 3, 3, 3)), **more)


def draw_case(seed: int, index: int, *, own_only: bool = False) -> Case:
    """The case of this index."""
    dice = random.Random(f"{seed} {index} {own_only}")
    answers, requests = _usable(own_only=own_only)
    material = dice.choice(answers)
    count = dice.choice((1, 1, 1, 1, 2, 3))
    first = _draw_turn(dice, material, requests, own_only=own_only)
    turns = [first]
    for _ in range(count - 1):
        again = replace(first, replies=_draw_turn(dice, material, requests, own_only=own_only).replies)
        turns.append(again if dice.random() < 0.5 else _draw_turn(dice, material, requests, own_only=own_only))
    callback = dice.choice(CALLBACKS) if dice.random() < 0.2 else ""
    return Case(dice.randrange(SETTINGS), callback, tuple(turns), own_only)


def _draw_turn(dice: random.Random, material: int, requests: dict[int, tuple[int, ...]], *, own_only: bool) -> Turn:
    first = pool(own_only=own_only)[material]
    kit = first.kit
    more = [at for at, one in enumerate(own()) if one.kit is kit and one.stream == first.stream and at != material]
    replies = [_draw_part(dice, material)]
    replies += [_draw_part(dice, dice.choice(more or [material])) for _ in range(dice.choice((0, 1, 1, 2)))]
    known = requests.get(id(kit), ())
    asked = dice.choice(known) if known and dice.random() < 0.1 else -1
    request = Part(asked, draw(dice) if dice.random() < 0.4 else (), draw_cuts(dice) if dice.random() < 0.3 else ())
    if dice.random() < 0.08:
        request = replace(request, coding=dice.choice(CODINGS))
    if dice.random() < 0.05:
        request = replace(request, pause_s=dice.choice((0.5, 40.0)))
    ending: Ending = dice.choice(ENDINGS[1:]) if dice.random() < 0.12 else "end"
    return Turn(dice.getrandbits(32), request, tuple(replies), ending, dice.choice((0, 1, 2, 3, 5, 10, 30)))


def _draw_part(dice: random.Random, material: int) -> Part:
    part = Part(material, draw(dice), draw_cuts(dice))
    rare = dice.random()
    if rare < 0.04:
        return replace(part, dies=True)
    if rare < 0.08:
        return replace(part, kind=dice.choice(KINDS))
    if rare < 0.12:
        return replace(part, coding=dice.choice(CODINGS))
    if rare < 0.14:
        return replace(part, status=dice.choice((201, 204, 400, 404, 429, 500, 302)))
    if rare < 0.18:
        return replace(part, pause_s=dice.choice((1.0, 20.0, 70.0, 130.0)))
    return part


def draw_cuts(dice: random.Random) -> tuple[float, ...]:
    """Where a body is cut."""
    if dice.random() < 0.1:
        return (-1.0,)
    return tuple(round(dice.random(), 6) for _ in range(dice.choice((1, 2, 4, 12, 40))))


def material_of(case: Case, turn: Turn) -> Material:
    """What an exchange's first answer is made of."""
    return pool(own_only=case.own_only)[turn.replies[0].material]


def request_of(case: Case, turn: Turn, *, whole: bool) -> Request:
    """What the client sends."""
    material = material_of(case, turn)
    dice = random.Random(turn.history)
    path, query = material.target
    if turn.request.body is not None:
        body = turn.request.body
    elif turn.request.material >= 0:
        body = pool(own_only=case.own_only)[turn.request.material].body
    else:
        history = draw_history(dice, material.calls)
        own_kit = next((kit for kit in KITS if kit is material.kit), None)
        choices = len(material.answer.choices) if material.answer else 1
        if own_kit and dice.random() < 0.5:
            style = Style(dice.random() < 0.3, dice.random() < 0.3, dice.random() < 0.3)
            body = own_kit.request(history, stream=material.stream, n=choices, style=style)
        else:
            body = material.kit.request(history, stream=material.stream)
    body = encoded(mutate(body, turn.request.mutations), turn.request.coding)
    headers: Headers = JSON_REQUEST
    if turn.request.coding:
        headers = (*headers, (b"content-encoding", turn.request.coding.encode()))
    if dice.random() < 0.1:
        headers = (*headers, (b"x-callfuse-mode", b"warn"), (b"x-callfuse-session-id", b"of-the-fuzz"))
    chunks = None if whole else cut_at(body, turn.request.cuts)
    return Request(path, body, headers, query=query, chunks=chunks)


def replies_of(case: Case, turn: Turn, *, whole: bool) -> tuple[Reply, ...]:
    """What the app answers."""
    return tuple(_reply(pool(own_only=case.own_only)[part.material], part, whole=whole) for part in turn.replies)


def _reply(material: Material, part: Part, *, whole: bool) -> Reply:
    whole_body = material.body if part.body is None else part.body
    body = encoded(mutate(whole_body, part.mutations), part.coding)
    usual = EVENT_STREAM if material.stream else b"application/json"
    kind = usual if part.kind is None else part.kind.encode("latin-1")
    headers: Headers = ((b"content-type", kind),) if kind else ()
    if part.coding:
        headers = (*headers, (b"content-encoding", part.coding.encode()))
    if not material.stream:
        headers = (*headers, (b"content-length", str(len(body)).encode()))
    chunks = (body,) if whole else cut_at(body, part.cuts)
    raises = ConnectionError("the upstream is gone") if part.dies else None
    return Reply(chunks, part.status, headers, raises=raises)


def cut_at(body: bytes, cuts: tuple[float, ...]) -> tuple[bytes, ...]:
    """A body cut at shares of its length."""
    if -1 in cuts:
        return bytewise(body) or (b"",) if len(body) <= SMALL else cut(body, range(0, len(body), 97))
    return cut(body, (int(share * len(body)) for share in cuts))


def encoded(body: bytes, coding: str) -> bytes:
    """A body in a content coding."""
    match coding:
        case "gzip":
            return gzip.compress(body, 1, mtime=0)
        case "deflate":
            return zlib.compress(body, 1)
        case "zstd":
            return zstd.compress(body, 1)
        case _:
            return body


def simpler(case: Case) -> list[Case]:
    """Cases with one thing left out, the largest first."""
    found = [replace(case, turns=case.turns[:at] + case.turns[at + 1 :]) for at in range(len(case.turns))]
    found = [one for one in found if one.turns]
    found += [replace(case, callback="")] if case.callback else []
    found += [replace(case, configuration=0)] if case.configuration else []
    for at, turn in enumerate(case.turns):
        for less in _simpler_turns(turn):
            found.append(replace(case, turns=(*case.turns[:at], less, *case.turns[at + 1 :])))
    return found


def _simpler_turns(turn: Turn) -> list[Turn]:
    found = [replace(turn, replies=turn.replies[:-1])] if len(turn.replies) > 1 else []
    found += [replace(turn, ending="end")] if turn.ending != "end" else []
    found += [replace(turn, request=part) for part in _simpler_parts(turn.request)]
    for at, reply in enumerate(turn.replies):
        replies = turn.replies
        found += [replace(turn, replies=(*replies[:at], part, *replies[at + 1 :])) for part in _simpler_parts(reply)]
    return found


def _simpler_parts(part: Part) -> list[Part]:
    usual: dict[str, Any] = {
        "coding": "",
        "kind": None,
        "status": 200,
        "dies": False,
        "pause_s": 0.0,
        "mutations": (),
        "cuts": (),
        "body": None,
    }
    found = [replace(part, **{name: value}) for name, value in usual.items() if getattr(part, name) != value]
    if len(part.mutations) > 1:
        found += [replace(part, mutations=_without(part.mutations, at)) for at in range(len(part.mutations))]
    if len(part.cuts) > 1:
        found += [replace(part, cuts=_without(part.cuts, at)) for at in range(len(part.cuts))]
    return found + [replace(part, body=body) for body in _shorter(part.body or b"")]


def _shorter(body: bytes) -> list[bytes]:
    """A body without one half, without one quarter, and so on."""
    found = []
    for parts in (2, 4, 8, 16, 32):
        edges = [len(body) * at // parts for at in range(parts + 1)]
        found += [body[:start] + body[end:] for start, end in pairwise(edges) if start < end]
    return found


def _without(values: tuple[T, ...], at: int) -> tuple[T, ...]:
    return (*values[:at], *values[at + 1 :])


def describe(case: Case) -> str:
    """What stands in a case, for a report."""
    settings_of = configurations()[case.configuration].config.tool_call_loop.model_dump(exclude_unset=True)
    lines = [f"settings: {settings_of}", f"callback: {case.callback or 'none'}"]
    for turn in case.turns:
        keys = [pool(own_only=case.own_only)[part.material].key for part in turn.replies]
        lines.append(f"answers: {keys}\n  {turn}")
    return "\n".join(lines)
