"""Secrets in texts that are shown: starred by the key before them, or by their shape."""

import pytest

from callfuse.model.secrets import MARGIN, star_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"api_key": "abc", "q": "x"}', '{"api_key": "***", "q": "x"}'),
        ('{"x-api-key":"a\\"b","n":1}', '{"x-api-key":"***","n":1}'),
        ('{"headers": {"Authorization": "Bearer abc.def"}}', '{"headers": {"Authorization": "***"}}'),
        ('{"a": "{\\"token\\": \\"xyz\\", \\"b\\": 2}"}', '{"a": "{\\"token\\": \\"***\\", \\"b\\": 2}"}'),
        ('{"password": 12345, "b": 2}', '{"password": ***, "b": 2}'),
        ("{'client_secret': 'it\\'s', 'b': 2}", "{'client_secret': '***', 'b': 2}"),
        ('{"access_token": "never clos', '{"access_token": "***"'),
        ("Authorization: Bearer abc, more", "Authorization: ***, more"),
        ("export OPENAI_API_KEY=abc; ls", "export OPENAI_API_KEY=***; ls"),
        ("run --api-key abc --token=def -v", "run --api-key *** --token=*** -v"),
        ("https://me:word@host/x?token=abc&y=1", "https://***@host/x?token=***&y=1"),
        ("the key sk-proj-abcd1234 is wrong", "the key *** is wrong"),
        ("ghp_abcdefghijklmnop1234 AKIAABCDEFGHIJKLMNOP", "*** ***"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.c2ln", "***"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\n", "***\n"),
    ],
)
def test_what_is_starred(text: str, shown: str) -> None:
    """Whatever stands around it stays."""
    assert star_secrets(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        '{"max_tokens": 5, "total_tokens": "many"}',
        '{"token": null, "secret": false, "password": {"a": 1}}',
        "sk-learn is a package, and sk-1 no key",
        "Unexpected token: }",
        "The password was not found.",
        "https://host:8080/path@x",
        "",
    ],
)
def test_what_is_none(text: str) -> None:
    """Words that only look like it."""
    assert star_secrets(text) == text


def test_a_cut_goes_through_a_secret() -> None:
    """What is left of it is starred, too."""
    text = "x" * 90 + " sk-proj-" + "a1" * 300
    assert star_secrets(text, 100) == "x" * 90 + " ***"


@pytest.mark.parametrize("shape", ["db://bob:hunter22@host", "the key sk-a1b2c3d4e5f6g7h8", "ghp_abcdefghijklmnop1234"])
def test_stars_bring_no_half_secret_into_sight(shape: str) -> None:
    """A long secret that is starred makes the text shorter: what is at the end of the margin, where a secret may be cut
    and so not be known, would then stand before the limit. Also where the caller has cut the text."""
    for length in range(340, 420):
        text = ("token=" + "x" * length + " " + shape).ljust(1000)
        for given in (text, text[: 100 + MARGIN]):
            shown = star_secrets(given, 100)
            assert shown.startswith("token=***")
            assert not any(part in shown for part in ("bob", "hunter", "sk-", "a1b2", "ghp"))


def test_a_short_text_is_shown_to_its_end() -> None:
    """However long the stars are in place of a secret, or in place of how much they stand."""
    assert star_secrets("token=" + "x" * 50 + " is wrong", 100) == "token=*** is wrong"
