"""
The same answers of an input that grows: what is new is read once, round by round.

- ``rounds``: what a round reads, and what is remembered of it.
- ``identity``: which file is which, whatever it's called by now.
- ``rotation``: the pieces of files that a round reads.
- ``parts``: what rounds have written, and how a source is followed.
- ``directories``: directories, patterns and files as a source.
- ``topic``: a topic as a source.
- ``follow``: a command's tables, made again after each round.
"""
