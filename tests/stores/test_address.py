"""URLs of stores: what they stand for, what is wrong with them, and that they tell no password."""

import re

import pytest

from callfuse.stores.address import STORE_HINT, address_of, check_store_url

MASTER_HINT = (
    "after the Sentinels, give the name of the master and optionally a database: "
    "redis+sentinel://HOST:26379,HOST:26379/mymaster/0"
)


@pytest.mark.parametrize(
    ("url", "for_client", "cluster", "shown"),
    [
        ("redis://localhost", "redis://localhost", False, "redis://localhost:6379"),
        ("valkey://cache:7000/2", "redis://cache:7000/2", False, "valkey://cache:7000/2"),
        ("REDISS://cache", "rediss://cache", False, "rediss://cache:6379"),
        ("valkeys://[::1]:7000", "rediss://[::1]:7000", False, "valkeys://[::1]:7000"),
        ("redis+cluster://me:s3cret@node:7000", "redis://me:s3cret@node:7000", True, "redis+cluster://node:7000"),
        ("valkeys+cluster://node/0", "rediss://node/0", True, "valkeys+cluster://node:6379/0"),
        ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock?db=1", False, "unix:///run/redis.sock"),
        (
            "rediss://:s3cret@h:1?ssl_password=s3cret",
            "rediss://:s3cret@h:1?ssl_password=s3cret",
            False,
            "rediss://h:1",
        ),
        (
            "redis+cluster://me:s3cret@a:7000,b,[::1]:7002?max_connections=9",
            "redis://me:s3cret@a:7000?max_connections=9",
            True,
            "redis+cluster://a:7000,b:6379,[::1]:7002",
        ),
        (
            "valkey+sentinel://me:s3cret@a,b:7001/the-master/2?sentinel_password=s3cret&client_name=x",
            "redis://me:s3cret@a:26379/2?client_name=x",
            False,
            "valkey+sentinel://a:26379,b:7001/the-master/2",
        ),
        ("rediss+sentinel://a/m", "rediss://a:26379", False, "rediss+sentinel://a:26379/m"),
    ],
)
def test_an_address(url: str, for_client: str, cluster: bool, shown: str) -> None:
    """As the client library takes it, and as logs may have it."""
    address = address_of(url)
    assert address is not None
    assert (address.url, address.cluster, address.label) == (for_client, cluster, shown)
    assert check_store_url(url) == url
    assert "s3cret" not in shown


def test_several_hosts() -> None:
    """Nodes of a Cluster, or Sentinels, which know the server by a name, and have a login of their own."""
    cluster = address_of("redis+cluster://me:s3cret@a:7000,b,[::1]:7002")
    sentinels = address_of("redis+sentinel://a,b:7001/the%20master?sentinel_username=u&sentinel_password=s3%40cret")
    assert cluster is not None
    assert sentinels is not None
    assert cluster.hosts == (("a", 7000), ("b", 6379), ("::1", 7002))
    assert sentinels.hosts == (("a", 26379), ("b", 7001))
    assert (sentinels.master, sentinels.sentinel_login) == ("the master", ("u", "s3@cret"))
    assert sentinels.without_secrets("AUTH u s3@cret") == "AUTH u ***"


def test_memory_is_no_address() -> None:
    """It is the default."""
    assert address_of("memory://") is None


@pytest.mark.parametrize(
    ("url", "right"),
    [
        ("", STORE_HINT),
        ("localhost:6379", STORE_HINT),
        ("redis", STORE_HINT),
        ("redis:/localhost", STORE_HINT),
        ("reddis://h", "there is no such store; did you mean redis://?"),
        ("valky://h", "there is no such store; did you mean valkey://?"),
        ("postgresql://h", STORE_HINT),
        ("memory://here", "memory:// is the memory of this process, and takes no address"),
        ("redis://", f"it names no host; {STORE_HINT}"),
        ("redis://h/db", f"after the host only the number of a database is allowed; {STORE_HINT}"),
        ("redis://h:99999", f"its port is not a number from 1 to 65535; {STORE_HINT}"),
        ("redis://:pass/word@h", f"its port is not a number from 1 to 65535; {STORE_HINT}"),
        ("redis://h:0", f"its port is not a number from 1 to 65535; {STORE_HINT}"),
        ("redis+cluster://a:1,b:99999", f"host 2 of 2: its port is not a number from 1 to 65535; {STORE_HINT}"),
        ("redis+cluster://a:1,,b:2", f"host 2 of 3: it names no host; {STORE_HINT}"),
        ("redis+sentinel://a,[::1/m", f"it is not a URL; {STORE_HINT}"),
        ("redis+sentinal://a/m", "there is no such store; did you mean redis+sentinel://?"),
        ("rediss+clutser://a", "there is no such store; did you mean rediss+cluster://?"),
        (
            "redis://a:1,b:2",
            "only a Cluster or Sentinels may have several hosts: redis+cluster:// or redis+sentinel://",
        ),
        ("redis+sentinel://a,b", f"it names no master; {MASTER_HINT}"),
        ("redis+sentinel://a,b/0", f"it names no master; {MASTER_HINT}"),
        ("redis+sentinel://a/m/x", f"it has another path; {MASTER_HINT}"),
        ("redis://h?max_conections=3", "there is no option 'max_conections'; did you mean max_connections?"),
        ("redis://me:p?x=1&s@s3cret", f"its port is not a number from 1 to 65535; {STORE_HINT}"),
        ("redis://h?ssl_certfile=/c.pem", "the option ssl_certfile is for TLS: rediss://"),
        ("valkey+cluster://h?ssl_keyfile=/c.pem", "the option ssl_keyfile is for TLS: valkeys+cluster://"),
        ("rediss://h?sentinel_password=s", "the option sentinel_password is for Sentinels: rediss+sentinel://"),
        ("redis://[::1", f"it is not a URL; {STORE_HINT}"),
        ("redis://h h", f"it contains white space or control characters; {STORE_HINT}"),
        ("redis+cluster://h/1", "a cluster only has database 0; leave out the number"),
        ("redis://h?decode_responses=True", "leave out the option decode_responses, which callfuse sets itself"),
        ("redis+cluster://h?db=0&encoding=utf-16", "leave out the option encoding, which callfuse sets itself"),
        ("unix://", "name the socket's file, as in unix:///run/redis.sock"),
    ],
)
def test_what_is_no_address(url: str, right: str) -> None:
    """It is said what would be one; no password is repeated."""
    with pytest.raises(ValueError, match=re.escape(right)) as caught:
        check_store_url(url)
    assert str(caught.value) == right


def test_no_text_holds_a_password() -> None:
    """Neither as the URL has it nor as the server does."""
    address = address_of("rediss://me:s3%40cret@h?ssl_password=other")
    assert address is not None
    assert address.without_secrets("AUTH me s3@cret s3%40cret other") == "AUTH me *** *** ***"
