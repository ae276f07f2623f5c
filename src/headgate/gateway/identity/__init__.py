"""
Who a client is, and the credentials for its connection to the broker.

- ``identity``: makes a connection's principal from its address, certificate or authentication.
- ``sasl``: watches a client authenticate, and learns its name.
- ``ssl_names``: the name in a certificate as Java prints it.
- ``lending``: the credentials for an mTLS client's connection to the broker.
"""
