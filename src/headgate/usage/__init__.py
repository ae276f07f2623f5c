"""The usage journal: what was charged, told and seen, written out of the traffic's way."""
