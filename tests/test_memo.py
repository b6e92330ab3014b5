"""What is remembered by texts that others write is bounded in bytes, whatever they write."""

import tracemalloc

from callfuse.memo import BOUNDS, Bound, remembered

CALLS: list[object] = []


@remembered(entries=2, longest=8)
def shout(text: str) -> str:
    """Work that is seen."""
    CALLS.append(text)
    return text.upper()


@remembered(entries=2, longest=8)
def join(text: str, raw: bytes, *, loud: bool = False) -> str:
    """Work on two texts that is seen."""
    CALLS.append((text, raw))
    return text + raw.decode() + "!" * loud


def worked(*texts: str) -> list[object]:
    """The texts for which `shout` had to work."""
    CALLS.clear()
    for text in texts:
        assert shout(text) == text.upper()
    return [*CALLS]


def test_the_last_texts_are_remembered() -> None:
    """As many as there are entries, the one used longest ago going first."""
    assert worked("a", "b", "a", "b") == ["a", "b"]
    assert worked("c", "b", "a") == ["c", "a"]


def test_long_texts_are_not() -> None:
    """A text beyond the length is worked out each time, and drives out none that is remembered."""
    assert worked("a", "b", "x" * 9, "x" * 9, "a", "b")[-2:] == ["x" * 9] * 2


def test_all_texts_of_a_call_count_together() -> None:
    """A long name is kept no more than a long text, whatever the type."""
    CALLS.clear()
    for _ in range(2):
        assert join("abcd", b"efgh") == "abcdefgh"
        assert join("abcde", b"fghi", loud=True) == "abcdefghi!"
    assert CALLS == [("abcd", b"efgh"), ("abcde", b"fghi"), ("abcde", b"fghi")]


def test_nothing_of_a_long_text_stays() -> None:
    """A thousand names of 40 kB leave no memory behind."""
    tracemalloc.start()
    try:
        for at in range(1000):
            shout(f"{at}" * 10_000)
        CALLS.clear()
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


def test_each_says_what_it_keeps_at_most() -> None:
    """By its module and name; four bytes for a character."""
    assert BOUNDS[f"{__name__}.shout"] == Bound(2, 8)
    assert Bound(2, 8).bytes == 64
