"""Journals name APIs as logs do."""

from __future__ import annotations

import re

from headgate.pipeline.logs.api_names import API_NAMES, api_name
from headgate.wire.apis import API


def test_every_api_that_is_known_has_its_name() -> None:
    named = {key: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", api.name).upper() for key, api in API.items()}
    assert {key: api_name(key) for key in API} == named
    assert len(API_NAMES) == max(API) + 1


def test_others_have_their_number() -> None:
    assert (api_name(99), api_name(-1), api_name(None)) == ("API_99", "API_-1", None)
