"""Define the setting `otel`, and the interface of traces. All code for OpenTelemetry is in `observe/otel.py`."""

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Annotated, Literal, Protocol

from pydantic import BeforeValidator

from callfuse.errors import ConfigError, install_hint
from callfuse.observe.bus import Bus
from callfuse.observe.metrics import Watched
from callfuse.policy.fields import Strict, lower_or_none


class OtelSettings(Strict):
    """The `otel` block: traces and metrics over OpenTelemetry's API. `otel: on` switches them on."""

    enabled: bool = False
    """Needs `callfuse[otel]`, and an SDK with exporters, set up by the host or `opentelemetry-instrument`."""
    content: Annotated[Literal["none", "short", "full"], BeforeValidator(lower_or_none)] = "none"
    """What spans contain of a looping call's arguments and last result: nothing (`none`), the first 200 characters
    (`short`), or 16,384 (`full`). Known forms of secrets are replaced by asterisks."""


class Traces(Protocol):
    """The place of exchanges in traces. Callers must keep its errors from the exchange."""

    def begin(self, headers: Mapping[bytes, bytes]) -> None:
        """Begin an exchange in this context. `headers`: those of its request, with lower-case names."""
        ...

    def continue_in(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Make the exchange's span the current one of this task, which asks the model again. Returns the headers for
        that request. Without a span, nothing changes."""
        ...


def open_traces(settings: OtelSettings, bus: Bus) -> Traces | None:
    """Make traces of events from now on; None unless enabled. Raises ConfigError without OpenTelemetry."""
    if not settings.enabled:
        return None
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.trace") is None:
        raise ConfigError(f"otel.enabled = true: needs the package opentelemetry-api: {install_hint('otel')}")
    from callfuse.observe.otel import OtelTraces

    traces = OtelTraces(settings.content)
    bus.add(traces)
    return traces


def open_metrics(settings: OtelSettings, guard: Watched) -> None:
    """Export metrics of a middleware over OpenTelemetry from now on, if the settings enable them."""
    if settings.enabled:
        from callfuse.observe.otel import OtelMetrics

        OtelMetrics().watch(guard)
