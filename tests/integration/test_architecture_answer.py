"""The example of the page on architecture that needs Spark works as it stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.page_examples import examples, follow_all

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_a_table_that_the_architecture_page_adds_is_made_by_spark(tmp_path: Path) -> None:
    (example,) = (e for e in examples() if e.needs_spark)
    assert example.title == "A new answer of the pipeline"
    follow_all(example, tmp_path)
