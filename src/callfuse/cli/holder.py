"""Find the process that listens at a port of this machine, as far as Linux shows it to this user in `/proc`."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from callfuse.observe.printable import plain

PROC: Final = Path("/proc")
LISTENING: Final = "0A"


def holder_of(port: int, proc: Path = PROC) -> str:
    """Return the process that listens at a TCP port, as `process 42 (node)`, or at least its user; empty if the system
    does not show it."""
    owners = dict(_listeners(port, proc))
    for pid in _processes(proc):
        with suppress(OSError):  # it has ended, or belongs to another user
            if any(_inode(str(link.readlink())) in owners for link in (proc / pid / "fd").iterdir()):
                name = (proc / pid / "comm").read_text("utf-8", "replace")  # not its arguments, which may contain a key
                return f"process {pid} ({plain(name.strip())})"
    return next((f"a process of user {_name(uid)}" for uid in owners.values()), "")


def _listeners(port: int, proc: Path) -> Iterator[tuple[str, int]]:
    """Yield the sockets that listen at a port: the inode and the user of each."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                _, local, _, state, _, _, _, uid, _, inode, *_ = line.split()
                if state == LISTENING and int(local.rpartition(":")[2], 16) == port:
                    yield inode, int(uid)


def _processes(proc: Path) -> Iterator[str]:
    with suppress(OSError):
        yield from (entry.name for entry in proc.iterdir() if entry.name.isdigit())


def _inode(link: str) -> str:
    """Return the inode of a socket, from `socket:[INODE]`."""
    return link.removeprefix("socket:[").removesuffix("]") if link.startswith("socket:[") else ""


def _name(uid: int) -> str:
    """Return the name of a user; the number if there is no name."""
    try:
        import pwd  # not on Windows

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return str(uid)
