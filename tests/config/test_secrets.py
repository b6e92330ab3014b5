"""Secrets among the settings are printed nowhere: not where they are right, not where they are wrong."""

from typing import Any

import pytest

from callfuse.config import load_config, resolve
from callfuse.errors import ConfigError
from callfuse.reference.effective import as_json, effective_rows, value_at

SECRET = "a-secret-of-the-tests"
HOOK = "https://user:s3cret@hooks.example:8443/services/T0/B0/s3cret?token=s3cret"


def test_no_explanation_shows_them() -> None:
    """Of a webhook there is its host, by which it is known; a default is shown as it is."""
    resolved = resolve({"events": {"webhook": HOOK, "secret": SECRET}}, {})
    shown = {row.key: row.text for row in effective_rows(resolved)}
    assert shown["events.webhook"] == "https://hooks.example:8443/***"
    assert shown["events.secret"] == "***"
    assert value_at(resolved.config, ("events", "secret")) == "***"
    assert "s3cret" not in as_json(effective_rows(resolved))
    assert {row.key: row.text for row in effective_rows(resolve({}, {}))}["events.secret"] == "null"


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"webhook": "hooks.example/s3cret"}, "webhook = ***"),
        ({"webhook": "https://hooks.example/s3cret\n"}, "webhook = https://hooks.example/***"),
        ({"webhook": "https://[s3cret"}, "webhook = *** (keyword): it is not a URL; "),
        ({"webhook": "https://hooks.example:s3cret/"}, "webhook = ***"),
        ({"webhook": ["s3cret"]}, "webhook = ***"),
        ({"secret": "s3cret"}, "secret = *** (keyword): use 16 or more characters"),
        ({"secret": {"s3cret": 1}}, "secret = ***"),
    ],
)
def test_no_error_shows_them(wrong: dict[str, Any], what: str) -> None:
    """Whatever is wrong about them."""
    with pytest.raises(ConfigError) as raised:
        load_config({"events": wrong}, {})
    assert what in str(raised.value)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"kinds": ["findng"]}, "there is no event or kind of finding 'findng'; did you mean finding?"),
        ({"kinds": []}, "name at least one; to send nothing, leave out the webhook"),
        ({"format": "xml"}, "events.format = 'xml' (keyword): use one of json, slack"),
    ],
)
def test_what_is_sent_is_chosen_by_name(wrong: dict[str, Any], what: str) -> None:
    """Of an event, or of a kind of findings."""
    with pytest.raises(ConfigError) as raised:
        load_config({"events": wrong}, {})
    assert what in str(raised.value)
    assert load_config({"events": {"kinds": ["exchange", "repeat"]}}, {}).events.kinds == ("exchange", "repeat")
