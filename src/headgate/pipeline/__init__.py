"""
Turn request logs and usage journals into answers, on Spark.

Data goes from the bottom up; a module imports only from lines above its own.

- ``table``: what a table is: a name, a grain, columns.
- ``schema``: the tables that commands write.
- ``quotas``: who shares which quota, and its limit, at a moment.
- ``emitted``: tables of what workers hand over to Spark, and how their rows become Arrow batches.
- ``logs``: from a line of a request log to what was charged.
- ``sources``: the files and topics that lines and events are read from.
- ``workers``: what runs in Spark's Python workers: rows of requests, or their sums by second.
- ``frames``: Spark frames of what the workers read.
- ``replay``: Kafka's decisions on past charges, under one plan of quotas or several.
- ``answers``: usage, effective quotas, what-if, recommendations, chargeback, storms.
- ``splits``: cluster-wide quotas split over brokers, as a stream.
- ``report``: one page that shows the tables.
- ``tables``: how tables are written, all of a run's or none.
- ``run``: a command's run: progress, tables, figures of the closing table.
- ``growing``: the same answers of an input that grows.
- ``session``, ``class_data``: Spark's start, and what makes it quicker.
- ``bundled``: a small log and quotas that come with the package.
- ``warm``: what set-up makes ready for later runs.
"""
