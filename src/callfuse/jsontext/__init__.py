"""JSON as text: reading what strict parsers refuse, and changing one part while every other byte stays."""

from callfuse.jsontext.edit import END, Edit, apply, span, spans
from callfuse.jsontext.load import ExactAt, NotJSON, dumps, loads, loads_exact

__all__ = ["END", "Edit", "ExactAt", "NotJSON", "apply", "dumps", "loads", "loads_exact", "span", "spans"]
