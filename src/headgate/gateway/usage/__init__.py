"""
The gateway's side of the usage journal.

- ``usage_journal``: turns charges into events, and hands them to a writer of ``headgate.usage``.
- ``upkeep``: keeps the journal's folder small.
"""
