"""Define the whole configuration as one validated value, and its keys as paths.

A key's path is the tuple of its names from the top: `("tool_call_loop", "max_repeats")`. A *leaf* is a key with a
value, a *section* one with further keys. Every source names keys by path, so each knows every new field of a settings
class.
"""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, get_args, get_origin

from pydantic import AfterValidator, BaseModel
from pydantic.fields import FieldInfo

from callfuse.config.serve import AdminSettings, ServeSettings
from callfuse.dialects import DIALECTS
from callfuse.observe.settings import EventsSettings, FindingsSettings
from callfuse.observe.telemetry import OtelSettings
from callfuse.policy.fields import SECRET, Seconds
from callfuse.policy.settings import LoopSettings, Strict
from callfuse.stores.address import MEMORY, check_store_url

KeyPath = tuple[str, ...]


def item_name(at: int) -> str:
    """Return the name of a list's item in a path."""
    return f"[{at}]"


class Config(Strict):
    """All settings: single keys, which TOML requires at the top, and the blocks of the file."""

    store: Annotated[str, AfterValidator(check_store_url)] = MEMORY
    """Where callfuse keeps state that is not in the requests: `memory://` is the memory of each process; `redis://`,
    `rediss://` (TLS), `redis+cluster://`, `redis+sentinel://` and `unix://` name a Redis or Valkey that processes
    share. It may contain `user:password@`, which is never printed."""
    store_timeout_s: Seconds = 0.25
    """How long an exchange waits for a shared store before it continues without it."""
    tool_call_loop: LoopSettings = LoopSettings()
    serve: ServeSettings = ServeSettings()
    admin: AdminSettings = AdminSettings()
    events: EventsSettings = EventsSettings()
    findings: FindingsSettings = FindingsSettings()
    otel: OtelSettings = OtelSettings()

    @property
    def backends(self) -> list[str]:
        """The names of backends: the vendors of the dialects, and names from routes."""
        routed = {route.backend for route in self.serve.routes if route.backend}
        return sorted({dialect.backend for dialect in DIALECTS} | routed)


def section_of(annotation: object) -> type[BaseModel] | None:
    """Return the settings class of a field that is a section, or a section or None; None for a field with a value."""
    for arm in get_args(annotation) if isinstance(annotation, UnionType) else (annotation,):
        if isinstance(arm, type) and issubclass(arm, BaseModel):
            return arm
    return None


def entry_of(annotation: object) -> type[BaseModel] | None:
    """Return the settings class of the entries of a field with user-chosen keys; None for any other field."""
    return section_of(get_args(annotation)[1]) if get_origin(annotation) is dict else None


def item_of(annotation: object) -> type[BaseModel] | None:
    """Return the settings class of the items of a field that is a list of mappings; None for any other field."""
    return section_of(get_args(annotation)[0]) if get_origin(annotation) is tuple else None


def keys(model: type[BaseModel] = Config, above: KeyPath = ()) -> Iterator[tuple[KeyPath, FieldInfo]]:
    """Yield every key below `model`, in the order of the classes, except keys below user-chosen names."""
    for name, field in model.model_fields.items():
        path = (*above, name)
        yield path, field
        if section := section_of(field.annotation):
            yield from keys(section, path)


def leaves() -> Iterator[tuple[KeyPath, FieldInfo]]:
    """Yield every leaf of the configuration, in the order of the classes, except leaves below user-chosen names."""
    for path, field in keys():
        if not (section_of(field.annotation) or entry_of(field.annotation)):
            yield path, field


def differences(one: BaseModel, other: BaseModel, above: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the leaves that differ between two configurations. A section with user-chosen names counts as one leaf."""
    for name, field in type(one).model_fields.items():
        mine, own = getattr(one, name), getattr(other, name)
        if section_of(field.annotation):
            yield from differences(mine, own, (*above, name))
        elif mine != own:
            yield (*above, name)


def field_at(path: KeyPath) -> FieldInfo:
    """Return the field of a leaf. The path may contain user-chosen names and items of lists."""
    model: type[BaseModel] = Config
    steps = iter(path)
    for name in steps:
        field = model.model_fields[name]
        if below := entry_of(field.annotation) or item_of(field.annotation):
            model = below
            next(steps, None)
        else:
            model = section_of(field.annotation) or model
    return field


def is_secret(path: KeyPath) -> bool:
    """Whether the value of a leaf is secret, so that it is never printed."""
    return field_at(path).json_schema_extra == SECRET


def dotted_name(path: KeyPath) -> str:
    """Format a key path as people write it: `tool_call_loop.max_repeats`, `serve.routes[0].path`."""
    return "".join(name if name.startswith("[") else f".{name}" for name in path).removeprefix(".")
