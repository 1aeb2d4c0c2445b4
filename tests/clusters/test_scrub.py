"""Secrets are hidden in texts, and ordinary words stay."""

import pytest

from clusters.scrub import scrubber


@pytest.mark.parametrize(
    "name",
    ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "HF_TOKEN", "MY_PASSWORD", "wandb_api_key", "X_AUTH"],
)
def test_values_named_like_a_secret_are_hidden(name: str):
    assert scrubber({name: "correct horse"})("a correct horse b") == "a *** b"


@pytest.mark.parametrize("name", ["RAY_AUTH_TOKEN_PATH", "SSH_AUTH_SOCK", "HOME", "AWS_DEFAULT_REGION"])
def test_places_and_other_values_stay(name: str):
    assert scrubber({name: "/run/user/1000"})("at /run/user/1000") == "at /run/user/1000"


def test_a_short_value_hides_nothing():
    assert scrubber({"TOKEN": "on"})("turn it on") == "turn it on"


@pytest.mark.parametrize(
    "secret",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "ASIAIOSFODNN7EXAMPLE",
        "ghp_abcdefghijklmnopqrstuvwxyz",
        "hf_abcdefghijklmnopqrstuv",
        "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_secrets_known_by_sight_are_hidden(secret: str):
    assert scrubber({})(f"got {secret}, sorry") == "got ***, sorry"


def test_a_bearer_token_is_hidden():
    assert scrubber({})("Authorization: Bearer abcdef0123456789") == "Authorization: Bearer ***"


def test_a_secret_within_another_leaves_no_rest():
    hidden = scrubber({"A_TOKEN": "abcdefgh", "B_TOKEN": "abcdefghij"})
    assert hidden("abcdefghij") == "***"
