"""The page: self-contained, valid figures, a table beside every chart, safe names."""

import itertools
import json
import re
import threading
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import plotly.graph_objects as go
import pytest
from made_tables import everything, usage_row, write

from headgate.cli.main import load
from headgate.cli.pipeline.report import follow
from headgate.pipeline.report import build_report, charts, read_tables, render, write_report
from headgate.pipeline.report.charts import all_charts, label, series_of, short
from headgate.pipeline.report.render import fidelity
from headgate.pipeline.tables.pointer import POINTER, Pointer

main_report = load("report")

EVIL = "</script><script>alert(1)</script>"


class Outline(HTMLParser):
    """Headings, ids, links, labels of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.headings: list[int] = []
        self.ids: list[str] = []
        self.hrefs: list[str] = []
        self.sources: list[str] = []
        self.plots: list[dict[str, str | None]] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if found.get("id"):
            self.ids.append(str(found["id"]))
        if tag == "a":
            self.hrefs.append(str(found.get("href")))
        self.sources += [str(found[n]) for n in ("src", "data", "poster") if n in found]
        if tag == "link":
            self.sources.append(str(found.get("href")))
        if tag == "script":
            self.scripts += 1
        if found.get("class") == "plot":
            self.plots.append(found)


def summary(place: Path) -> None:
    (place / "summary").mkdir()
    (place / "summary" / "usage.parquet").write_bytes(b"")


def page(place: Path) -> str:
    report = build_report(read_tables(place))
    return render(report, generated_ms=1_795_262_669_000, title="Headgate report")


def outline(text: str) -> Outline:
    # Plotly's own text is inert and huge; the parser needn't see it.
    start = text.index('<script type="text/plain" id="plotly">')
    end = text.index("</script>", start)
    found = Outline()
    found.feed(text[:start] + text[end:])
    return found


def test_the_page_is_one_file_that_calls_nobody(made: Path) -> None:
    found = outline(page(made))
    assert found.sources == []
    assert len(found.hrefs) > 5
    assert all(href.startswith("#") for href in found.hrefs)
    assert {href[1:] for href in found.hrefs} <= set(found.ids)
    assert len(found.ids) == len(set(found.ids))


def test_headings_descend_step_by_step(made: Path) -> None:
    headings = outline(page(made)).headings
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(headings))


def test_every_chart_says_what_it_shows_and_is_a_table_too(made: Path) -> None:
    report = build_report(read_tables(made))
    drawn = all_charts(report)
    assert set(drawn) == {
        *("overview", "utilisation", "heat", "sharing", "plans", "fares", "advice")
    }
    for chart in drawn.values():
        assert len(chart.says) > 40
        assert chart.rows
        assert all(len(row) == len(chart.headers) for row in chart.rows)
    for plot in outline(page(made)).plots:
        assert plot["role"] == "img"
        assert len(str(plot["aria-label"])) > 20


@pytest.mark.parametrize("name", ["overview", "utilisation", "heat", "sharing", "plans", "advice"])
def test_every_figure_is_one_that_plotly_accepts(made: Path, name: str) -> None:
    figure = all_charts(build_report(read_tables(made)))[name].figure()
    text = re.sub(r'"--[a-z0-9-]+"', '"#123456"', json.dumps(figure, allow_nan=False))
    go.Figure(json.loads(text))


def test_names_chosen_by_clients_stay_text(tmp_path: Path) -> None:
    rows = [
        usage_row(0, amount=5, quota_id=f":{EVIL}", quota_client_id=EVIL, quota_source=EVIL,
                  quota=1.0, throttle_time_ms=3, throttled_requests=1)
    ]  # fmt: skip
    text = page(write(tmp_path, usage=rows))
    assert "<script>alert" not in text
    assert outline(text).scripts == outline(page(write(tmp_path / "b", usage=rows[:0]))).scripts


def test_the_data_is_strict_json_that_cannot_end_its_element(made: Path) -> None:
    text = page(made)
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found is not None
    data = json.loads(found[1])
    assert len(data["tenants"]) == 20
    assert not set("<>&") & set(found[1])


def test_series_are_compact_and_lose_nothing(made: Path) -> None:
    report = build_report(read_tables(made))
    for tenant in report.tenants:
        sent = series_of(tenant)
        assert [sum(s["y"]) for s in sent["s"]] == [sum(s.amounts) for s in tenant.series]
        assert [sum(s["t"]) for s in sent["s"]] == [sum(s.throttle_ms) for s in tenant.series]


def test_a_calm_run_says_that_nobody_was_throttled(tmp_path: Path) -> None:
    text = page(write(tmp_path, usage=[usage_row(0, amount=5)]))
    assert "Nobody was throttled." in text
    assert "Nobody here has a quota." in text
    assert "Every line was read." in text


def test_how_near_the_replay_came_is_told_per_quota_type(made: Path) -> None:
    (row,) = fidelity(build_report(read_tables(made)))
    assert row["quota_type"] == "producer_byte_rate"
    assert row["within_1_ms_share"] == 0.838
    assert "98.4\u00a0%" in page(made)


def test_advice_says_why_beneath_its_entity_and_plans_stand_side_by_side(made: Path) -> None:
    page = render(build_report(read_tables(made)), generated_ms=1, title="t")
    assert re.search(r'<span class="name">[^<]+</span><p class="small">p99 of the window', page)
    head = page[page.index("Clients with the largest differences") :][:600]
    names = re.findall(r'<th scope="col" class="n">(\w+)</th>', head)
    assert names == ["logged", "double", "half"]
    assert "connection_creation_rate=5<" in page


def test_an_empty_run_is_a_page_too(tmp_path: Path) -> None:
    assert "No usage was found." in page(write(tmp_path, usage=[]))


def test_the_same_tables_give_the_same_page(made: Path) -> None:
    assert page(made) == page(made)


def test_the_command_writes_the_page_and_says_where(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "r.html"
    assert main_report(["--tables", str(made), "--out", str(out)]) == 0
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    said = capsys.readouterr().out
    assert str(out) in said
    assert "7 lines couldn't be read" in said
    assert list(out.parent.iterdir()) == [out]


def test_the_page_is_drawn_anew_when_a_round_has_made_a_table(tmp_path: Path) -> None:
    """Each run replaces the pointer, with ``--follow`` or without."""
    drawn: list[str] = []
    stop = threading.Event()

    def version(name: str) -> None:
        pointer = Pointer({"usage": [f"run-20261127T100000-usage-0000000{name}/usage"]})
        (tmp_path / POINTER).write_bytes(pointer.written())

    class Stop(threading.Event):
        """Between two looks: what happens, one thing after the other."""

        happens = iter(
            [lambda: None, lambda: version("2"), lambda: None, lambda: version("3"), stop.set]
        )

        def wait(self, timeout: float | None = None) -> bool:
            next(self.happens)()
            return stop.is_set()

    version("1")
    follow(tmp_path, lambda: drawn.append((tmp_path / POINTER).read_text()), 1, Stop())
    assert [text.count("-00000002/") for text in drawn] == [0, 1, 0]


def test_the_command_names_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_report(["--tables", str(tmp_path / "no")]) == 1
    assert "no such folder" in capsys.readouterr().err
    assert main_report(["--tables", str(tmp_path), "--window-seconds", "0"]) == 2


def test_an_unwritable_place_is_named(made: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    from headgate.errors import ConfigError

    with pytest.raises(ConfigError, match="can't be written"):
        write_report(made, tmp_path / "file" / "r.html", generated_ms=0)


def test_names_in_charts_are_no_markup_and_no_longer_than_can_be_read() -> None:
    assert short("a<b>&co") == "a&lt;b>&amp;co"
    assert short("x" * 40) == "x" * 40
    assert short("x" * 39 + "-eu") == "x" * 24 + "…" + "x" * 12 + "-eu"


def test_long_names_that_look_alike_stay_apart(made: Path) -> None:
    tenant = build_report(read_tables(made)).tenants[0]
    one = replace(tenant, quota_id="x" * 300, index=1)
    other = replace(tenant, quota_id="x" * 301, index=2)
    assert label(one) != label(other)
    assert label(replace(tenant, quota_id="u:c", index=1)) == f"u:c  {tenant.what}"


def test_one_plan_far_above_the_rest_doesnt_flatten_their_bars() -> None:
    assert charts._scaled(["logged", "half", "double"], [100.0, 190.0, 20.0]) == {}
    assert charts._scaled(["logged", "none"], [100.0, 0.0]) == {}
    layout = charts._scaled(["logged", "tenth", "none"], [100.0, 1e6, 0.0])
    assert layout["yaxis"]["type"] == "log"
    low, high = layout["yaxis"]["range"]
    assert low < 2 < 6 < high
    # The shortest bar that there is has a tenth of the height at least.
    assert (2 - low) / (high - low) > 0.1
    assert [note["x"] for note in layout["annotations"]] == ["none"]


def test_what_was_withheld_is_told_beside_the_plans(tmp_path: Path) -> None:
    place = everything(tmp_path, 20, 60)
    page = write_report(place, place / "report.html", generated_ms=1).path.read_text()
    assert "A broker answers a throttled fetch empty" in page
    assert re.search(r">half</span>: [^<]+ or more</li>", page)
    assert re.search(r">double</span>: [^<]+ to [^<]+</li>", page)
