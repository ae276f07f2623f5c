"""
What ships for testing. No other room imports it.

- ``golden``: checks recorded answers of Apache Kafka against the managers' own, as a command.
"""
