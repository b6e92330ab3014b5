"""Fixed conversations, for tests that need one case and no search.

`spin(k)` is a conversation in which one call came k times with one outcome; `again()` is the answer that makes
the call once more, `elsewhere()` one that does something new. In `once(call)` a call came that is no loop yet: of equal
ones in the next answer the third is too many.
"""

from tests.support.model import Answer, Call, History, Item, Quirks, Round, Text, Thinking, User

ARGUMENTS = '{"query": "zebra crossing", "limit": 5}'
PIECES = ('{"query": "zeb', 'ra crossing", ', '"limit": 5}')
RESULT = "nothing was found"
OTHER_RESULT = "twelve entries"


def same_call(call_id: str = "call_again") -> Call:
    """The call that comes again and again."""
    return Call(call_id, "search", PIECES)


def known_call(call_id: str = "call_known") -> Call:
    """A call that `spin(..., beside=True)` has seen once."""
    return Call(call_id, "lookup", ('{"id"', ": 9007199254740993}"))


def new_call(call_id: str = "call_new") -> Call:
    """A call that no conversation here has seen."""
    return Call(call_id, "search", ('{"query": "', 'giraffe"}'))


def spin(times: int = 2, *, beside: bool = False, tool: str = "search") -> History:
    """The same call so many times, each answered alike; `beside` puts another round in front."""
    rounds = [Round((known_call("call_k0"),), (OTHER_RESULT,))] if beside else []
    rounds += [Round((Call(f"call_s{at}", tool, PIECES),), (RESULT,)) for at in range(times)]
    return History((User("Find the zebra crossing."), *rounds))


def once(call: Call) -> History:
    """This call, and another behind it: neither is suspect if it comes again."""
    first = Call("call_o0", call.name, call.pieces)
    rounds = Round((first,), (RESULT,)), Round((known_call("call_o1"),), (OTHER_RESULT,))
    return History((User("Find the zebra crossing."), *rounds))


def saying(*items: Item | str, tag: str = "first", quirks: Quirks | None = None) -> Answer:
    """An answer of these items; a string is text."""
    said = tuple(Text((item,)) if isinstance(item, str) else item for item in items)
    return Answer((said,), quirks or Quirks(), tag=tag)


def again(*, text: str = "Let me look.", tag: str = "first") -> Answer:
    """The model makes the call once more."""
    return saying(*([text] if text else []), same_call(f"call_{tag}"), tag=tag)


def elsewhere(*, tag: str = "second") -> Answer:
    """The model does something new."""
    return saying("Another way.", new_call(f"call_{tag}"), tag=tag)


def thinking() -> Thinking:
    """A thought with a signature."""
    return Thinking(("The zebra ", "again?"), "c2lnbmF0dXJl+/==")
