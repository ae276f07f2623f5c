"""The contract of every quota store, as tests; each home's test module subclasses it."""

from contract.at_once import AtOnce
from contract.homes import Moments, Opener, Seen, alteration, called, errors, set_key
from contract.identities import Identities
from contract.quotas import Quotas
from contract.settings import Settings
from contract.watches import Watches

__all__ = (
    "Moments",
    "Opener",
    "Seen",
    "StoreContract",
    "alteration",
    "called",
    "errors",
    "set_key",
)


class StoreContract(Quotas, Watches, Identities, Settings, AtOnce):
    """Subclasses give ``open_home``: opens one more store on this test's own empty home."""
