"""
The one Kafka client, and the one reader of TLS and SASL settings.

In the order a connection meets them:

- ``tls_limits``: TLS versions and cipher suites by Kafka's names.
- ``tls``: TLS contexts from Kafka's ``ssl.*`` settings.
- ``security``: Kafka's client settings, read into what a connection needs.
- ``connection``: one connection to a broker: TLS, SASL, requests and answers.
- ``nodes``: finds the brokers of a cluster and keeps a connection to each that was needed.
"""
