"""Makes certificates that sign themselves, with the openssl command."""

import shutil
import subprocess
from pathlib import Path

import pytest


def make_certificate(folder: Path, *, name: str = "callfuse.test") -> tuple[Path, Path]:
    """The files of a new certificate for 127.0.0.1, and of its key, in a folder. Skips the test without openssl."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("a certificate is made with the openssl command, which is not here")
    folder.mkdir(exist_ok=True)
    making = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    making += ["-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*making, "-keyout", "key.pem", "-out", "cert.pem"], cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"
