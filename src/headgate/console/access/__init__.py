"""
Signing in, and what each viewer may do.

- ``viewer``: roles, and who looks at a page.
- ``tenants``: the file that lists the principals of each tenant.
- ``names``: the host names that requests may have, and the addresses that we may listen on.
- ``csrf``: tokens that prove that a form came from one of our pages.
- ``next_page``: the page that is shown after signing in.
- ``users``: local users and their passwords.
- ``failures``: slows failed sign-ins.
- ``roles``: the file of roles for OIDC and proxies.
- ``proxy``: users named by a proxy.
- ``oidc``: sign-in at an OpenID Connect provider.
- ``sessions``: cookies' tokens.
- ``tokens``: those of the HTTP API.
- ``sign_in``: finds out who a request comes from, with the modules above.
- ``opening``: makes the object of ``sign_in`` or ``unsigned`` from settings.
- ``unsigned``: without sign-in, everybody on this machine may read, and nobody may change.
"""
