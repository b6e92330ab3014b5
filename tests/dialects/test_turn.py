"""Where the last real user message stands, in all dialects: of a whole request, or before one of its messages."""

import pytest

from callfuse.dialects import dialect_of
from callfuse.wire.jsontext import loads
from tests.support.kits import DialectKit, target_of
from tests.support.meeting import ask, every_dialect
from tests.support.model import History, User
from tests.support.plain import spin


@every_dialect
@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_the_last_real_user_message_before_a_place(kit: DialectKit, rounds: int) -> None:
    """From the end, or from behind it, each user message is found once, and nothing but those."""
    said = [User("One."), User("Two."), User("Three.")]
    turns = [turn for user in said for turn in (user, *spin(rounds).turns[1:])]
    body = ask(kit, History(tuple(turns)), stream=False).body
    dialect = dialect_of(target_of(kit, stream=False)[0])
    assert dialect
    request = dialect.read_request(body, loads(body), target_of(kit, stream=False)[0])
    assert request
    places = []
    end = request.length
    assert request.last_user_message() == request.last_user_message(end)
    while (found := request.last_user_message(end))[0] >= 0:
        assert request.last_user_message(found[0] + 1) == found
        places.append(found)
        end = found[0]
    assert len({digest for _, digest in places}) == len(places)
    assert len(places) == 3 or not rounds
