"""What is claimed of quotas for requests in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.gateway.charging.contexts import Contexts
    from headgate.gateway.charging.headroom import Allowance


def allowances(contexts: Contexts) -> list[Allowance]:
    """Return what may be in flight now, by quota and quota-id, of earlier epochs too."""
    return [*contexts._allowances.values(), *contexts._old_allowances.values()]
