"""`callfuse doctor --envoy`: what in the configuration of a gateway keeps callfuse from guarding, or cuts answers."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from callfuse.cli import gateway_file
from callfuse.cli.diagnosis import Check, CheckState, as_lines, is_well
from callfuse.cli.gateway import examine_gateway
from callfuse.config import resolve
from tests.cli.processes import callfuse
from tests.config.test_files import bomb
from tests.envoy.envoys import SAMPLE, filter_settings, full_duplex, manager, route

FOLDER = SAMPLE.parent
PROCESSOR = FOLDER / "callfuse.yaml"
"""The Deployment of the processor, which is no configuration of a gateway."""
SAMPLES = sorted(set(FOLDER.glob("*.yaml")) - {PROCESSOR})

Change = Callable[[dict[str, Any]], object]


def sample(name: str = SAMPLE.name) -> Any:
    """The first document of a sample."""
    return next(yaml.safe_load_all((FOLDER / name).read_text()))


def examined(text: str, folder: Path, **top: Any) -> list[Check]:
    """What is found in a file with this text."""
    file = folder / "gateway.yaml"
    file.write_text(text)
    return examine_gateway(str(file), resolve(top, {}))


def faults(config: Any, folder: Path, **top: Any) -> list[Check]:
    """All that is not well in a configuration."""
    return [one for one in examined(yaml.safe_dump(config), folder, **top) if one.state is not CheckState.OK]


def modes(config: dict[str, Any]) -> Any:
    """The processing mode of the sample."""
    return filter_settings(config)["processing_mode"]


@pytest.mark.parametrize("file", SAMPLES, ids=lambda file: file.stem)
def test_samples_are_well(file: Path) -> None:
    """Each that a page tells to use: one filter, and nothing to do."""
    (found,) = examine_gateway(str(file), resolve({}, {}))
    assert found.state is CheckState.OK
    assert "callfuse" in found.found or "8102" in found.found


FAULTS: dict[str, tuple[Change, CheckState, str, str, str]] = {
    "request headers": (
        lambda c: modes(c).update(request_header_mode="SKIP"),
        CheckState.FAILED,
        "request_header_mode: SKIP",
        "processing_mode.request_header_mode = 'SKIP' (line {}): callfuse sees no request",
        "set it to SEND",
    ),
    "request body": (
        lambda c: modes(c).update(request_body_mode="STREAMED"),
        CheckState.FAILED,
        "request_body_mode: STREAMED",
        "processing_mode.request_body_mode = 'STREAMED' (line {}): callfuse does not get the whole request",
        "set it to BUFFERED",
    ),
    "answer's headers": (
        lambda c: modes(c).update(response_header_mode="SKIP"),
        CheckState.FAILED,
        "response_header_mode: SKIP",
        "processing_mode.response_header_mode = 'SKIP' (line {}): answers break off",
        "set it to SEND",
    ),
    "answer's body": (
        lambda c: modes(c).update(response_body_mode="BUFFERED"),
        CheckState.FAILED,
        "response_body_mode: BUFFERED",
        "processing_mode.response_body_mode = 'BUFFERED' (line {}): answers cannot be changed",
        "set it to FULL_DUPLEX_STREAMED",
    ),
    "answer's trailers": (
        lambda c: modes(c).pop("response_trailer_mode"),
        CheckState.FAILED,
        "processing_mode:",
        "processing_mode.response_trailer_mode is not set; the default is SKIP (line {}): Envoy refuses",
        "set it to SEND",
    ),
    "request's trailers": (
        lambda c: modes(c).update(request_body_mode="FULL_DUPLEX_STREAMED"),
        CheckState.FAILED,
        "processing_mode:",
        "processing_mode.request_trailer_mode is not set; the default is SKIP (line {}): Envoy refuses",
        "set it to SEND",
    ),
    "failure": (
        lambda c: filter_settings(c).pop("failure_mode_allow"),
        CheckState.WARNING,
        "typed_config:",
        "failure_mode_allow is not set; the default is false (line {}): while callfuse is down, no request passes",
        "set it to true",
    ),
    "observability": (
        lambda c: filter_settings(c).update(observability_mode=True),
        CheckState.FAILED,
        "observability_mode:",
        "observability_mode = true (line {}): Envoy ignores what callfuse replies",
        "remove it",
    ),
    "own answers": (
        lambda c: filter_settings(c).update(disable_immediate_response=True),
        CheckState.WARNING,
        "disable_immediate_response:",
        "disable_immediate_response = true (line {}): callfuse's own answers",
        "remove it",
    ),
    "mutation rules": (
        lambda c: filter_settings(c).update(mutation_rules={"disallow_all": True}),
        CheckState.WARNING,
        "disallow_all:",
        "mutation_rules.disallow_all = true (line {}): callfuse can neither ask for plain answers",
        "remove it",
    ),
    "forward rules": (
        lambda c: filter_settings(c).update(forward_rules={"allowed_headers": {"patterns": [{"exact": "x"}]}}),
        CheckState.NOTE,
        "forward_rules:",
        "forward_rules.allowed_headers is set (line {}): callfuse sees no other headers",
        "it needs :path, :method,",
    ),
    "message timeout": (
        lambda c: filter_settings(c).update(message_timeout="0.5s"),
        CheckState.WARNING,
        "message_timeout: 0.5s",
        "message_timeout = '0.5s' (line {}): after this time Envoy lets a buffered request pass",
        "set it to 5s; callfuse may need 1 s",
    ),
    "no message timeout": (
        lambda c: filter_settings(c).pop("message_timeout"),
        CheckState.WARNING,
        "typed_config:",
        "message_timeout is not set; the default is 0.2s (line {})",
        "set it to 5s",
    ),
    "no cluster": (
        lambda c: filter_settings(c)["grpc_service"]["envoy_grpc"].update(cluster_name="callfuze"),
        CheckState.FAILED,
        "cluster_name: callfuze",
        "grpc_service.envoy_grpc.cluster_name = 'callfuze' (line {}): the file has no cluster of this name",
        "add it",
    ),
    "no HTTP/2": (
        lambda c: c["static_resources"]["clusters"][0].pop("typed_extension_protocol_options"),
        CheckState.FAILED,
        "name: callfuse",
        "http2_protocol_options is missing in the cluster callfuse (line {}): gRPC needs HTTP/2",
        "add explicit_http_config",
    ),
    "route's timeout": (
        lambda c: route(c).update(timeout="30s"),
        CheckState.WARNING,
        "timeout: 30s",
        "timeout = '30s' (line {}): Envoy cuts an answer that takes longer",
        "set it to 0s, or at least to 60s",
    ),
    "no route's timeout": (
        lambda c: route(c).pop("timeout"),
        CheckState.WARNING,
        "route:",
        "timeout is not set; the default is 15s (line {}): Envoy cuts",
        "set it to 0s",
    ),
    "retries": (
        lambda c: route(c).update(retry_policy={"per_try_timeout": "1.5s"}),
        CheckState.WARNING,
        "per_try_timeout: 1.5s",
        "retry_policy.per_try_timeout = '1.5s' (line {}): Envoy cuts",
        "set it to 0s",
    ),
    "idle route": (
        lambda c: route(c).update(idle_timeout="59s"),
        CheckState.WARNING,
        "idle_timeout: 59s",
        "idle_timeout = '59s' (line {}): Envoy cuts an answer that is silent",
        "set it to 0s",
    ),
    "idle stream": (
        lambda c: manager(c).update(stream_idle_timeout="20s"),
        CheckState.WARNING,
        "stream_idle_timeout: 20s",
        "stream_idle_timeout = '20s' (line {}): Envoy cuts an answer that is silent",
        "set it to 0s",
    ),
    "buffer": (
        lambda c: manager(c)["route_config"]["virtual_hosts"][0].update(request_body_buffer_limit=1048576),
        CheckState.WARNING,
        "request_body_buffer_limit: 1048576",
        "request_body_buffer_limit = 1048576 (line {}): a request that is longer gets 413",
        "67108864",
    ),
    "no buffer": (
        lambda c: manager(c)["route_config"]["virtual_hosts"][0].pop("request_body_buffer_limit"),
        CheckState.WARNING,
        "filter_chains:",
        "request_body_buffer_limit is not set; the default is 1 MiB (line {}): a request that is longer gets 413",
        "per_connection_buffer_limit_bytes",
    ),
    "compressor": (
        lambda c: manager(c)["http_filters"].insert(
            1, {"name": "c", "typed_config": {"@type": "x/envoy.extensions.filters.http.compressor.v3.Compressor"}}
        ),
        CheckState.WARNING,
        "typed_config:",
        "a compressing filter comes after callfuse's (line {}): callfuse gets compressed answers",
        "put it before the external processor",
    ),
    "a route's own mode": (
        lambda c: manager(c)["route_config"]["virtual_hosts"][0]["routes"][0].update(
            typed_per_filter_config={
                "envoy.filters.http.ext_proc": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute",
                    "overrides": {"processing_mode": modes(sample()) | {"response_body_mode": "STREAMED"}},
                }
            }
        ),
        CheckState.FAILED,
        "response_body_mode: STREAMED",
        "processing_mode.response_body_mode = 'STREAMED' (line {}): answers cannot be changed",
        "set it to FULL_DUPLEX_STREAMED",
    ),
    "a route without it": (
        lambda c: manager(c)["route_config"]["virtual_hosts"][0]["routes"][0].update(
            typed_per_filter_config={"envoy.filters.http.ext_proc": {"disabled": True}}
        ),
        CheckState.NOTE,
        "route:",
        "the filter is disabled (line {}): the route passes unguarded",
        "remove `disabled: true`",
    ),
}
"""What may be wrong with the sample: the change, the line that is named, what is told of it, and what is advised."""


@pytest.mark.parametrize(("change", "state", "line", "found", "advice"), FAULTS.values(), ids=FAULTS)
def test_what_is_wrong(tmp_path: Path, change: Change, state: CheckState, line: str, found: str, advice: str) -> None:
    """The key, its value, its line, what happens, and what would be right."""
    config = sample()
    change(config)
    (fault,) = faults(config, tmp_path)
    number = fault.found.partition("(line ")[2].partition(")")[0]
    assert yaml.safe_dump(config).splitlines()[int(number) - 1].strip(" -").startswith(line)
    told = found.format(number)
    assert (fault.area, fault.state, fault.found[: len(told)]) == ("envoy", state, told)
    assert advice in fault.advice


@pytest.mark.parametrize("change", [entry[0] for entry in FAULTS.values()], ids=FAULTS)
def test_json_and_its_names(tmp_path: Path, change: Change) -> None:
    """As tools print it; places are keys there."""

    def renamed(value: Any) -> Any:
        match value:
            case dict():
                return {gateway_file.camel(key) if "." not in key else key: renamed(one) for key, one in value.items()}
            case list():
                return [renamed(one) for one in value]
            case _:
                return value

    config = sample()
    change(config)
    (wanted,) = faults(config, tmp_path)
    _, fault = examined(json.dumps(renamed(config), indent="\t"), tmp_path)
    assert (fault.state, fault.advice) == (wanted.state, wanted.advice)
    assert fault.found.partition(" (")[0] == wanted.found.partition(" (")[0]
    assert fault.found.partition(" (")[2].startswith("staticResources.")


def test_durations_and_sizes(tmp_path: Path) -> None:
    """In all their forms; what is none is Envoy's to tell."""
    rights: tuple[Any, ...] = ("0s", "60s", "90.5s", "1h", "1m30s", "60000ms", "soon", 5, None, [], {})
    for right in rights:
        config = sample()
        route(config)["idle_timeout"] = right
        assert faults(config, tmp_path) == []
    for wrong in ("1s", "59999ms", "0.9m", "1s500ms", "5.s"):
        config = sample()
        route(config)["idle_timeout"] = wrong
        assert len(faults(config, tmp_path)) == 1


def test_full_duplex_is_right_as_well(tmp_path: Path) -> None:
    """Nothing is buffered then, and Envoy waits as long as it takes."""
    config = sample()
    full_duplex(config)
    del filter_settings(config)["message_timeout"]
    del manager(config)["route_config"]["virtual_hosts"][0]["request_body_buffer_limit"]
    assert faults(config, tmp_path) == []


def test_a_store_needs_time(tmp_path: Path) -> None:
    """What an exchange waits for it counts."""
    config = sample()
    store = {"store": "redis://127.0.0.1:1", "store_timeout_s": 5}
    (fault,) = faults(config, tmp_path, **store)
    assert fault.found.startswith("message_timeout = '5s'")
    assert fault.advice == "set it to 12s; callfuse may need 6 s for a long request"
    filter_settings(config)["message_timeout"] = "12s"
    assert faults(config, tmp_path, **store) == []


def test_many_routes_are_told_once(tmp_path: Path) -> None:
    """With the first lines."""
    config = sample()
    (host,) = manager(config)["route_config"]["virtual_hosts"]
    host["routes"] = [{"match": {"prefix": f"/{n}"}, "route": {"cluster": "vendor"}} for n in range(9)]
    host["routes"] += [{"match": {"prefix": "/"}, "redirect": {}}]
    (fault,) = faults(config, tmp_path)
    assert fault.found.count("line ") == 5
    assert " and 4 more): " in fault.found


def test_other_managers_are_left_alone(tmp_path: Path) -> None:
    """Their routes and limits are not callfuse's."""
    config = sample()
    other = sample()["static_resources"]["listeners"][0]
    settings = other["filter_chains"][0]["filters"][0]["typed_config"]
    del settings["http_filters"][0], settings["route_config"]["virtual_hosts"][0]["routes"][0]["route"]["timeout"]
    config["static_resources"]["listeners"].append(other)
    assert faults(config, tmp_path) == []


def test_only_filters_that_name_callfuse(tmp_path: Path) -> None:
    """If any does; without that each may be the one."""
    config = sample()
    http_filters = manager(config)["http_filters"]
    other: dict[str, Any] = {"name": "waf", "typed_config": dict(filter_settings(sample()))}
    other["typed_config"] |= {"grpc_service": {"google_grpc": {"target_uri": "waf:1"}}, "message_timeout": "1ms"}
    http_filters.insert(0, other)
    assert faults(config, tmp_path) == []
    filter_settings(config)["grpc_service"] = {"google_grpc": {"target_uri": "guard:1"}}
    (fault,) = faults(config, tmp_path)
    assert fault.found.startswith("message_timeout = '1ms'")


def test_a_listener_s_limit_holds_for_routes_of_elsewhere(tmp_path: Path) -> None:
    """Which are found by name, from another place."""
    config = sample()
    (listener,) = config["static_resources"]["listeners"]
    del manager(config)["route_config"]
    manager(config)["rds"] = {"route_config_name": "models"}
    (fault,) = faults(config, tmp_path)
    assert fault.found.startswith("request_body_buffer_limit is not set")
    listener["per_connection_buffer_limit_bytes"] = 32768
    (fault,) = faults(config, tmp_path)
    assert fault.found.startswith("per_connection_buffer_limit_bytes = 32768 (line ")
    listener["per_connection_buffer_limit_bytes"] = 67108864
    assert faults(config, tmp_path) == []


def test_an_envoy_filter_of_istio(tmp_path: Path) -> None:
    """Its patches are parts of what Istio has: only what they say is checked."""
    config = sample("istio.yaml")
    processor, listener, of_route = config["spec"]["configPatches"]
    listener["patch"]["value"] = {"per_connection_buffer_limit_bytes": 32768}
    of_route["patch"]["value"]["route"] = {"timeout": "15s"}
    processor["patch"]["value"]["typed_config"]["failure_mode_allow"] = False
    found = [one.found.partition(" (")[0] for one in faults(config, tmp_path)]
    assert found == ["failure_mode_allow = false", "per_connection_buffer_limit_bytes = 32768", "timeout = '15s'"]
    config["spec"]["configPatches"] = [config["spec"]["configPatches"][0]]
    assert len(faults(config, tmp_path)) == 1


def test_policies_of_envoy_gateway(tmp_path: Path) -> None:
    """Each key by its own name; what another file may set is a note."""
    config = sample("envoy-gateway.yaml")
    (policy,) = config["spec"]["extProc"]
    del policy["processingMode"]["response"]
    policy |= {"failOpen": True, "messageTimeout": "200ms"}
    found = faults(config, tmp_path)
    assert [(one.state, one.found.partition(" (")[0]) for one in found] == [
        (CheckState.FAILED, "processingMode.response.body is not set; the default is not to send it"),
        (CheckState.FAILED, "failOpen = true"),
        (CheckState.WARNING, "messageTimeout = '200ms'"),
        (CheckState.NOTE, "spec.connection.bufferLimit of a ClientTrafficPolicy is not set"),
        (CheckState.NOTE, "spec.timeout.http.requestTimeout of a BackendTrafficPolicy is not set"),
    ]
    text = (
        (FOLDER / "envoy-gateway.yaml")
        .read_text()
        .replace("64Mi", "32Ki")
        .replace("requestTimeout: 0s", "requestTimeout: 10s")
    )
    assert [one.found for one in examined(text, tmp_path)[1:]] == [
        "spec.connection.bufferLimit = '32Ki' (line 29): a request that is longer gets 413",
        "spec.timeout.http.requestTimeout = '10s' (line 41): Envoy cuts an answer that takes longer",
    ]


def test_agentgateway(tmp_path: Path) -> None:
    """Both bodies are streamed by default."""
    config = sample("agentgateway.yaml")
    (of_route,) = config["routes"]
    of_route["policies"]["extProc"] = {"host": "127.0.0.1:8102", "processingOptions": {"responseBodyMode": "none"}}
    assert [(one.state, one.found.partition(" (")[0]) for one in faults(config, tmp_path)] == [
        (CheckState.FAILED, "processingOptions.responseBodyMode = 'none'"),
        (CheckState.WARNING, "failureMode is not set; the default is failClosed"),
    ]


def unreadable() -> Iterator[tuple[str, bytes]]:
    """What a file may contain that is no configuration."""
    yield "this is not valid YAML", b"a: [1"
    yield "this is not valid YAML", b'{"a": 1'
    yield "this is not valid YAML", b"a: 2020-99-99"
    yield "its aliases repeat more than 10,000 values", bomb(60).encode()
    yield "given twice, in lines 1 and 2", b"a: 1\na: 2\n"
    yield "too many nested brackets", b"[" * 100_000
    yield "it is not UTF-8 (byte 4)", b"a: b\xff"
    yield "YAML does not allow the character", b"a: \x00"
    yield "has no external processor", b""
    yield "has no external processor", b"[]"
    yield "has no external processor", b"--- 5\n--- [x]\n---\n"
    yield "has no external processor", PROCESSOR.read_bytes()
    yield "has no external processor", b"a: &a [*a, {b: &b {c: *b}}]"


@pytest.mark.parametrize(("said", "content"), [*unreadable()])
def test_a_file_that_is_none(tmp_path: Path, said: str, content: bytes) -> None:
    """One clear line, with what to do."""
    file = tmp_path / "gateway.yaml"
    file.write_bytes(content)
    (found,) = examine_gateway(str(file), resolve({}, {}))
    assert (found.state, said in found.found, bool(found.advice)) == (CheckState.FAILED, True, True), found


def test_a_file_that_is_missing_or_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long one no more is read."""
    (missing,) = examine_gateway(str(tmp_path / "none.yaml"), resolve({}, {}))
    assert missing.found == f"{tmp_path}/none.yaml cannot be read: No such file or directory"
    (folder,) = examine_gateway(str(tmp_path), resolve({}, {}))
    assert "cannot be read: Is a directory" in folder.found
    monkeypatch.setattr(gateway_file, "MOST_BYTES", 100)
    (long,) = examine_gateway(str(SAMPLE), resolve({}, {}))
    assert long.found == f"{SAMPLE} is longer than 100 bytes"


def test_parts_that_aliases_name_are_looked_at_once(tmp_path: Path) -> None:
    """Also those that are inside themselves."""
    config = sample()
    config["static_resources"]["again"] = config["static_resources"]["listeners"]
    config["static_resources"]["round"] = config
    assert faults(config, tmp_path) == []


def test_values_steer_no_terminal(tmp_path: Path) -> None:
    """Whoever wrote the file."""
    config = sample()
    modes(config)["response_body_mode"] = "\x1b]0;title\x07" + "x" * 1000
    filter_settings(config)["message_timeout"] = {"a": ["\x1b"]}
    filter_settings(config)["failure_mode_allow"] = ["\x1b" * 1000]
    found = examined(yaml.safe_dump(config), tmp_path)
    assert len(found) == 3
    assert all(line.isprintable() for line in as_lines(found))
    assert len("".join(as_lines(found))) < 1500


def test_as_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 if all is well, 1 if there is something to do, 2 for options that exclude each other."""
    well = callfuse("doctor", "--envoy", str(SAMPLE))
    assert (well.returncode, well.stderr) == (0, "")
    assert "envoy.filters.http.ext_proc (line " in well.stdout
    assert all(word not in well.stdout for word in ("upstream", "port", "versions"))
    config = sample()
    route(config)["timeout"] = "5s"
    file = tmp_path / "envoy.json"
    file.write_text(json.dumps(config))
    wrong = callfuse("doctor", "--envoy", str(file), "--json")
    checks = json.loads(wrong.stdout)["checks"]
    assert (wrong.returncode, [one["state"] for one in checks]) == (1, ["ok", "ok", "warning"])
    assert callfuse("doctor", "--envoy", "-").returncode == 1
    both = callfuse("doctor", "--envoy", str(SAMPLE), "--explain", "x.json")
    assert (both.returncode, both.stderr) == (2, "callfuse doctor: use only one of --explain and --envoy\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SAMPLE.read_bytes())))
    assert is_well(examine_gateway("-", resolve({}, {})))
