"""
`headgate top`: who waits and who uses most, again and again, until it is told to stop.

- ``top``: the parser, the table once, JSON.
- ``screen``: what is shown at a width: which columns fit, which rows, why one of them waits.
- ``view``: what the one who looks has chosen, and what each key does.
- ``terminal``: the loop between a gateway, a keyboard and a screen.
"""
