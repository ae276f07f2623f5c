"""
`headgate doctor`: looks for what is wrong or odd.

- ``doctor``: the command; looks at quotas.
- ``setup``: looks at a gateway's set-up, from where it runs.
"""
