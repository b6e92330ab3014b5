"""Content codings: taken off without trusting them, in pieces, and in time linear to what goes in and comes out."""

import gzip
import json
import random
import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from callfuse.asgi import codings
from callfuse.asgi.codings import HARMLESS_BYTES, MOST_MEMBERS, PIECE_BYTES, UnreadableBodyError, unpack, unpacker_of
from tests.support.zstd import zstd

TEXT = json.dumps({"messages": ["x" * 500]}).encode()


def raw_deflate(data: bytes) -> bytes:
    """Deflate without zlib's frame."""
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "raw deflate": raw_deflate,
    "zstd": zstd.compress,
}


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoded_body_is_read(name: str) -> None:
    """At exactly its length; a limit one byte lower is told."""
    packed, encoding = ENCODERS[name](TEXT), name.removeprefix("raw ")
    assert unpack(packed, encoding, len(TEXT)) == TEXT
    assert unpack(packed, encoding.upper(), len(TEXT)) == TEXT
    with pytest.raises(UnreadableBodyError, match="limit"):
        unpack(packed, encoding, len(TEXT) - 1)


def test_stacked_encodings_come_off_in_reverse() -> None:
    """The last one named was put on last."""
    assert unpack(gzip.compress(zstd.compress(TEXT)), "zstd , gzip", 10_000) == TEXT
    with pytest.raises(UnreadableBodyError):
        unpack(gzip.compress(zstd.compress(TEXT)), "gzip, zstd", 10_000)


@pytest.mark.parametrize("name", [name for name in ENCODERS if name != "identity"])
def test_a_broken_body_is_told(name: str) -> None:
    """Cut anywhere, or spoiled: never half a body."""
    packed, encoding = ENCODERS[name](TEXT), name.removeprefix("raw ")
    for at in range(1, len(packed), 3):
        with pytest.raises(UnreadableBodyError):
            unpack(packed[:at], encoding, 10_000)
    with pytest.raises(UnreadableBodyError):
        unpack(b"\xff" + packed[1:], encoding, 10_000)


@pytest.mark.parametrize("encoding", ["br", "compress", "gzip, br", "nonsense", ""])
def test_an_unknown_encoding_is_told(encoding: str) -> None:
    """By its name."""
    with pytest.raises(UnreadableBodyError, match="content-encoding"):
        unpack(gzip.compress(TEXT), encoding, 10_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gzip", "deflate", "raw deflate", "zstd"])
def test_a_bomb_does_not_go_off(name: str) -> None:
    """A hundred megabytes behind a few bytes stop at the limit."""
    packed = ENCODERS[name](b"\0" * 100_000_000)
    with pytest.raises(UnreadableBodyError, match="limit"):
        unpack(packed, name.removeprefix("raw "), 1000)


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_a_body_in_several_members_is_one(name: str) -> None:
    """Both formats allow it; half a body would be worse than none."""
    packed = ENCODERS[name](TEXT[:100]) + ENCODERS[name](TEXT[100:])
    assert unpack(packed, name, 10_000) == TEXT


def empty_members(size: int) -> bytes:
    """Gzip members of nothing, so many bytes of them."""
    return gzip.compress(b"", mtime=0) * (size // 20)


def empty_frames(size: int) -> bytes:
    """The same of zstd."""
    one = zstd.compress(b"")
    return one * (size // len(one))


@pytest.mark.parametrize(("name", "made"), [("gzip", empty_members), ("zstd", empty_frames)])
def test_members_are_limited(name: str, made: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of hundreds of thousands of members of nothing, a thousand are looked at."""
    unpacker = unpacker_of(name)
    monkeypatch.setattr(codings, "unpacker_of", lambda _: unpacker)
    with pytest.raises(UnreadableBodyError, match="1000 members"):
        unpack(made(3_000_000), name, 64_000_000)
    assert unpacker.members == MOST_MEMBERS + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_a_body_that_is_made_to_be_long(name: str) -> None:
    """A looping conversation may unpack to any multiple of its length, up to what no model reads; beyond that not."""
    loop = b'{"result":"nothing was found"},' * (HARMLESS_BYTES // 31)
    assert unpack(ENCODERS[name](loop), name, 64_000_000) == loop
    with pytest.raises(UnreadableBodyError, match="100 times"):
        unpack(ENCODERS[name](loop + loop), name, 64_000_000)


def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the bytes that go into zlib, and that it hands back."""
    counted: list[int] = []

    class Counted:
        def __init__(self, form: int) -> None:
            self._inner = zlib.decompressobj(form)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def decompress(self, data: bytes, most: int) -> bytes:
            out = self._inner.decompress(data, most)
            counted.append(len(data) + len(out) + len(self._inner.unused_data))
            return out

    monkeypatch.setattr(codings, "zlib", SimpleNamespace(decompressobj=Counted, error=zlib.error))
    return counted


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["one member", "many members", "incompressible", "bomb"])
def test_the_work_is_linear(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body of twice the length costs twice the bytes that go through zlib, whatever it is made of."""
    counted = counting(monkeypatch)
    noise = random.Random(1)

    def cost(size: int) -> int:
        body = {
            "one member": lambda: gzip.compress(json.dumps([noise.random() for _ in range(size // 20)]).encode()),
            "many members": lambda: gzip.compress(b"x", mtime=0) * (size // 21),
            "incompressible": lambda: gzip.compress(noise.randbytes(size)),
            "bomb": lambda: gzip.compress(bytes(100 * size)),
        }[shape]()
        counted.clear()
        for _ in unpacker_of("gzip").feed(body):
            pass
        return sum(counted)

    small, large = cost(200_000), cost(400_000)
    assert 1.5 * small < large < 2.5 * small


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["one frame", "many frames", "incompressible", "bomb"])
def test_the_work_of_zstd_is_linear(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of what goes into zstd, comes out, and is handed back."""
    counted: list[int] = []

    class Counted:
        def __init__(self, options: Any) -> None:
            self._inner = zstd.ZstdDecompressor(options=options)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def decompress(self, data: bytes, most: int) -> bytes:
            out = self._inner.decompress(data, most)
            counted.append(len(data) + len(out) + len(self._inner.unused_data))
            return out

    parts = {name: getattr(zstd, name) for name in ("DecompressionParameter", "ZstdError")}
    monkeypatch.setattr(codings, "import_module", lambda _: SimpleNamespace(ZstdDecompressor=Counted, **parts))
    noise = random.Random(1)

    def cost(size: int) -> int:
        body = {
            "one frame": lambda: zstd.compress(json.dumps([noise.random() for _ in range(size // 20)]).encode()),
            "many frames": lambda: zstd.compress(b"x") * (size // 10),
            "incompressible": lambda: zstd.compress(noise.randbytes(size)),
            "bomb": lambda: zstd.compress(bytes(100 * size)),
        }[shape]()
        counted.clear()
        for _ in unpacker_of("zstd").feed(body):
            pass
        return sum(counted)

    small, large = cost(200_000), cost(400_000)
    assert 1.5 * small < large < 2.5 * small


@pytest.mark.parametrize("name", [name for name in ENCODERS if name != "identity"])
@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_a_body_is_unpacked_as_it_comes(name: str, step: int) -> None:
    """Cut anywhere, it is the same; no piece is long, and the end is known."""
    text = TEXT + bytes(3 * PIECE_BYTES) + TEXT
    packed = ENCODERS[name](text)
    unpacker = unpacker_of(name.removeprefix("raw "))
    pieces = [piece for at in range(0, len(packed), step) for piece in unpacker.feed(packed[at : at + step])]
    unpacker.finish()
    assert b"".join(pieces) == text
    assert max(map(len, pieces)) <= PIECE_BYTES
    short = unpacker_of(name.removeprefix("raw "))
    for _ in short.feed(packed[:-5]):
        pass
    with pytest.raises(UnreadableBodyError, match="cut off"):
        short.finish()


def test_too_many_codings_are_told() -> None:
    """Nobody packs a body four times."""
    with pytest.raises(UnreadableBodyError, match="3 codings"):
        unpack(b"x", "gzip, gzip, gzip, gzip", 1000)


def test_a_zstd_window_is_limited() -> None:
    """To that of the coding: a frame may ask for 2 GB before its first byte."""
    wide: dict[int, int] = {zstd.CompressionParameter.window_log: 27}
    stream = zstd.ZstdCompressor(options=wide)
    with pytest.raises(UnreadableBodyError, match="content-encoding zstd"):
        unpack(stream.compress(bytes(1000)) + stream.flush(), "zstd", 10_000)


@pytest.mark.parametrize("names", [("compression.zstd",), ("backports.zstd",)])
def test_zstd_is_python_s_own_or_a_package(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Either will do; the two are the same."""

    def load(name: str) -> Any:
        if name not in names:
            raise ImportError(name)
        return zstd

    monkeypatch.setattr(codings, "import_module", load)
    assert unpack(zstd.compress(TEXT), "zstd", 10_000) == TEXT


def test_zstd_without_such_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is told."""

    def load(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(codings, "import_module", load)
    with pytest.raises(UnreadableBodyError, match=r"Python 3.14 or the package backports\.zstd"):
        unpack(zstd.compress(TEXT), "zstd", 10_000)


class OddBrotli:
    """A decompressor with the interface of brotli 1.2: each byte stands for itself a thousand times, `!` ends."""

    def __init__(self) -> None:
        self._left = b""
        self._done = False

    def process(self, data: bytes, output_buffer_limit: int) -> bytes:
        if b"?" in data:
            raise ValueError("broken")
        self._done |= b"!" in data
        self._left += b"".join(bytes([one]) * 1000 for one in data.replace(b"!", b""))
        out, self._left = self._left[:output_buffer_limit], self._left[output_buffer_limit:]
        return out

    def can_accept_more_data(self) -> bool:
        return not self._left

    def is_finished(self) -> bool:
        return self._done


@pytest.mark.parametrize("package", ["brotli", "brotlicffi"])
def test_brotli_where_a_package_has_it(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces of limited length; broken and cut bodies are told."""

    def load(name: str) -> Any:
        if name != package:
            raise ImportError(name)
        return SimpleNamespace(Decompressor=OddBrotli, error=ValueError)

    monkeypatch.setattr(codings, "import_module", load)
    text = b"a" * 200_000
    assert unpack(b"a" * 200 + b"!", "br", 300_000) == text
    assert max(len(piece) for piece in unpacker_of("br").feed(b"a" * 200)) == PIECE_BYTES
    for broken in (b"a" * 200, b"?", b"!?"):
        with pytest.raises(UnreadableBodyError, match="content-encoding br"):
            unpack(broken, "br", 300_000)


WITHOUT_LIMIT = SimpleNamespace(Decompressor=SimpleNamespace, error=ValueError)


@pytest.mark.parametrize("found", [ImportError("none"), WITHOUT_LIMIT], ids=["none", "without a limit"])
def test_brotli_without_such_a_package(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is told."""

    def load(name: str) -> Any:
        if isinstance(found, ImportError):
            raise found
        return found

    monkeypatch.setattr(codings, "import_module", load)
    with pytest.raises(UnreadableBodyError, match="package brotli"):
        unpack(b"x", "br", 1000)
