"""
The Jinja environment of the report's and the console's templates: escaping, and number formats.
"""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from headgate import words
from headgate.quota.key import format_value


def environment(package: str, **filters: Any) -> Environment:
    """
    Return an environment of the templates in a package's ``templates`` folder.

    A name that a template uses and isn't given is an error. Filters are ``amount``, ``count``,
    ``share``, ``duration``, ``moment``, ``exactly`` (a quota's value as Kafka writes it), and those
    given.
    """
    made = Environment(
        loader=PackageLoader(package, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        amount=words.amount, count=words.count, share=words.share, duration=words.duration,
        moment=words.moment, exactly=format_value, **filters,
    )  # fmt: skip
    return made
