"""
Signing in, and what each viewer may do.

- ``viewer``: roles, and who looks at a page.
- ``tenants``: the file that lists the principals of each tenant.
- ``csrf``: tokens that say that a form is ours.
- ``unsigned``: everybody on loopback reads, nobody changes.
"""
