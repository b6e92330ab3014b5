"""Hypothesis profiles: moderate at the desk, the same examples every time in CI, many on request.

`HYPOTHESIS_PROFILE=thorough` looks ten times as far; `quick` reports the first failure as it was found.
"""

import os

from hypothesis import HealthCheck, Phase, settings

_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile("dev", deadline=None, max_examples=50, suppress_health_check=_SLOW_IS_FINE)
settings.register_profile("ci", parent=settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.register_profile("quick", parent=settings.get_profile("dev"), phases=(Phase.explicit, Phase.generate))
settings.register_profile("thorough", parent=settings.get_profile("dev"), max_examples=500)

_DEFAULT = "ci" if os.environ.get("CI") == "true" else "dev"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", _DEFAULT))
