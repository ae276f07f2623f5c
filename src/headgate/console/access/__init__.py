"""
Signing in, and what each viewer may do.

- ``viewer``: roles, and who looks at a page.
- ``tenants``: the file that lists the principals of each tenant.
- ``names``: what browsers may call us, and where we may listen.
- ``csrf``: tokens that say that a form is ours.
- ``next_page``: where somebody goes after signing in.
- ``users``: local users and their passwords.
- ``failures``: slows failed sign-ins.
- ``roles``: the file of roles for OIDC and proxies.
- ``proxy``: users named by a proxy.
- ``oidc``: sign-in at an OpenID Connect provider.
- ``sessions``: cookies' tokens.
- ``sign_in``: puts these together: who a request comes from.
- ``opening``: makes it from settings.
- ``unsigned``: everybody on loopback reads, nobody changes.
"""
