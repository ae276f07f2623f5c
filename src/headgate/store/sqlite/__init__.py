"""
Quotas in one SQLite file on one host, the embedded default.

- ``place``: refuses files on network file systems.
- ``file``: connections to the file, and whether it is still the file that was opened.
- ``migrations``: the schema, as small steps that run once each.
- ``rows``: reads and writes the rows of the tables.
- ``home``: the file as a store has it open: reading, transactions, what is wrong with it.
- ``history``: history, audit lines and quotas that end.
- ``lease``: leases, a row each.
- ``store``: the store itself.
"""
