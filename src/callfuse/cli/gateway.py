"""`callfuse doctor --envoy`: find settings of an Envoy, or of a gateway built on it, that keep `callfuse ext-proc` from
guarding, or cut answers.

It reads bootstraps and dumps of Envoy, EnvoyFilters of Istio, EnvoyExtensionPolicies of Envoy Gateway, and files of
agentgateway. A fault in several places is reported once, with its lines.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from callfuse.cli.diagnosis import Check, CheckState, failed, ok
from callfuse.cli.gateway_file import FilePart, UnreadableFileError, read_gateway_file
from callfuse.config import Resolved
from callfuse.config.wording import format_value
from callfuse.observe.printable import plain
from callfuse.stores.address import MEMORY

AREA: Final = "envoy"
OURS: Final = "callfuse"
"""If filters or their targets have this in their names, only these filters are checked."""
FILTER: Final = ".ext_proc.v3.ExternalProcessor"
PER_ROUTE: Final = ".ext_proc.v3.ExtProcPerRoute"
COMPRESSOR: Final = ".compressor.v3.Compressor"
FULL_DUPLEX: Final = "FULL_DUPLEX_STREAMED"
MOST_PLACES: Final = 5
"""The most places of a fault that are shown."""

LONG_ANSWER_S: Final = 60.0
"""An answer may take this long, and so may its first byte."""
LONG_REQUEST_BYTES: Final = 32_000_000
"""Vendors accept requests of this length."""
READ_S: Final = 1.0
"""The time that callfuse may need to read a long request, on a busy machine."""

_HTTP_2: Final = ("http2_protocol_options", "auto_config", "use_downstream_protocol_config")
"""Keys of a cluster that enable HTTP/2."""
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_DURATION: Final = re.compile(r"(?:\d{1,12}(?:\.\d{0,12})?(?:ms|us|ns|h|m|s))+", re.ASCII)
_AMOUNT: Final = re.compile(r"([\d.]+)(ms|us|ns|h|m|s)", re.ASCII)
_SIZE: Final = re.compile(r"(\d{1,15})(Ki|Mi|Gi|k|M|G)?", re.ASCII)
_SIZES: Final = {None: 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 10**3, "M": 10**6, "G": 10**9}


class FilterRule(NamedTuple):
    """The required value of a filter's key. `right`: its correct values, the best one first. `default`: the value
    without the key. `why`: what happens otherwise."""

    key: str
    right: tuple[str, ...]
    default: str
    why: str
    state: CheckState = CheckState.FAILED


class Flavour(NamedTuple):
    """The notation of the filter in one kind of gateway: its rules, and the keys of the request's mode and of the
    timeout."""

    rules: tuple[FilterRule, ...]
    request_mode: str
    message_timeout: str = ""


_UNGUARDED: Final = "answers cannot be changed, so nothing is guarded"
_PARTIAL: Final = "callfuse does not get the whole request before the vendor does, so nothing is guarded"
_STOPS: Final = "while callfuse is down, no request passes"
_REFUSED: Final = "Envoy refuses to stream in full duplex without it"

_MODES: Final = (
    FilterRule("processing_mode.request_header_mode", ("SEND", "DEFAULT"), "DEFAULT", "callfuse sees no request"),
    FilterRule("processing_mode.request_body_mode", ("BUFFERED", FULL_DUPLEX), "NONE", _PARTIAL),
    FilterRule("processing_mode.response_header_mode", ("SEND", "DEFAULT"), "DEFAULT", "answers break off"),
    FilterRule("processing_mode.response_body_mode", (FULL_DUPLEX,), "NONE", _UNGUARDED),
    FilterRule("processing_mode.response_trailer_mode", ("SEND",), "SKIP", _REFUSED),
)
_REQUEST_TRAILERS: Final = FilterRule("processing_mode.request_trailer_mode", ("SEND",), "SKIP", _REFUSED)
_ENVOY: Final = Flavour(
    (
        *_MODES,
        FilterRule("failure_mode_allow", ("true",), "false", _STOPS, CheckState.WARNING),
        FilterRule("observability_mode", ("false",), "false", "Envoy ignores what callfuse replies"),
        FilterRule(
            "disable_immediate_response",
            ("false",),
            "false",
            "callfuse's own answers, such as those to chat commands, do not reach the client",
            CheckState.WARNING,
        ),
        FilterRule(
            "mutation_rules.disallow_all",
            ("false",),
            "false",
            "callfuse can neither ask for plain answers nor mark those that it changes",
            CheckState.WARNING,
        ),
    ),
    "processing_mode.request_body_mode",
    "message_timeout",
)
_ENVOY_GATEWAY: Final = Flavour(
    (
        FilterRule("processingMode.request.body", ("Buffered", "FullDuplexStreamed"), "not to send it", _PARTIAL),
        FilterRule("processingMode.response.body", ("FullDuplexStreamed",), "not to send it", _UNGUARDED),
        FilterRule("failOpen", ("false",), "false", "Envoy Gateway refuses it together with FullDuplexStreamed"),
    ),
    "processingMode.request.body",
    "messageTimeout",
)
_AGENTGATEWAY: Final = Flavour(
    (
        FilterRule(
            "processingOptions.requestBodyMode", ("fullDuplexStreamed", "buffered"), "fullDuplexStreamed", _PARTIAL
        ),
        FilterRule("processingOptions.responseBodyMode", ("fullDuplexStreamed",), "fullDuplexStreamed", _UNGUARDED),
        FilterRule("failureMode", ("failOpen",), "failClosed", _STOPS, CheckState.WARNING),
    ),
    "processingOptions.requestBodyMode",
)


class LeastValue(NamedTuple):
    """A duration or a size, and its least value. `zero_is_none`: 0 means no limit."""

    key: str
    least: float
    read: Callable[[Any], float | None]
    why: str
    advice: str
    default: str = ""
    zero_is_none: bool = True


_CUTS: Final = "Envoy cuts an answer that takes longer"
_SILENCE: Final = "Envoy cuts an answer that is silent for this long, as while a model thinks"
_LONGER: Final = "set it to 0s, or at least to 60s; answers of models take minutes"
_TOO_LONG: Final = "a request that is longer gets 413"
_LARGER: Final = "set request_body_buffer_limit (older releases: per_connection_buffer_limit_bytes) to 67108864, 64 MiB"


def _seconds(value: Any) -> float | None:
    """Read a duration, as 0.2s or 1m30s; None for anything else."""
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        return None
    return sum(float(amount) * _UNITS[unit] for amount, unit in _AMOUNT.findall(value))


def _bytes(value: Any) -> float | None:
    """Read a size, as 67108864 or 64Mi; None for anything else."""
    found = _SIZE.fullmatch(_text(value))
    return int(found[1]) * _SIZES[found[2]] if found else None


_ROUTE_LIMITS: Final = (
    LeastValue("timeout", LONG_ANSWER_S, _seconds, _CUTS, _LONGER, "15s"),
    LeastValue("max_stream_duration.max_stream_duration", LONG_ANSWER_S, _seconds, _CUTS, _LONGER),
    LeastValue("retry_policy.per_try_timeout", LONG_ANSWER_S, _seconds, _CUTS, _LONGER),
    LeastValue("idle_timeout", LONG_ANSWER_S, _seconds, _SILENCE, _LONGER),
)
_STREAM_IDLE: Final = LeastValue("stream_idle_timeout", LONG_ANSWER_S, _seconds, _SILENCE, _LONGER)
_BUFFERS: Final = tuple(
    LeastValue(key, LONG_REQUEST_BYTES, _bytes, _TOO_LONG, _LARGER, "1 MiB", zero_is_none=False)
    for key in ("request_body_buffer_limit", "per_connection_buffer_limit_bytes")
)
_POLICIES: Final = (
    (
        "ClientTrafficPolicy",
        LeastValue("spec.connection.bufferLimit", LONG_REQUEST_BYTES, _bytes, _TOO_LONG, "set it to 64Mi", "32Ki"),
    ),
    (
        "BackendTrafficPolicy",
        LeastValue("spec.timeout.http.requestTimeout", LONG_ANSWER_S, _seconds, _CUTS, _LONGER, "15s"),
    ),
)
"""Further policies of Envoy Gateway, in addition to the one with the filter."""


@dataclass(frozen=True, slots=True)
class Processor:
    """An external processor in a file. `settings`: those of its filter."""

    name: str
    target: str
    settings: FilePart
    flavour: Flavour

    @property
    def is_ours(self) -> bool:
        """Whether callfuse is in its names."""
        return OURS in f"{self.name} {self.target}".lower()

    def __str__(self) -> str:
        target = f" sends to {self.target}" if self.target else ""
        return f"{self.name} ({self.settings.place}){target}"

    @property
    def manager(self) -> FilePart | None:
        """The connection manager with the filter; None if it is not in the file."""
        return _manager_of(self.settings)

    @property
    def request_mode(self) -> str:
        """How requests are sent, in lower case and without underscores."""
        return _word(self.settings.at(*self.flavour.request_mode.split(".")).value)

    @property
    def is_buffered(self) -> bool:
        """Whether Envoy sends a request as a whole."""
        return self.request_mode == "buffered"


class GatewayFault(NamedTuple):
    """A fault. `found`: the key and its value; `why`: what happens; `advice`: the correct value."""

    state: CheckState
    found: str
    why: str
    advice: str


@dataclass(slots=True)
class GatewayFaults:
    """The faults, each with its places."""

    _places: dict[GatewayFault, list[str]] = field(default_factory=dict)

    def add(self, fault: GatewayFault, place: str) -> None:
        """Note a fault."""
        self._places.setdefault(fault, []).append(place)

    def check_rule(self, settings: FilePart, rule: FilterRule) -> None:
        """Check a key of a filter."""
        given = settings.at(*rule.key.split("."))
        right = {_word(one) for one in rule.right}
        if given.value is None:
            if _word(rule.default) not in right:
                found = f"{rule.key} is not set; the default is {rule.default}"
                self.add(GatewayFault(rule.state, found, rule.why, f"set it to {rule.right[0]}"), given.place)
        elif _word(given.value) not in right:
            advice = "remove it" if rule.right[0] == rule.default else f"set it to {rule.right[0]}"
            self.add(GatewayFault(rule.state, f"{rule.key} = {_shown(given.value)}", rule.why, advice), given.place)

    def check_limit(self, part: FilePart, limit: LeastValue, *, is_complete: bool) -> None:
        """Check a duration or a size. `is_complete`: a missing value means the default."""
        given = part.at(*limit.key.split("."))
        if given.value is None:
            if is_complete and limit.default:
                found = f"{limit.key} is not set; the default is {limit.default}"
                self.add(GatewayFault(CheckState.WARNING, found, limit.why, limit.advice), part.place)
            return
        value = limit.read(given.value)
        if value is not None and value < limit.least and not (limit.zero_is_none and value == 0):
            found = f"{limit.key} = {_shown(given.value)}"
            self.add(GatewayFault(CheckState.WARNING, found, limit.why, limit.advice), given.place)

    @property
    def checks(self) -> Iterator[Check]:
        """A check for each fault."""
        for one, places in self._places.items():
            more = f" and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
            shown = f"{one.found} ({', '.join(places[:MOST_PLACES])}{more}): {one.why}"
            yield Check(AREA, one.state, shown, one.advice)


def examine_gateway(name: str, resolved: Resolved) -> list[Check]:
    """Examine a file (`-`: standard input) for a `callfuse ext-proc` with these settings."""
    try:
        root = read_gateway_file(name)
    except UnreadableFileError as error:
        advice = "use a configuration of Envoy, or of a gateway, in YAML or JSON; docs/envoy.md has samples"
        return [failed(AREA, line, advice) for line in str(error).splitlines()]
    found = [*_processors(root)]
    if not found:
        advice = "add the filter envoy.filters.http.ext_proc before the router, as docs/envoy.md shows it"
        return [failed(AREA, f"{name} has no external processor", advice)]
    ours = [one for one in found if one.is_ours] or found
    faults = GatewayFaults()
    for one in ours:
        _check_processor(one, resolved, faults)
    _check_clusters(root, ours, faults)
    _check_routes(root, ours, faults)
    for kind, limit in _POLICIES if any(one.flavour is _ENVOY_GATEWAY for one in ours) else ():
        _check_policy(root, kind, limit, faults)
    return [*(ok(AREA, f"{plain(name)}: {one}") for one in ours), *faults.checks]


def _processors(root: FilePart) -> Iterator[Processor]:
    """Find the external processors in all documents."""
    for part in root.mappings:
        settings = part.at("typed_config")
        if _type_of(settings).endswith(FILTER):
            service = settings.at("grpc_service")
            target = service.at("envoy_grpc", "cluster_name").value or service.at("google_grpc", "target_uri").value
            yield Processor(_text(part.at("name").value), _text(target), settings, _ENVOY)
        elif part.at("kind").value == "EnvoyExtensionPolicy":
            for one in part.at("spec", "extProc").parts:
                targets = ", ".join(_text(ref.at("name").value) for ref in one.at("backendRefs").parts)
                yield Processor(_text(part.at("metadata", "name").value), targets, one, _ENVOY_GATEWAY)
        elif isinstance(part.at("extProc").value, Mapping):
            settings = part.at("extProc")
            yield Processor("extProc", _text(settings.at("host").value), settings, _AGENTGATEWAY)


def _check_processor(one: Processor, resolved: Resolved, faults: GatewayFaults) -> None:
    """Check the settings of a filter."""
    settings, flavour = one.settings, one.flavour
    for rule in flavour.rules:
        faults.check_rule(settings, rule)
    if flavour is _ENVOY and one.request_mode == _word(FULL_DUPLEX):
        faults.check_rule(settings, _REQUEST_TRAILERS)
    if flavour.message_timeout and one.is_buffered:
        store_s = 0.0 if resolved.config.store == MEMORY else resolved.config.store_timeout_s
        least, why = READ_S + store_s, "after this time Envoy lets a buffered request pass unguarded"
        advice = f"set it to {max(5.0, 2 * least):g}s; callfuse may need {least:g} s for a long request"
        limit = LeastValue(flavour.message_timeout, least, _seconds, why, advice, "0.2s", zero_is_none=False)
        faults.check_limit(settings, limit, is_complete=True)
    rules = settings.at("forward_rules")
    if rules.has("allowed_headers"):
        why = "callfuse sees no other headers"
        advice = (
            "it needs :path, :method, content-type, content-encoding, and those that tell clients and sessions apart"
        )
        faults.add(GatewayFault(CheckState.NOTE, "forward_rules.allowed_headers is set", why, advice), rules.place)


def _check_clusters(root: FilePart, ours: list[Processor], faults: GatewayFaults) -> None:
    """Check that the clusters of the filters exist, if the file has all clusters, and that they use HTTP/2."""
    listed = [one for part in root.mappings for one in part.at("static_resources", "clusters").parts]
    clusters = {_text(part.at("name").value): part for part in listed}
    is_complete = bool(clusters) and not any(part.has("dynamic_resources") for part in root.mappings)
    named = {one.target: one.settings.at("grpc_service", "envoy_grpc", "cluster_name") for one in ours}
    for name, key in named.items():
        part = clusters.get(name)
        if part is None and is_complete and key.value is not None:
            found, why = (
                f"grpc_service.envoy_grpc.cluster_name = {_shown(name)}",
                "the file has no cluster of this name",
            )
            advice = "add it, with the address on which callfuse ext-proc listens"
            faults.add(GatewayFault(CheckState.FAILED, found, why, advice), key.place)
        if part is not None and not any(one.has(key) for one in part.mappings for key in _HTTP_2):
            found = f"http2_protocol_options is missing in the cluster {name}"
            why = "gRPC needs HTTP/2; without it Envoy cannot reach callfuse, and everything passes unguarded"
            advice = "add explicit_http_config: {http2_protocol_options: {}} to its HttpProtocolOptions"
            faults.add(GatewayFault(CheckState.FAILED, found, why, advice), part.at("name").place)


def _check_routes(root: FilePart, ours: list[Processor], faults: GatewayFaults) -> None:
    """Check the routes after the filters, or all routes of the file if these are not known."""
    names = {one.name for one in ours}
    managers = {id(one.manager.value): one for one in ours if one.manager is not None}
    for one in managers.values():
        _check_manager(one, faults)
    is_buffered = any(one.is_buffered for one in ours)
    for part in root.mappings:
        manager = _manager_of(part)
        if manager is not None and id(manager.value) not in managers:
            continue
        if _type_of(part).endswith(PER_ROUTE) and part.at("overrides").has("processing_mode"):
            for rule in _MODES:
                faults.check_rule(part.at("overrides"), rule)
        if isinstance(part.at("route").value, Mapping):
            _check_route(part, names, faults, buffers=is_buffered and manager is not None)
        elif part.path[-1:] == ("value",) and is_buffered:  # in a patch
            for limit in _BUFFERS:
                faults.check_limit(part, limit, is_complete=False)


def _check_route(part: FilePart, names: set[str], faults: GatewayFaults, *, buffers: bool) -> None:
    """Check a route, or a patch of one. `buffers`: the filter before it buffers requests."""
    route, is_complete = part.at("route"), part.has("match")
    overrides = [one for above in part.outwards for one in above.at("typed_per_filter_config").parts]
    if any(one.path[-1] in names and one.at("disabled").value is True for one in overrides):
        fault = GatewayFault(
            CheckState.NOTE, "the filter is disabled", "the route passes unguarded", "remove `disabled: true`"
        )
        faults.add(fault, route.place)
        return
    for limit in _ROUTE_LIMITS:
        faults.check_limit(route, limit, is_complete=is_complete)
    if buffers and is_complete:
        _check_buffer(part, faults)


def _check_manager(one: Processor, faults: GatewayFaults) -> None:
    """Check a connection manager's settings for all requests, and the order of its filters."""
    manager = one.manager or one.settings
    faults.check_limit(manager, _STREAM_IDLE, is_complete=False)
    filters = [part.at("typed_config") for part in manager.at("http_filters").parts]
    place = next((at for at, part in enumerate(filters) if part.value is one.settings.value), len(filters))
    for part in filters[place:]:
        if _type_of(part).endswith(COMPRESSOR):
            found, why = "a compressing filter comes after callfuse's", "callfuse gets compressed answers"
            faults.add(GatewayFault(CheckState.WARNING, found, why, "put it before the external processor"), part.place)
    if one.is_buffered and manager.has("rds"):
        _check_buffer(manager, faults)


def _check_buffer(part: FilePart, faults: GatewayFaults) -> None:
    """Check the longest request that can be buffered: the innermost limit applies."""
    for above in part.outwards:
        for limit in _BUFFERS:
            if above.has(limit.key):
                faults.check_limit(above, limit, is_complete=False)
                return
    listener = next((above for above in part.outwards if above.has("filter_chains")), part)
    faults.check_limit(listener.at("filter_chains"), _BUFFERS[0], is_complete=True)


def _check_policy(root: FilePart, kind: str, limit: LeastValue, faults: GatewayFaults) -> None:
    """Check a policy of Envoy Gateway, which may also be in another file."""
    policies = [part for part in root.mappings if part.at("kind").value == kind]
    for part in policies:
        faults.check_limit(part, limit, is_complete=False)
    if all(part.at(*limit.key.split(".")).value is None for part in policies):
        found, why = f"{limit.key} of a {kind} is not set", f"without it, it is {limit.default}"
        faults.add(
            GatewayFault(CheckState.NOTE, found, why, f"if no other file sets it: {limit.advice}"), "in this file"
        )


def _manager_of(part: FilePart) -> FilePart | None:
    """Return the connection manager around a part; None if it is not in the file."""
    return next((above for above in part.outwards if above.has("http_filters")), None)


def _type_of(part: FilePart) -> str:
    return _text(part.at("@type").value)


def _text(value: Any) -> str:
    """Return a scalar as text; empty for mappings and lists."""
    return "" if value is None or isinstance(value, Mapping | list) else plain(str(value))


def _word(value: Any) -> str:
    """Normalise a value, so that the spellings of gateways are equal: FULL_DUPLEX_STREAMED, FullDuplexStreamed."""
    return _text(value).replace("_", "").lower()


def _shown(value: Any) -> str:
    return "a list" if isinstance(value, list) else plain(format_value(value))
