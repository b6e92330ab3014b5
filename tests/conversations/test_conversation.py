"""The timeline of a request merged with the ledger: nothing that a client does adds or erases evidence."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callfuse.conversations.ledger import LaneState
from callfuse.conversations.notes import note_keys
from callfuse.conversations.timeline import keep_round
from tests.conversations.talks import Ids, Lane, by_name, by_number, request, talk, without, words
from tests.support.examples import more_examples
from tests.support.work import lines_run

HELLO = "user: Find it."
EVERY_ID = pytest.mark.parametrize("ids", [by_number, by_name, without])


def spun(times: int, ids: Ids = by_number) -> Lane:
    """A lane in which the same call came so many times; the last result is still to come."""
    lane = Lane(ids)
    for at in range(times):
        lane.answer(HELLO, *["a=x"] * at, brings=["a"])
    return lane


@EVERY_ID
def test_request_and_ledger_tell_the_same_rounds_once(ids: Ids) -> None:
    """The request has the outcomes, the ledger the times; whatever the ids are."""
    lane = spun(4, ids)
    timeline = lane.look(HELLO, *["a=x"] * 4).timeline
    assert words(timeline) == ["a=x"] * 4
    assert [round_.time for round_ in timeline] == [40, 30, 20, 10]


@EVERY_ID
def test_a_restarted_guard_reads_the_request(ids: Ids) -> None:
    """With an empty ledger the rounds are the same, their times unknown."""
    timeline = talk(request(HELLO, *["a=x"] * 4, ids=ids)).timeline
    assert words(timeline) == ["a=x"] * 4
    assert [round_.time for round_ in timeline] == [None] * 4


@EVERY_ID
@pytest.mark.parametrize("times", [1, 2, 4])
def test_a_client_that_tries_again(ids: Ids, times: int) -> None:
    """The last answer was not taken up: the same request once more shows what it showed before."""
    lane = spun(times + 1, ids)
    for _ in range(3):
        assert words(lane.look(HELLO, *["a=x"] * times).timeline) == ["a=x"] * times
        lane.answer(HELLO, *["a=x"] * times, brings=["a"])
    assert words(lane.look(HELLO, *["a=x"] * (times + 1)).timeline) == ["a=x"] * (times + 1)


@EVERY_ID
def test_a_replay_of_the_conversation(ids: Ids) -> None:
    """Every request from the first on, sent again, adds nothing."""
    lane = spun(3, ids)
    for at in range(3):
        lane.answer(HELLO, *["a=x"] * at, brings=["a"])
    assert words(lane.look(HELLO, *["a=x"] * 3).timeline) == ["a=x"] * 3


@EVERY_ID
def test_another_branch(ids: Ids) -> None:
    """The client goes back and goes on with another call: what it threw away does not count."""
    lane = spun(3, ids)
    lane.answer(HELLO, "a=x", brings=["b"])
    assert words(lane.look(HELLO, "a=x", "b=y").timeline) == ["a=x", "b=y"]
    lane.answer(HELLO, "a=x", "b=y", brings=["a"])
    assert words(lane.look(HELLO, "a=x", "b=y", "a=x").timeline) == ["a=x", "b=y", "a=x"]


@EVERY_ID
def test_the_same_prompt_run_again(ids: Ids) -> None:
    """Without a session id the second run finds the first one's lane, and takes nothing from it."""
    lane = spun(3, ids)
    assert words(lane.look(HELLO).timeline) == []
    lane.answer(HELLO, brings=["a"])
    assert words(lane.look(HELLO, "a=x").timeline) == ["a=x"]


def test_a_truncated_history() -> None:
    """Rounds that the client has dropped still count, with what came of them."""
    lane = spun(4)
    timeline = lane.look(HELLO, *["a=x"] * 4, drop=slice(1, 7)).timeline
    assert words(timeline) == ["a=x"] * 4
    lane.answer(HELLO, *["a=x"] * 4, brings=["a"])
    assert words(lane.look(HELLO, *["a=x"] * 5, drop=slice(1, 9)).timeline) == ["a=x"] * 5


def test_a_compacted_history() -> None:
    """A history that has lost all its rounds is told from a run from the start."""
    lane = spun(3)
    lane.answer(HELLO, *["a=x"] * 3, brings=["a"])
    compacted = request(HELLO, "b=y", "user: <system-reminder>What was done: ...</system-reminder>")
    assert words(talk(compacted, lane.state).timeline) == ["b=y"]
    turns = request(HELLO, "user: <system-reminder>What was done: ...</system-reminder>")
    assert len(words(talk(turns, lane.state).timeline)) == 4


def test_ids_that_the_client_rewrites() -> None:
    """Another run of the same prompt looks no different: nothing of the ledger joins, the request speaks for itself."""
    lane = spun(3)
    rewritten = request(HELLO, *["a=x"] * 3, ids=lambda number, name: f"other-{number}")
    timeline = talk(rewritten, lane.state).timeline
    assert words(timeline) == ["a=x"] * 3
    assert [round_.time for round_ in timeline] == [None, None, None]


def test_a_new_user_message_starts_anew() -> None:
    """Neither the request's rounds before it nor the ledger's count; the next rounds do."""
    lane = spun(3)
    said = (HELLO, *["a=x"] * 3, "user: Now another.")
    assert words(lane.look(*said).timeline) == []
    lane.answer(*said, brings=["a"])
    assert words(lane.look(*said, "a=x").timeline) == ["a=x"]


def test_the_same_words_again_are_a_new_message() -> None:
    """A user who says the same once more has started a new timeline."""
    lane = spun(3)
    said = (HELLO, *["a=x"] * 3, HELLO)
    assert words(lane.look(*said).timeline) == []
    lane.answer(*said, brings=["a"])
    assert words(lane.look(*said, "a=x").timeline) == ["a=x"]


@EVERY_ID
def test_an_edited_message_starts_anew(ids: Ids) -> None:
    """What came after the user's words as they stood before does not count, though all of it stands where it stood."""
    lane = Lane(ids)
    lane.answer(HELLO, "user: One.", brings=["a"])
    lane.answer(HELLO, "user: One.", "a=x", brings=["!a", "b"])
    assert words(lane.look(HELLO, "user: One.", "a=x", "b=y").timeline) == ["a=x", "!a", "b=y"]
    assert words(lane.look(HELLO, "user: Two.", "a=x", "b=y").timeline) == ["a=x", "b=y"]
    assert words(lane.look(HELLO, "user: One.", "user: Two.", "a=x", "b=y").timeline) == ["a=x", "b=y"]


@pytest.mark.parametrize("said", ["[callfuse] Stopped a loop.", "<system-reminder>Be brief.</system-reminder>"])
def test_own_texts_and_reminders_start_nothing(said: str) -> None:
    """They are no user messages."""
    lane = spun(2)
    assert words(lane.look(HELLO, "a=x", "a=x", f"user: {said}").timeline) == ["a=x", "a=x"]


@EVERY_ID
def test_withheld_rounds_stand_at_their_place(ids: Ids) -> None:
    """They were never in a request: a steer before the round that took its place, a block where it ended."""
    lane = spun(2, ids)
    lane.answer(HELLO, "a=x", "a=x", brings=["!a", "b"])
    assert words(lane.look(HELLO, "a=x", "a=x", "b=y").timeline) == ["a=x", "a=x", "!a", "b=y"]
    lane.answer(HELLO, "a=x", "a=x", "b=y", brings=["c"])
    conversation = lane.look(HELLO, "a=x", "a=x", "b=y", "c=z")
    assert words(conversation.timeline) == ["a=x", "a=x", "!a", "b=y", "c=z"]
    assert not conversation.timeline.has_blocks


def test_a_block_is_known_in_the_next_request() -> None:
    """After a text of the client's own, or a reminder, or a call that is new."""
    lane = spun(2)
    lane.answer(HELLO, "a=x", "a=x", brings=["!!a"])
    said = (HELLO, "a=x", "a=x", "user: [callfuse] Stopped.")
    conversation = lane.look(*said)
    assert words(conversation.timeline) == ["a=x", "a=x", "!!a"]
    assert conversation.timeline.has_blocks
    lane.answer(*said, brings=["b"])
    assert words(lane.look(*said, "b=y").timeline) == ["a=x", "a=x", "!!a", "b=y"]


def test_a_withheld_sibling_stands_in_its_round() -> None:
    """Beside the calls that survived."""
    lane = spun(2)
    lane.answer(HELLO, "a=x", "a=x", brings=["!a b"])
    assert words(lane.look(HELLO, "a=x", "a=x", "b=y").timeline) == ["a=x", "a=x", "!a b=y"]


def test_a_block_that_the_client_did_not_take_up() -> None:
    """The same request again: the block is forgotten, and will come again."""
    lane = spun(2)
    lane.answer(HELLO, "a=x", "a=x", brings=["!!a"])
    conversation = lane.look(HELLO, "a=x", "a=x")
    assert words(conversation.timeline) == ["a=x", "a=x"]


def test_places_come_back() -> None:
    """A call of the request has the place on the ladder that it had when it came."""
    lane = spun(2)
    lane.answer(HELLO, "a=x", "a=x", brings=["a"], place=2)
    newest = next(iter(lane.look(HELLO, *["a=x"] * 3).timeline))
    assert [one.step for one in newest.calls] == [2]


def test_outcomes_are_kept_for_rounds_that_go_later() -> None:
    """What somebody has read once is known when the client drops the round."""
    lane = Lane()
    lane.answer(HELLO, brings=["a"])
    lane.answer(HELLO, "a=x", brings=["a"])
    lane.answer(HELLO, "a=x", "a=x", brings=["a"])
    assert words(lane.look(HELLO, *["a=x"] * 3, drop=slice(1, 3)).timeline) == ["a=x"] * 3


def test_the_oldest_rounds_and_notes_go_first() -> None:
    """Within `max_rounds`."""
    conversation = talk(request(HELLO))
    calls = [next(iter(request(HELLO, f"a{at}=x").rounds())) for at in range(8)]
    rounds = [round_.calls for round_ in calls if round_]
    notes = note_keys(conversation, [(one[0].call, f"note {at}") for at, one in enumerate(rounds)])
    state = conversation.evidence.after(rounds, notes, 1, max_rounds=5)
    assert [round_.calls[0].signature for round_ in state.rounds] == [one[0].signature for one in rounds[3:]]
    assert list(state.notes.values()) == [f"note {at}" for at in range(3, 8)]


said = st.lists(st.sampled_from(["a=x", "a=x", "b=y", "a=x b=y"]), min_size=1, max_size=6)
brought = st.lists(st.sampled_from(["a", "b", "a b", "!a"]), min_size=1, max_size=3)


@more_examples(5)
@given(before=said, tries=brought, ids=st.sampled_from([by_number, by_name, without]))
@example(before=["a=x"], tries=["a"], ids=by_name)
def test_tries_leave_no_trace(before: list[str], tries: list[str], ids: Ids) -> None:
    """However often the last request was answered, the next one shows its own rounds, as without a ledger."""
    lane = Lane(ids)
    for at in range(len(before)):
        lane.answer(HELLO, *before[:at], brings=[" ".join(word.split("=")[0] for word in before[at].split())])
    for one in tries:
        lane.answer(HELLO, *before, brings=[one])
    assert words(lane.look(HELLO, *before).timeline) == before


def rewritten(count: int) -> int:
    """The work of reading a history in which another call stands beside a known one in each round but the newest."""
    rounds = [f"a=x b{at}=y" for at in range(count)]
    evidence = talk(request(HELLO, *rounds, ids=without)).evidence
    past = [round_ for round_ in request(HELLO, *rounds, ids=without).rounds() if round_]
    kept = [keep_round(round_.calls, round_.position, 1.0, evidence.turn) for round_ in reversed(past)]
    shown = request(HELLO, *(f"a=x c{at}=y" for at in range(count - 1)), rounds[-1], ids=without)
    return lines_run(lambda: talk(shown, LaneState(tuple(kept), {}, 2 * count + 1)))


def test_rounds_that_are_not_known_are_not_searched_for() -> None:
    """A round is looked for among the kept ones only where all of its calls are known."""
    assert rewritten(200) < 2.5 * rewritten(100)
