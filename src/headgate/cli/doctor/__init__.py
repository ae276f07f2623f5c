"""
`headgate doctor`: looks for what is wrong or odd.

- ``doctor``: the command; looks at quotas.
- ``requests``: looks at request logs: what they are, and what can be answered from them.
- ``setup``: looks at a gateway's set-up, from where it runs.
"""
