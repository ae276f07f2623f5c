"""
Headgate: quotas for Apache Kafka. Manage, enforce, account.

From the bottom up; a package imports only from those named before it:

- ``errors``: every error that Headgate raises on purpose.
- ``build``: which build this is.
- ``clock``: the time in milliseconds.
- ``files``: a file written whole or not at all.
- ``words``: numbers in words, and names shown without harm.
- ``java_text``: numbers, hashes and orders as Java has them.
- ``steps``: work that may be left for a while.
- ``yaml_reading``: YAML and JSON within bounds.
- ``config``: the settings file, read into frozen settings.
- ``quota``: what a quota is, and which one applies.
- ``wire``: Kafka's protocol, bytes to messages and back.
- ``throttle``: how long a client waits.
- ``kernel``: ``throttle``'s arithmetic over whole arrays of charges.
- ``demand``: what throttled clients would have sent, and how they'd fare under another limit.
- ``usage``: the gateway's journal of charges.
- ``embedded``: a real Kafka on loopback.
- ``client``: the one Kafka client, and the one reader of its TLS and SASL settings.
- ``store``: where quotas are kept.
- ``live``: what goes on now, and why.
- ``templates``: how the report's and the console's templates are rendered.
- ``http_serving``: what HTTP servers here share: no signals, and few connections.
- ``metrics``: what a gateway shows about its own state.
- ``admin``: KIP-546's admin client.
- ``gateway``: the proxy between clients and brokers.
- ``pipeline``: PySpark over request logs and journals.
- ``console``: the web page that says who is throttled now, and why.
- ``cli``: the commands.
- ``demo``: ``headgate demo``.
- ``testing``: checks recorded answers of Kafka; no other package imports it.
"""

__version__ = "0.1.0"
