"""What happens, as events, which a `Bus` gives to its sinks: log lines, counts, metrics, traces, the feed."""

from callfuse.observe.bus import Bus, Sink
from callfuse.observe.fields import fields_of

__all__ = ["Bus", "Sink", "fields_of"]
