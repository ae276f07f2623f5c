"""
Who a client is, and with which credentials it goes upstream.

- ``identity``: a connection's principal, by its address, certificate or authentication.
- ``sasl``: watches a client authenticate, and learns its name.
- ``ssl_names``: the name in a certificate as Java prints it, and the principal made of it.
- ``lending``: the credentials with which an mTLS client goes upstream.
"""
