"""Make the JSON schema of the file, for editors. It accepts the same values as the settings, as far as a schema can.

YAML 1.2 editors read `on` and `off` as strings, callfuse reads them as booleans, so the schema accepts such strings.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from callfuse.config import serve
from callfuse.config.model import Config, entry_of, item_of, section_of
from callfuse.config.versions import ABOUT, CURRENT, KEY
from callfuse.policy import fields
from callfuse.policy.presets import MODES
from callfuse.policy.rungs import NO_CAP, RUNG_NAMES
from callfuse.policy.sections import CAPS
from callfuse.reference.keys import descriptions

JSONSchema = dict[str, Any]

NULL: JSONSchema = {"type": "null"}
NUMBER: JSONSchema = {"type": "string", "pattern": r"^\s*[-+0-9_.eE]+\s*$"}
"""A number in quotes."""
BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
WORDS = ("true", "t", "on", "yes", "y", "1", "false", "f", "off", "no", "n", "0")


def _spellings(names: Iterable[str]) -> list[str]:
    """Return all spellings of names: unchanged, in capitals, with one capital, with dashes."""
    cased = [spelt for name in names for spelt in (name, name.upper(), name.capitalize())]
    return list(dict.fromkeys([*cased, *(name.replace("_", "-") for name in cased)]))


SWITCH: JSONSchema = {"anyOf": [{"type": "boolean"}, {"enum": [0, 1, *_spellings(WORDS)]}]}
RUNG: JSONSchema = {"enum": _spellings(RUNG_NAMES)}
MODE: JSONSchema = {"anyOf": [{"enum": _spellings(MODES)}, {"type": "array", "items": RUNG, "minItems": 1}]}


CAP: JSONSchema = {"enum": _spellings([*RUNG_NAMES, NO_CAP])}
OF_PART: JSONSchema = {"enum": [False, *_spellings([fields.OFF, *RUNG_NAMES, NO_CAP])]}
ON_OR_OFF: list[JSONSchema] = [{"type": "boolean"}, {"enum": _spellings(fields.SWITCHES)}]
LIMIT: list[JSONSchema] = [*ON_OR_OFF, NUMBER, {"enum": [0]}, {"type": "integer", "minimum": 2}]


def _long_form(limits: Mapping[str, list[JSONSchema]]) -> JSONSchema:
    """Describe the settings of a kind of loop as a mapping: its limit under either name, and its caps."""
    keys: JSONSchema = {name: {"anyOf": limit} for name, limit in limits.items()}
    caps: JSONSchema = {name: {"anyOf": [CAP, NULL]} if name == "most_hard" else CAP for name in CAPS}
    return {"type": "object", "properties": keys | caps, "additionalProperties": False}


def json_schema() -> JSONSchema:
    """Make the schema of the whole file, JSON Schema draft 2020-12."""
    schema: JSONSchema = _rename_bounds(Config.model_json_schema(schema_generator=_Generator))
    for model in _models(Config):
        _complete(schema if model is Config else schema["$defs"][model.__name__], model)
    version: JSONSchema = {"const": CURRENT, "description": ABOUT}
    schema["properties"] = {KEY: version, **schema["properties"]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "callfuse"}


def _rename_bounds(schema: Any) -> Any:
    """Rename the bounds of fields with validators, because pydantic uses its own names for them."""
    if isinstance(schema, list):
        return [_rename_bounds(one) for one in schema]
    if isinstance(schema, dict):
        return {BOUNDS.get(key, key): _rename_bounds(below) for key, below in schema.items()}
    return schema


class _Generator(GenerateJsonSchema):
    """Describes the values that the validators of `policy.fields` accept, instead of those that they return."""

    def bool_schema(self, schema: core_schema.BoolSchema) -> JSONSchema:
        return SWITCH

    def int_schema(self, schema: core_schema.IntSchema) -> JSONSchema:
        return {"anyOf": [super().int_schema(schema), NUMBER]}

    def float_schema(self, schema: core_schema.FloatSchema) -> JSONSchema:
        return {"anyOf": [super().float_schema(schema), NUMBER]}

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JSONSchema:
        read = schema["function"]["function"]
        if read in (fields.lower, fields.lower_or_none):
            off = [False] if read is fields.lower_or_none else []
            return {"enum": [*_spellings(self.generate_inner(schema["schema"])["enum"]), *off]}
        if read is serve.to_routes:
            routes = self.generate_inner(schema["schema"])
            text = {"type": "string", "pattern": "^/[^=]*=.*://"}
            return {"anyOf": [{**routes, "items": {"anyOf": [routes["items"], text]}}, text]}
        if read is fields.cap:
            return CAP
        if isinstance(read, fields.Limit):
            return {"anyOf": [*LIMIT, _long_form({read.unit: LIMIT, "limit": LIMIT})]}
        if isinstance(read, fields.Switch):
            return {"anyOf": [*ON_OR_OFF, _long_form({name: [OF_PART] for name in read.parts})]}
        if read is fields.part_cap:
            return OF_PART
        return super().function_before_schema(schema)

    def function_plain_schema(self, schema: core_schema.PlainValidatorFunctionSchema) -> JSONSchema:
        return MODE

    def function_wrap_schema(self, schema: core_schema.WrapValidatorFunctionSchema) -> JSONSchema:
        return {"anyOf": [{"enum": [0]}, {"type": "integer", "minimum": 2}, NUMBER]}


def _models(model: type[BaseModel]) -> dict[type[BaseModel], None]:
    """Return all settings classes below a class, each once."""
    found: dict[type[BaseModel], None] = {model: None}
    for field in model.model_fields.values():
        below = section_of(field.annotation) or entry_of(field.annotation) or item_of(field.annotation)
        if below:
            found |= _models(below)
    return found


def _complete(schema: JSONSchema, model: type[BaseModel]) -> None:
    """Add descriptions, and allow sections to be null, or a boolean if they have `enabled`."""
    words = descriptions(model)
    for name, field in model.model_fields.items():
        own = schema["properties"][name]
        if section := section_of(field.annotation):
            switch = [SWITCH] if "enabled" in section.model_fields else []
            own = {"anyOf": [{"$ref": f"#/$defs/{section.__name__}"}, *switch, NULL]}
        elif entry_of(field.annotation):
            own = {"anyOf": [own, NULL]}
        schema["properties"][name] = own | ({"description": words[name]} if name in words else {})
