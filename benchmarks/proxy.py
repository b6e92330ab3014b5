"""Measure the cost of the guard in `callfuse serve`: requests per second with it, and with it disabled.

    python -m benchmarks.proxy [--rounds 9] [--seconds 1.5] [--clients 32] [--only long]

Both servers are the command itself; the other one has CALLFUSE_ENABLED=false. Each request begins a new, unknown
conversation. There are four rows:

    short answers      one message, one tool; a text in 10 events, which arrive in 2 pieces
    agent's request    40 messages with results of 1 KB, 10 tools; the same answer
    call in 4 pieces   one message, one tool; a call in 40 deltas, which arrive in 4 pieces
    long stream        one message, one tool; a text in 600 events, in pieces of 4 KB

Pieces may end within an event, and arrive a millisecond after the previous one. The vendor and the clients write and
read raw bytes, so that the server under test is the bottleneck. If there are two cores, it has one to itself, and
vendor and load share the other. The two servers are measured in turn, in new processes each round, because their
placement in memory changes the speed by up to a tenth. The figures are medians; the ratios are medians of the rounds'
ratios. On a machine with other work, only the ratio by CPU time is meaningful.

Everything is on loopback and ends by itself: the load after its time or its requests, every process by an alarm.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple, cast

import uvloop

PATH: Final = "/v1/chat/completions"
ROOT: Final = Path(__file__).parents[1]
PACE_S: Final = 0.001
"""The pause between two pieces of an answer."""
WARM_S: Final = 0.3
"""Seconds of load before the measurement, to warm up connections, caches and pools."""
MOST_SECONDS: Final = 30.0
MOST_CLIENTS: Final = 256
MOST_REQUESTS: Final = 200_000
"""The most requests of one load."""
LAST_S: Final = 10.0
"""The time for answers that are still open at the end, so that CPU time and answers belong to the same requests."""
GRACE_S: Final = 60
"""The system ends a process this many seconds after its longest planned use."""
END: Final = b"\r\n0\r\n\r\n"
NUMBER: Final = b"00000000"
"""The placeholder in a request for its number."""
READY: Final = re.compile(r"\bon (http://127\.0\.0\.1:\d+)\b")
SETTINGS: Final = re.compile(r"(CALLFUSE|TOOL_LOOP)_|.*_proxy$", re.IGNORECASE)
"""Variables that would change the measurement."""
SERVERS: Final[dict[str, dict[str, str]]] = {"disabled": {"CALLFUSE_ENABLED": "false"}, "guarded": {}}


class Row(NamedTuple):
    """The body of a request, and its answer in the pieces that arrive from the network."""

    request: bytes
    pieces: list[bytes]


def rows() -> dict[str, Row]:
    """Return all rows by name."""
    short, asked = text_events(10), request_body(1, 1)
    return {
        "short answers": Row(asked, in_pieces(short, 2)),
        "agent's request": Row(request_body(40, 10), in_pieces(short, 2)),
        "call in 4 pieces": Row(asked, in_pieces(call_events(40), 4)),
        "long stream": Row(asked, in_pieces(text_events(600), 30)),
    }


def request_body(messages: int, tools: int) -> bytes:
    """Return a healthy conversation of `messages` messages, in which all calls differ, and its tools."""
    said: list[dict[str, Any]] = [{"role": "user", "content": f"Fix issue {NUMBER.decode()}."}]
    for at in range((messages - 1) // 2):
        arguments = json.dumps({"path": f"src/file_{at}.py", "line": at})
        function = {"name": f"tool_{at % tools}", "arguments": arguments}
        call = {"id": f"call_{at}", "type": "function", "function": function}
        result = f"{at}: " + "The quick brown fox jumps over the lazy dog. " * 22
        said.append({"role": "assistant", "content": None, "tool_calls": [call]})
        said.append({"role": "tool", "tool_call_id": f"call_{at}", "content": result})
    if len(said) < messages:
        said.insert(0, {"role": "system", "content": "You are an agent. " * 50})
    properties = {name: {"type": "string", "description": f"The {name} to look at."} for name in ("path", "line")}
    declared = [
        {
            "type": "function",
            "function": {
                "name": f"tool_{at}",
                "description": f"Looks at files in the way {at}.",
                "parameters": {"type": "object", "properties": properties},
            },
        }
        for at in range(tools)
    ]
    return json.dumps({"model": "m", "stream": True, "messages": said, "tools": declared}).encode()


def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """Return one event of a chat stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def text_events(events: int) -> list[bytes]:
    """Return a stream of text in `events` events, and its end."""
    words = [event({"content": f" word {at}"}) for at in range(events - 2)]
    return [event({"role": "assistant", "content": ""}), *words, event({}, "stop"), b"data: [DONE]\n\n"]


def call_events(deltas: int) -> list[bytes]:
    """Return a call in `deltas` deltas, and its end."""
    head = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "tool_0", "arguments": ""}}
    pieces = ['{"text": "', *(f"some words {at} " for at in range(deltas - 3)), '"}']
    grown = [event({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in pieces]
    first = event({"role": "assistant", "content": None, "tool_calls": [head]})
    return [first, *grown, event({}, "tool_calls"), b"data: [DONE]\n\n"]


def in_pieces(events: list[bytes], pieces: int) -> list[bytes]:
    """Return a whole HTTP answer, with a chunk for each event, cut into `pieces` pieces of equal length."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    answer = head + b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in events) + END[2:]
    size = -(-len(answer) // pieces)
    return [answer[at : at + size] for at in range(0, len(answer), size)]


class Vendor(asyncio.Protocol):
    """One connection to the vendor: reads a request, writes the pieces of the answer, again and again."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces
        self.came = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from asyncio's

    def data_received(self, data: bytes) -> None:
        self.came += data
        head, blank, body = self.came.partition(b"\r\n\r\n")
        if not blank:
            return
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        if len(body) >= int(length[1]) if length else body.endswith(END[2:]):
            self.came = b""
            self._write(0)

    def _write(self, at: int) -> None:
        self.transport.write(self.pieces[at])
        if at + 1 < len(self.pieces):
            asyncio.get_running_loop().call_later(PACE_S, self._write, at + 1)


async def vend(pieces: list[bytes]) -> None:
    """Serve until terminated. The address is the first line of the output."""
    server = await asyncio.get_running_loop().create_server(lambda: Vendor(pieces), "127.0.0.1", 0, backlog=1024)
    print(f"on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


class Client(asyncio.Protocol):
    """One keep-alive connection: sends a request, reads the whole answer, and repeats while `next_request` returns
    one."""

    def __init__(self, next_request: Callable[[], bytes]) -> None:
        self.next_request = next_request
        self.asked = self.answers = self.failures = 0
        self.done = asyncio.Event()
        self.tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._ask()

    def data_received(self, data: bytes) -> None:
        if not self.tail and not data.startswith(b"HTTP/1.1 200 "):
            self.failures += 1
        self.tail = (self.tail + data)[-len(END) :] if len(data) < len(END) else data[-len(END) :]
        if self.tail == END:
            self.answers += 1
            self._ask()

    def _ask(self) -> None:
        self.tail = b""
        if request := self.next_request():
            self.asked += 1
            self.transport.write(request)
        else:
            self.done.set()


async def load(url: str, clients: int, seconds: float, body: bytes) -> None:
    """Send requests as fast as answers come, within the time and the number of requests. Print the number of answers
    and the time."""
    host, port = url.removeprefix("http://").split(":")
    if host != "127.0.0.1" or not 0 < seconds <= MOST_SECONDS or not 0 < clients <= MOST_CLIENTS:
        raise ValueError(f"load on {url}, {clients} clients, {seconds} s: loopback, {MOST_CLIENTS}, {MOST_SECONDS} s")
    head = f"POST {PATH} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\nauthorization: Bearer k\r\n"
    before, after = (head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body).split(NUMBER)
    numbers = count()
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + WARM_S + seconds

    def next_request() -> bytes:
        at = next(numbers)
        return b"%b%08d%b" % (before, at, after) if at < MOST_REQUESTS and loop.time() < ends_s else b""

    pairs = [await loop.create_connection(lambda: Client(next_request), host, int(port)) for _ in range(clients)]
    await asyncio.sleep(WARM_S)
    warm, began_s = sum(client.answers for _, client in pairs), loop.time()
    await asyncio.sleep(max(0.0, ends_s - loop.time()))
    answers, lasted_s = sum(client.answers for _, client in pairs) - warm, loop.time() - began_s
    await asyncio.wait([loop.create_task(client.done.wait()) for _, client in pairs], timeout=LAST_S)
    for transport, _ in pairs:
        transport.close()
    every = sum(client.answers for _, client in pairs)
    failures = sum(client.failures + client.asked - client.answers for _, client in pairs)
    print(json.dumps({"every": every, "failures": failures, "per_s": answers / lasted_s}), flush=True)


class Server(NamedTuple):
    """A server process."""

    url: str
    pid: int


@contextmanager
def started(command: list[str], core: int | None, life_s: float, **env: str) -> Iterator[Server]:
    """Run a server process during the block. This program becomes it by exec, so that it has its own core and alarm."""
    own = {name: value for name, value in os.environ.items() if not SETTINGS.match(name)}
    with subprocess.Popen(
        itself("--become", json.dumps(command), core=core, life_s=life_s),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=own | env,
    ) as process:
        try:
            assert process.stdout is not None
            said = ""
            while not (ready := READY.search(said)):
                if not (line := process.stdout.readline()):
                    raise RuntimeError(f"{' '.join(command)} did not start: {said}")
                said += line
            # Its access lines fill the pipe within a few hundred requests.
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield Server(ready[1], process.pid)
        finally:
            process.terminate()


def itself(*arguments: str, core: int | None, life_s: float) -> list[str]:
    """Return the command of this program, on a core, for at most `life_s` seconds."""
    pin = [] if core is None else ["--core", str(core)]
    return [sys.executable, "-m", "benchmarks.proxy", *arguments, "--life-s", str(int(life_s)), *pin]


def cores() -> tuple[int | None, int | None]:
    """Return a core for the server under test and one for the rest; None for both if there are not two or they cannot
    be chosen."""
    available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return (available[0], available[1]) if len(available) > 1 else (None, None)


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far, if the system shows it; else 0."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Figures(NamedTuple):
    """The figures of one server in one round."""

    per_s: float
    cpu_us: float


def put_load(url: str, row: str, options: argparse.Namespace, core: int | None) -> dict[str, Any]:
    """Run a load against a server from another process. Returns the number of answers (`every`), and answers per second
    (`per_s`)."""
    arguments = ("--load", url, "--row", row, "--clients", str(options.clients), "--seconds")
    command = itself(*arguments, str(options.seconds), core=core, life_s=options.seconds + GRACE_S)
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, timeout=options.seconds + 60)
    result: dict[str, Any] = json.loads(done.stdout)
    if result["failures"] or not result["per_s"]:
        raise RuntimeError(f"{row}: {result['failures']} of {result['every']} requests failed")
    return result


def measure(server: Server, row: str, options: argparse.Namespace, core: int | None) -> Figures:
    """Return requests per second, and the server's CPU time for each request."""
    began_s = cpu_s(server.pid)
    result = put_load(server.url, row, options, core)
    return Figures(result["per_s"], (cpu_s(server.pid) - began_s) / result["every"] * 1e6)


def compare(row: str, options: argparse.Namespace) -> dict[str, list[Figures]]:
    """Return the figures of each server, one a round."""
    tested, rest = cores()
    life_s = 2 * options.seconds + GRACE_S
    vend_command = [sys.executable, "-m", "benchmarks.proxy", "--vendor", "--row", row]
    figures: dict[str, list[Figures]] = {kind: [] for kind in SERVERS}
    for at in range(options.rounds):
        with ExitStack() as running:
            vendor = running.enter_context(started(vend_command, rest, life_s))
            command = [sys.executable, "-m", "callfuse", "serve", "--port", "0", "--upstream", vendor.url]
            servers = {
                kind: running.enter_context(started(command, tested, life_s, **env)) for kind, env in SERVERS.items()
            }
            for kind in list(SERVERS)[:: 1 if at % 2 else -1]:
                figures[kind].append(measure(servers[kind], row, options, rest))
    return figures


def report(row: str, figures: dict[str, list[Figures]]) -> None:
    """Print a line of the table."""
    pairs = list(zip(figures["disabled"], figures["guarded"], strict=True))
    cells = [f"{median(one.per_s for one in figures[kind]):>11,.0f}" for kind in SERVERS]
    cells += [f"{median(one.cpu_us for one in figures[kind]):>11,.0f}" for kind in SERVERS]
    by_requests = median(guarded.per_s / disabled.per_s for disabled, guarded in pairs)
    ratios = [disabled.cpu_us / guarded.cpu_us for disabled, guarded in pairs if guarded.cpu_us]
    by_cpu = f"{median(ratios):.2f}" if ratios else "-"
    print(f"{row:<18}{''.join(cells)}{by_requests:>12.2f}{by_cpu:>10}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print. This is also the entry point of the measured processes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.5, help="of load for each server in each round")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--only", default="", help="measure the rows whose names hold this")
    for internal in ("--become", "--load", "--row"):
        parser.add_argument(internal, help=argparse.SUPPRESS)
    parser.add_argument("--vendor", action="store_true", help=argparse.SUPPRESS)
    for number in ("--core", "--life-s"):
        parser.add_argument(number, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    if options.life_s:
        signal.alarm(options.life_s)  # stays in effect after exec
    if options.become:
        command = json.loads(options.become)
        os.execv(command[0], command)
    elif options.vendor:
        uvloop.run(vend(rows()[options.row].pieces))
    elif options.load:
        uvloop.run(load(options.load, options.clients, options.seconds, rows()[options.row].request))
    else:
        print(f"{'':<18}{'requests/s':>22}{'CPU us/request':>22}{'guarded / disabled':>22}")
        print(f"{'':<18}{''.join(f'{kind:>11}' for kind in (*SERVERS, *SERVERS))}{'by requests':>12}{'by CPU':>10}")
        for row in rows():
            if options.only in row:
                report(row, compare(row, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
