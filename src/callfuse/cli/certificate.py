"""Load the certificate of `callfuse serve`, and load it again when its files have changed.

A connection keeps its first certificate. The files are checked when a client connects, so renewing them needs no
signal, and takes effect in every worker.
"""

import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from callfuse.boundary import Boundary
from callfuse.cli.reload import POLL_S, file_version
from callfuse.errors import ConfigError

logger = logging.getLogger("callfuse.serve")

CERTIFICATE: Final = "serve.tls_certificate"
KEY: Final = "serve.tls_key"
MISMATCH: Final = "KEY_VALUES_MISMATCH"  # the reason's name in OpenSSL
LEAST_KEY: Final = "EE_KEY_TOO_SMALL"


def load_context(certificate: str, key: str | None) -> ssl.SSLContext:
    """Return a server context with this certificate. Without `key`, the certificate's file also has the key. Raises
    ConfigError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    _check_certificate(certificate)
    if key is not None:
        _read(KEY, key)
    in_key = f"{KEY} = {key!r}" if key else f"{CERTIFICATE} = {certificate!r}"
    try:
        context.load_cert_chain(certificate, key, password=_refuse_to_ask)
    except _EncryptedKeyError:
        raise ConfigError(f"{in_key}: the key is encrypted; use one without a passphrase") from None
    except ssl.SSLError as error:
        if error.reason == MISMATCH:
            raise ConfigError(f"{in_key}: the key does not belong to the certificate in {certificate}") from None
        if error.reason == LEAST_KEY:
            raise ConfigError(
                f"{CERTIFICATE} = {certificate!r}: the key is too short; use RSA with 2,048 bits"
            ) from None
        raise ConfigError(f"{in_key}: the file contains no private key in PEM format") from None
    return context


def _check_certificate(path: str) -> None:
    """Raise ConfigError unless the file contains a certificate. OpenSSL does not say which of two files is wrong."""
    text = _read(CERTIFICATE, path)
    try:
        ssl.create_default_context(cadata=text.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError):
        raise ConfigError(f"{CERTIFICATE} = {path!r}: the file contains no certificate in PEM format") from None


def _read(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name} = {path!r}: {error.strerror}") from None


class _EncryptedKeyError(Exception):
    """Raised because OpenSSL would ask for a passphrase in the terminal."""


def _refuse_to_ask() -> str:
    raise _EncryptedKeyError


class Certificate:
    """The certificate of these files, for new connections. Raises ConfigError if they are wrong at first. If they are
    wrong later, the error is logged once, and the last certificate stays in use. `clock` returns seconds."""

    def __init__(self, certificate: str, key: str | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._files = certificate, key
        self._clock = clock
        self._versions = self._look()
        self._looked_at = clock()
        self._newest = load_context(*self._files)
        self.context = load_context(*self._files)
        """The server's context. It has the first certificate, and gives each connection the newest one."""
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        """Give a new connection the newest certificate. Called even if the client names no host."""
        self._renew()
        connection.context = self._newest

    def _renew(self) -> None:
        """Read the files again if they have changed. They are checked at most every `POLL_S` seconds."""
        if self._clock() - self._looked_at < POLL_S:
            return
        self._looked_at = self._clock()
        versions = self._look()
        if versions == self._versions:
            return
        self._versions = versions
        with Boundary(keep_traceback=True) as boundary:
            self._newest = load_context(*self._files)
        if isinstance(boundary.error, ConfigError):
            logger.error("the new certificate has errors; the previous one stays in use: %s", boundary.error)
        elif boundary.error is not None:
            logger.error("the certificate stays as it is", exc_info=boundary.error)
        else:
            logger.info("new connections get the certificate that is now in %s", self._files[0])

    def _look(self) -> tuple[str | None, ...]:
        return tuple(file_version(file) for file in self._files if file is not None)
