"""
The Kafka client that all packages use, and the reader of its TLS and SASL settings.

In the order a connection meets them:

- ``handshakes``: how many bytes a client's TLS handshake may take.
- ``tls_limits``: TLS versions and cipher suites by Kafka's names.
- ``tls``: TLS contexts from Kafka's ``ssl.*`` settings.
- ``security``: how to connect to a broker, read from settings.
- ``connection``: one connection to a broker: TLS, SASL, requests and answers.
- ``nodes``: finds the brokers of a cluster and keeps a connection to each that was needed.
- ``waiting``: a limit on the time of a call.
- ``thread``: an event loop on a thread, for callers that aren't coroutines.
- ``quota_messages``: quotas as the messages of calls 48, 49 and 50 spell them.
- ``quota_calls``: describes and alters client quotas (48 and 49); tries again what goes away.
- ``log_dirs``: what brokers' disks hold.
"""
