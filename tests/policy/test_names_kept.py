"""What is kept by names that clients write, of tools and models, is bounded in number and in length."""

from callfuse.observe.counts import LONGEST_LABEL, Counts
from callfuse.observe.events import NotAsked
from callfuse.policy.presets import UNATTENDED
from callfuse.policy.settings import LONGEST_NAME, LONGEST_OVERRIDES, NAMES_KEPT, SESSIONS_KEPT, LoopSettings
from callfuse.policy.tiers import Overrides

SETTINGS = LoopSettings.model_validate(
    {"models": {"openai:gpt*": {"max_repeats": 5}}, "per_tool": {"read*": {"max_repeats": 7}}}
)


def test_names_of_any_length() -> None:
    """The beginning of a long one is looked at."""
    settings = SETTINGS.model_copy()
    assert settings.for_exchange("openai:gpt" + "x" * 10**6).max_repeats == 5
    assert settings.for_tool("read" + "x" * 10**6).settings.max_repeats == 7
    kept = [*settings.derived.models, *settings.derived.tools]
    assert len(kept) == 2
    assert max(map(len, kept)) <= LONGEST_NAME


def test_names_in_any_number() -> None:
    """Models that the same patterns match share their settings, and with them what is kept by tool."""
    settings = SETTINGS.model_copy()
    found = [settings.for_exchange(f"openai:{name}{at}") for name in ("gpt", "o") for at in range(2 * NAMES_KEPT)]
    for at in range(2 * NAMES_KEPT):
        settings.for_tool(f"tool{at}")
    assert len({id(one) for one in found}) == 2
    assert [found[0].max_repeats, found[-1].max_repeats] == [5, SETTINGS.max_repeats]
    assert len(settings.derived.models) <= NAMES_KEPT
    assert len(settings.derived.tools) <= NAMES_KEPT


def test_labels_of_any_length() -> None:
    """A count's label is cut."""
    counts = Counts()
    counts.take(NotAsked("x" * 10**6))
    assert counts.of("not_asked", "x" * LONGEST_LABEL) == 1


def test_the_settings_of_sessions_are_kept_by_what_they_set() -> None:
    """Sessions that set the same share one object; a preset is not the same as its plain ladder."""
    server = LoopSettings()
    one, same, other, preset, plain = [
        server.for_exchange("openai:m", Overrides(values))
        for values in (
            {"max_repeats": 4},
            {"max_repeats": 4},
            {"max_repeats": 5},
            {"mode": UNATTENDED},
            {"mode": tuple(UNATTENDED)},
        )
    ]
    assert one is same
    assert (one.max_repeats, other.max_repeats) == (4, 5)
    assert (preset.blow_after, plain.blow_after) == (UNATTENDED.sets["blow_after"], server.blow_after)


def test_few_sessions_are_kept_and_none_that_sets_much() -> None:
    """However many sessions set something, and however long that is."""
    server = LoopSettings()
    for most in range(2 * SESSIONS_KEPT):
        server.for_exchange("openai:m", Overrides({"max_calls": most}))
    kept = {**server.derived.sessions}
    assert 0 < len(kept) <= SESSIONS_KEPT
    server.for_exchange("openai:m", Overrides({}, {"a" * LONGEST_OVERRIDES: {"max_repeats": 4}}))
    assert server.derived.sessions == kept
