"""
Tools for users' own tests. No other package imports it.

- ``golden``: checks recorded answers of Apache Kafka against the managers' own, as a command.
"""
