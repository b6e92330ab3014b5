"""What hostile clients send through the proxy to real servers, and a real client that asks for an upgrade."""

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from tests.proxy.real import UPSTREAMS
from tests.proxy.strict import GUARDED, HIDDEN, SERVERS, behind, owned, strictly
from tests.proxy.test_whole_requests import UPGRADES, attack, honest
from tests.proxy.wire import END, chunk, client

pytestmark = pytest.mark.slow
PATHS = ("/early/401", "/plain", GUARDED)

JAVA = """
import java.net.URI;
import java.net.http.*;
public class Ask {
  public static void main(String[] a) throws Exception {
    HttpClient client = HttpClient.newHttpClient();
    for (String path : new String[] {"/plain", "/v1/chat/completions"}) {
      HttpRequest request = HttpRequest.newBuilder(URI.create(a[0] + path)).header("x-owner", "honest")
        .POST(HttpRequest.BodyPublishers.ofString("honest honest honest")).build();
      HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
      System.out.println(answer.statusCode() + " " + answer.body());
    }
  }
}
"""


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("name", UPSTREAMS)
async def test_every_attack(name: str, server: str, tmp_path: Path) -> None:
    """An honest client behind each gets its own answer: upgrades with a second request as body, bodies that are not
    sent, resets at every byte, both lengths, and any of that in any order."""
    async with UPSTREAMS[name](tmp_path) as origin, behind(server, origin) as base_url:
        for upgrade in UPGRADES.values():
            for path in PATHS:
                for length in (40, len(HIDDEN), 1_000_000):
                    async with client(base_url) as peer:
                        await peer.send(owned(b"one", *upgrade, path=path, words=0, length=length) + HIDDEN)
                        await honest(base_url)
        for framing, more in ((b"content-length: 1000000", b"one"), (b"transfer-encoding: chunked", chunk(b"one"))):
            async with client(base_url) as peer:
                await peer.send(owned(b"one", framing, path="/early/401", words=0, length=-1) + more)
                head = await peer.head()
                assert head.line.split()[1] == b"401"
                await honest(base_url)
        sent = owned(b"one", b"transfer-encoding: chunked", path="/early/401", words=0, length=-1) + chunk(b"one") + END
        for at in range(len(sent)):
            async with client(base_url) as peer:
                await peer.send(sent[:at])
                await asyncio.sleep(0)
                peer.writer.transport.abort()
            await honest(base_url)
        draw = random.Random(name)
        for _ in range(10):
            await attack(base_url, draw, trailers=server != "uvicorn over httptools")


async def test_java(tmp_path: Path) -> None:
    """The client of the JDK asks for h2c with its first request; it is answered as without."""
    java = shutil.which("java")
    if java is None:
        pytest.skip("java is not installed")
    (tmp_path / "Ask.java").write_text(JAVA)
    async with strictly("callfuse serve") as (strict, base_url):
        process = await asyncio.create_subprocess_exec(
            java, str(tmp_path / "Ask.java"), base_url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        said, wrong = await asyncio.wait_for(process.communicate(), 120)
    if b"jdk.compiler" in wrong:
        pytest.skip("this java has no compiler")
    assert (said.decode().splitlines(), wrong) == (["200 honest", "200 honest"], b"")
    assert [body for _, body in strict.requests] == [b"honest honest honest"] * 2
    assert strict.strangers() == []
