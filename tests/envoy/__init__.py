"""callfuse as Envoy's external processor: by itself with a gRPC client, and behind a real Envoy."""

import pytest

pytest.importorskip("grpc", reason="there is no grpcio here")
