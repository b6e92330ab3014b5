"""Which blocks `tests/hosts` runs, in the real hosts, where `CALLFUSE_HOSTS=1` asks for it."""

import re

from tests.docs.blocks import Block
from tests.hosts.pages import page
from tests.hosts.test_mounts import CASES, MOUNTS
from tests.hosts.test_pages import MOUNTED, OTHERWISE
from tests.hosts.test_ray import COMMANDS
from tests.project.sources import PROJECT


def name_of(block: Block) -> str:
    """The name of the host that the block's page is of, or ''."""
    folder, _, file = block.page.rpartition("/")
    name = file.removesuffix(".md")
    return name if folder == "docs/mount" and name in {*OTHERWISE, *(mount.name for mount in MOUNTS)} else ""


def hosts_run(block: Block) -> bool:
    """Whether a host is started with this block, which is a file of its page."""
    name = name_of(block)
    if name in OTHERWISE - MOUNTED:
        test = (PROJECT / f"tests/hosts/test_{name}.py").read_text(encoding="utf-8")
        return re.search(rf"files\[['\"]{re.escape(block.file)}['\"]\]", test) is not None
    return bool(name) and block.file != ""


def hosts_type(line: str) -> bool:
    """Whether a host is started by this line, whichever page it stands on."""
    mounts = {command for _, command in CASES}
    return line in mounts or line in COMMANDS or any(line in page(name).commands for name in OTHERWISE)
