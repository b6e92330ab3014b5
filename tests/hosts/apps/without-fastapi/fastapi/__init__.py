"""What blocks of pages use of FastAPI, for where it is not installed: it is a Starlette.

What no route takes goes to the scripted models, as if the reader's app had a route for them.
"""

from bare import app as models
from starlette.applications import Starlette


class FastAPI(Starlette):
    """An app."""

    def __init__(self):
        """Without routes of its own."""
        super().__init__()
        self.router.default = models
