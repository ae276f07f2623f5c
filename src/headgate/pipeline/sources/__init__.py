"""
Find what is to be read, and read it: logs, journals, tables written before, topics.

- ``files``: the files behind ``--requests``, and those of them that grow.
- ``compressed``: text of compressed files; damage told from failure to read.
- ``heads``: a file's beginning: its compression and its first request.
- ``copies``: files that begin alike.
- ``journal_files``: a usage journal's files: batches of events, starts, damage.
- ``pieces``: files divided into pieces, each for one worker.
- ``under_way``: the requests of several lines that are under way at a place of a file.
- ``chunks``: the lines of a piece, in buffers of whole lines.
- ``identity``: log files known by their content, whatever their names.
- ``rotation``: the pieces of growing, renamed and compressed files that weren't read yet.
- ``quality``: how far a log can be trusted, from a sample of it.
- ``journal``: a journal's events as requests, or as sums by second.
- ``row_groups``: tables ``requests`` written before.
- ``topic``: a topic's messages, as a stream of Spark's.
- ``journal_tail``: journal directories as they grow, as a stream of Spark's.
"""
