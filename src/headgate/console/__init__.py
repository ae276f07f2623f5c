"""
The console: a web page that says who is throttled now and why, and where quotas are changed.

Pages are rendered on the server, with Starlette and Jinja. Scripts are files of the console, never
inline, so the content policy can forbid inline ones. In the order in which a request meets them:

- ``serve``: the server: sockets, TLS, signals.
- ``app``: the application: middleware, routes, errors.
- ``access``: a package: signing in, and what each viewer may do.
- ``routing``: a page's row (path, roles, name in the navigation), and the checks before it.
- ``pages``: a package: one module for each page.
- ``api``: a package: the same data for programs.
- ``asking``: which client a page is asked about, and what its viewer may see of the answer.
- ``events``: what goes on now, asked for once and sent to every open page.
- ``recent``: the last hour's use of each quota-id.
- ``recorded``: what was used, from a gateway's usage journals.
- ``readings``: readings of a journal for pages, one at a time.
- ``paging``: lists that are shown in pages.
- ``drawing``: rows with bars, levels of precedence, use over time.
- ``rendering``: templates and static files.
- ``parts``: the objects that pages use: quotas, what goes on now, the console's own state.
- ``proposal``: a change, shown before it is made.
- ``preview``: who is affected by a change.
- ``what_if``: what other quotas would have done to the last hour's requests.
- ``foretold``: how clients would go under other quotas, in a closed loop; what is enough.
- ``hour``: the last hour of a journal: charges of clients that a plan concerns.
- ``raises``: tenants' asks for a raise, and the answers.
- ``uploads``: quotas files that were uploaded, and the last one applied.
- ``database``: the console's own state: users, sessions, asks for a raise.
"""
