"""
The same tables from an input that grows: each round reads what is new.

- ``rounds``: what a round reads, and what is remembered of it.
- ``identity``: identifies files by their content, whatever their names.
- ``rotation``: the pieces of files that a round reads.
- ``parts``: what rounds have written, and how a source is followed.
- ``directories``: directories, patterns and files as a source.
- ``topic``: a topic as a source.
- ``follow``: a command's tables, made again after each round.
"""
