"""Run the checks of `callfuse serve` and `ext-proc` before they start."""

import os
from collections.abc import Mapping
from pathlib import Path

from callfuse.admin.feedback import check_file
from callfuse.cli.certificate import load_context
from callfuse.config import Resolved, resolve
from callfuse.config.environment import CONFIG_FILE
from callfuse.config.serve import UPSTREAM_HINT
from callfuse.errors import ConfigError
from callfuse.findings import check_path
from callfuse.stores import require


def resolve_to_serve(file: Path | None, options: Mapping[str, object], *, needs_upstream: bool = True) -> Resolved:
    """Load the configuration from every source. Raises ConfigError, also if a required upstream is missing, or if the
    store or the certificate cannot be used."""
    resolved = resolve(file, options=options)
    config = resolved.config
    if needs_upstream and config.serve.upstream is None and not config.serve.routes:
        places = "--upstream URL, the environment variable CALLFUSE_SERVE_UPSTREAM, or serve.upstream in the file"
        raise ConfigError(f"serve.upstream = null (not given): give {places}; {UPSTREAM_HINT}")
    require(config.store)
    if config.serve.tls_certificate is not None:
        load_context(config.serve.tls_certificate, config.serve.tls_key)
    if config.admin.enabled and config.admin.feedback_file is not None:
        check_file(config.admin.feedback_file)
    if config.admin.enabled:
        check_path(config.findings.path)
    return resolved


def file_of(option: Path | None) -> str:
    """Return the path of the settings file, from an option or the environment; empty if there is none."""
    return str(option) if option else os.environ.get(CONFIG_FILE, "").strip()
