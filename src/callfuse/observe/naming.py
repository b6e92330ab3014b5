"""Choose events by name: operators may name events, and kinds of findings."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from callfuse.detect.registry import KINDS as DETECTED
from callfuse.observe import events
from callfuse.observe.events import Event, FindingSeen
from callfuse.observe.fields import EVENT, KIND, KINDS
from callfuse.policy.nearest import suggest

CLASSES: Final[Mapping[str, type[Event]]] = {
    one.name: one
    for one in vars(events).values()
    if isinstance(one, type) and issubclass(one, Event) and one is not Event
}
"""Every event, by its name."""
FINDINGS: Final = tuple(DETECTED)
"""The kinds of findings. Such a name chooses the findings of that kind only."""
NAMES: Final = (*CLASSES, *FINDINGS)


def check_names(names: Iterable[str]) -> None:
    """Raise ValueError if a name chooses nothing. The message says which names there are."""
    for name in names:
        if name not in NAMES:
            raise ValueError(f"there is no event or kind of finding {name[:100]!r}; {suggest(name[:100], NAMES)}")


def classes_of(names: Collection[str]) -> frozenset[type[Event]]:
    """Return the classes of events that these names may choose."""
    found = {CLASSES[name] for name in names if name in CLASSES}
    if not found.issuperset({FindingSeen}) and not set(FINDINGS).isdisjoint(names):
        found.add(FindingSeen)
    return frozenset(found)


def is_chosen(fields: Mapping[str, Any], names: Collection[str]) -> bool:
    """Whether the names choose this event, given its fields."""
    return any(one in names for name in (EVENT, KIND, KINDS) for one in texts_of(fields, name))


def texts_of(fields: Mapping[str, Any], name: str) -> Iterable[str]:
    """Return the text of a field, or the texts of its list; nothing if the field has another type, which another
    program may write."""
    value = fields.get(name)
    if isinstance(value, str):
        return (value,)
    return [one for one in value if isinstance(one, str)] if isinstance(value, list | tuple) else ()
