"""
Turn request logs and usage journals into answers, on Spark.

``schema`` says what every table holds. A source (``requests``) makes request rows; each answer
(``usage``, ``replay``, ``what_if``, ``recommend``, ``chargeback``, ``storms``, ``effective``) is a
function ``DataFrame -> DataFrame``; ``report`` draws what they wrote.
"""
