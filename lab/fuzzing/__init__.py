"""
What fuzzers call: a target for everything that Headgate reads from outside.

- ``target``: what a target is, and the two things a parser may do: read or refuse.
- ``mutation``: inputs made of others: bytes and words changed, left out, doubled, mixed.
- ``corpus``: the inputs that are kept, and replayed by tests/unit/test_fuzz_corpus.py.
- ``messages``: bodies of every API and version.
- ``real_messages``: messages to begin with.
- ``identity``: SASL, certificates, the rules for names in certificates.
- ``conversation``: one client and one broker, in any pieces and order.
- ``crowd``: several connections of a few quota-ids that split, hang up and come again.
- ``quotas``: quotas files, values with units, names, paths, plans.
- ``settings``: files of properties; the files of roles, tenants, prices, the lent credentials.
- ``stores``: ZooKeeper's nodes, the topic's records, splits, the snapshot, the known store.
- ``logs``: lines of request logs, whole files, compressed and damaged.
- ``journals``: usage journals: files that were torn, messages of a topic.
- ``commands``: command lines.
- ``pages``: the console's requests, and the gateway's own HTTP.

``make fuzz`` runs them for millions of inputs; bench/attacks.md has the figures.
"""
