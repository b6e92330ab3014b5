"""Where the time of one exchange goes, and how many exchanges a middleware serves at present."""

from time import perf_counter


class InFlight:
    """How many `exchanges` of a middleware go on."""

    exchanges = 0


class ExchangeTimes:
    """When the parts of one exchange came, by `perf_counter`. `read`: the request's body has been read; `called`: the
    app is called; `first_byte`: of the app's first answer, 0 before it. `held_s`: seconds of holds that are over;
    `asked_s`: of these, after the model was asked again."""

    __slots__ = ("asked_s", "began", "called", "first_byte", "held_s", "read")

    def __init__(self) -> None:
        self.began = self.read = self.called = perf_counter()
        self.first_byte = self.held_s = self.asked_s = 0.0
