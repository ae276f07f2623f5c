"""
Roles, and who looks at a page.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """
    What somebody who is signed in may.

    ``VIEWER`` sees everything and changes nothing; ``TENANT`` sees its tenant's principals and asks
    for raises; ``OPERATOR`` sees and changes everything.
    """

    VIEWER = "viewer"
    TENANT = "tenant"
    OPERATOR = "operator"


class Scope(StrEnum):
    """What a token may, of what its owner may: ``READ`` changes nothing."""

    READ = "read"
    CHANGE = "change"


EVERYBODY: Final = frozenset(Role)
SEEING_ALL: Final = frozenset({Role.VIEWER, Role.OPERATOR})
OPERATORS: Final = frozenset({Role.OPERATOR})
TENANTS: Final = frozenset({Role.TENANT})


@dataclass(frozen=True, slots=True)
class Viewer:
    """
    Who looks at a page.

    Args:
        name: as the history and the audit call it.
        role: what they may.
        tenant: the tenant's name for the role ``TENANT``; "" for others.
        principals: the tenant's principals, raw; without meaning for other roles.
        can_sign_out: whether there is a session to end.
        scope: of the token that the request came with; None: it came without one.
    """

    name: str
    role: Role
    tenant: str = ""
    principals: frozenset[str] = frozenset()
    can_sign_out: bool = False
    scope: Scope | None = None

    @property
    def sees_all(self) -> bool:
        """Whether nothing is hidden."""
        return self.role in SEEING_ALL

    def sees(self, principal: str) -> bool:
        """Whether this principal's use and quotas may be shown."""
        return self.sees_all or principal in self.principals
