"""The report as people meet it: drawn when looked at, by mouse, keyboard, in the dark, on paper."""

from __future__ import annotations

import colorsys
import re
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "report"))

from made_tables import everything

from headgate.pipeline.report import write_report

from .conftest import PATIENCE_MS

pytestmark = pytest.mark.browser


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = everything(tmp_path_factory.mktemp("report"), 20, 120)
    return write_report(place, place / "report.html", generated_ms=1).path.as_uri()


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = everything(tmp_path_factory.mktemp("large"), 1_000, 60)
    return write_report(place, place / "report.html", generated_ms=1).path.as_uri()


def drawn(page: Page) -> int:
    return page.locator("main .plot[data-drawn]").count()


@pytest.mark.short
def test_charts_are_drawn_when_they_come_into_view(page: Page, report: str) -> None:
    page.goto(report)
    page.locator("[data-chart=overview]").scroll_into_view_if_needed()
    expect(page.locator("[data-chart=overview] .main-svg").first).to_be_visible()
    assert page.locator("[data-chart=sharing][data-drawn]").count() == 0
    page.locator("[data-chart=sharing]").scroll_into_view_if_needed()
    expect(page.locator("[data-chart=sharing] .main-svg").first).to_be_visible()


def test_every_chart_draws(page: Page, report: str) -> None:
    page.goto(report)
    plots = page.locator("main .plot")
    for place in range(plots.count()):
        plots.nth(place).scroll_into_view_if_needed()
        expect(plots.nth(place).locator(".main-svg").first).to_be_visible()
    # No colour is left as the name of a variable.
    assert not page.locator("main svg").evaluate_all(
        "all => all.some(svg => /--(usage|fetched|heat|quota|throttle)/.test(svg.outerHTML))"
    )


def test_a_thousand_tenants_open_without_plotly_and_draw_only_what_is_seen(
    page: Page, large: str
) -> None:
    page.goto(large)
    assert page.locator("#all tbody tr").count() == 1_000
    # What to do fills the window: no chart is in sight.
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
    assert page.evaluate("typeof window.Plotly") == "undefined"
    page.locator("[data-chart=overview]").scroll_into_view_if_needed()
    expect(page.locator("[data-chart=overview][data-drawn]")).to_have_count(1)
    assert drawn(page) <= 3


def test_what_to_do_is_in_sight_at_once_and_a_click_takes_the_whole_command(
    page: Page, large: str
) -> None:
    page.goto(large)
    expect(page.get_by_role("heading", name="What to do")).to_be_in_viewport()
    groups = page.locator("#todo article")
    assert groups.count() >= 2
    assert max(n.locator("li").count() for n in groups.all()) == 5
    command = page.locator("#todo code.command").first
    command.click()
    taken = page.evaluate("getSelection().toString()")
    assert taken == command.text_content()
    assert re.fullmatch(
        r"headgate kafka-configs --alter --add-config \w+=\d+ --entity-type users "
        r"--entity-name=\w+",
        taken,
    )
    page.get_by_role("link", name=re.compile("^and .* more$")).first.click()
    expect(page.get_by_role("heading", name="Throttling", exact=True)).to_be_in_viewport()


def test_the_page_calls_nobody(browser: Browser, report: str) -> None:
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report)
    page.locator("[data-chart=overview]").scroll_into_view_if_needed()
    expect(page.locator("[data-chart=overview] .main-svg").first).to_be_visible()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    page.close()


def test_who_wants_more_is_marked_where_it_is_looked_for(page: Page, report: str) -> None:
    page.goto(report)
    saturated = "it takes whatever it is given"
    expect(page.locator("#todo").get_by_text(saturated).first).to_be_visible()
    card = page.locator("#quotas .grid .card").filter(has_text=saturated).first
    expect(card.locator("[data-demand]")).to_have_text("saturated")
    marked = page.locator("#all tbody tr").filter(has=page.locator("[data-demand]"))
    assert 0 < marked.count() < page.locator("#all tbody tr").count()
    marked.first.get_by_role("button").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name="What it wants")).to_be_visible()
    expect(dialog.get_by_role("heading", name="How it would fare")).to_be_visible()
    page.keyboard.press("Escape")
    chart = page.locator("[data-chart=fares]")
    chart.scroll_into_view_if_needed()
    expect(chart.locator(".main-svg").first).to_be_visible()
    # One line for each quota-id and plan, as long as what it lies between.
    drawn = chart.locator(".scatterlayer .js-line").evaluate_all(
        "all => all.map(line => line.getAttribute('d').split('M').length - 1)"
    )
    rows = chart.locator("xpath=..").locator("tbody tr").count()
    assert sum(drawn) == rows > 0


def test_a_quota_ids_own_page_by_keyboard_alone(page: Page, report: str) -> None:
    page.goto(report)
    button = page.locator("#all tbody button").first
    button.focus()
    expect(button).to_be_in_viewport()
    name = button.inner_text()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name=name)
    expect(dialog).to_be_visible()
    expect(dialog.get_by_role("heading", name=name, exact=True)).to_be_focused()
    expect(dialog.locator(".main-svg").first).to_be_visible()
    expect(dialog.get_by_text("Who shares it")).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(button).to_be_focused()


def test_a_link_leads_to_a_quota_ids_page(page: Page, report: str) -> None:
    page.goto(report + "#tenant-2")
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.locator("dialog .main-svg").first).to_be_visible()
    page.get_by_role("button", name="Close").click()
    expect(page).not_to_have_url(re.compile("#"))


def test_finding_and_sorting(page: Page, report: str) -> None:
    page.goto(report + "#tenants")
    expect(page.locator("#all tbody tr").first).to_be_in_viewport()
    page.get_by_label("Find").fill("user1")
    expect(page.locator("#found")).to_have_text(re.compile(r"^\d+ of 20$"))
    shown = page.locator("#all tbody tr:visible")
    assert 0 < shown.count() < 20
    assert all("user1" in text for text in shown.all_inner_texts())
    page.get_by_label("Find").fill("")
    page.get_by_role("button", name="requests", exact=True).click()
    cells = page.locator("#all tbody tr td:nth-child(8)")
    values = [float(v) for v in cells.evaluate_all("all => all.map(c => c.dataset.v)")]
    assert values == sorted(values, reverse=True)
    head = page.locator("#all th", has=page.get_by_role("button", name="requests", exact=True))
    expect(head).to_have_attribute("aria-sort", "descending")


def test_every_control_has_a_name_and_every_table_heads(page: Page, report: str) -> None:
    page.goto(report)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('main button, main a, main input')].filter(e =>
             !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)).length"""
    )
    assert nameless == 0
    headless = page.evaluate(
        """() => [...document.querySelectorAll('table')].filter(t =>
             !t.querySelector('thead th[scope=col]')).length"""
    )
    assert headless == 0


def test_text_keeps_its_contrast_in_the_light_and_in_the_dark(
    browser: Browser, report: str
) -> None:
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_default_timeout(PATIENCE_MS)
        page.goto(report)
        ratios = page.evaluate(
            """() => {
              const root = getComputedStyle(document.documentElement);
              const read = name => root.getPropertyValue(name).trim()
                .match(/[0-9a-f]{2}/gi).map(h => parseInt(h, 16) / 255);
              const light = c => { const [r, g, b] = c.map(v => v <= 0.04045 ? v / 12.92
                : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
              const ratio = (a, b) => { const [x, y] = [light(read(a)), light(read(b))];
                return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05); };
              return ['--ink', '--soft', '--usage'].flatMap(t =>
                ['--paper', '--card'].map(g => ratio(t, g)));
            }"""
        )
        page.close()
        assert min(ratios) >= 4.5, (scheme, ratios)


def test_nothing_sticks_out_of_a_narrow_window(browser: Browser, report: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(report)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("[data-chart=overview]").scroll_into_view_if_needed()
    expect(page.locator("[data-chart=overview] .main-svg").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.close()


def test_a_phone_shows_all_there_is_of_a_quota_id(browser: Browser, report: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(report)
    row = page.locator("#all tbody tr").first
    cells = row.locator("th, td")
    assert cells.count() == 10
    edges = cells.evaluate_all("all => all.map(e => e.getBoundingClientRect().right)")
    assert max(edges) <= 390
    heads = page.locator("#all thead th").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect().right)"
    )
    assert max(heads) <= 390
    said = row.locator("td").evaluate_all(
        "all => all.map(e => getComputedStyle(e,'::before').content)"
    )
    assert all(text.strip('"') for text in said)
    # What is wider than the window says so at its edge.
    shadows = page.locator(".scroll").first.evaluate("e => getComputedStyle(e).backgroundImage")
    assert shadows.count("linear-gradient") == 4
    page.close()


@pytest.mark.parametrize(("width", "most"), [(1300, 22_000), (390, 26_000)])
def test_a_thousand_rows_are_folded_and_all_can_be_found(
    browser: Browser, large: str, width: int, most: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(large)
    shown = page.locator("#all tbody tr:not([hidden])")
    first = shown.count()
    assert first <= 50
    assert page.evaluate("document.documentElement.scrollHeight") < most
    more = page.locator("#all ~ button.more")
    more.click()
    expect(shown).to_have_count(11 * first)
    page.get_by_label("Find").fill("user777")
    expect(shown).to_have_count(1)
    expect(more).to_be_hidden()
    page.get_by_label("Find").fill("")
    expect(more).to_be_visible()
    page.close()


def test_produced_and_fetched_differ_in_hue_and_in_line(page: Page, report: str) -> None:
    page.goto(report)
    page.locator("[data-chart=overview]").scroll_into_view_if_needed()
    lines = page.locator("[data-chart=overview] .scatterlayer path.js-line")
    expect(lines).to_have_count(2)
    looks = lines.evaluate_all("all => all.map(e => [e.style.stroke, e.style.strokeDasharray])")
    hues = []
    for stroke, _ in looks:
        r, g, b = (int(n) / 255 for n in re.findall(r"\d+", stroke)[:3])
        hues.append(colorsys.rgb_to_hls(r, g, b)[0] * 360)
    assert abs(hues[0] - hues[1]) > 50
    assert bool(looks[0][1].strip("0px")) != bool(looks[1][1].strip("0px"))


def test_on_paper_charts_are_drawn_and_the_contents_left_out(
    page: Page, report: str, tmp_path: Path
) -> None:
    page.goto(report)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert drawn(page) == page.locator("main .plot").count()
    expect(page.locator("nav.toc")).to_be_hidden()
    expect(page.locator("main details table").first).to_be_visible()
    page.pdf(path=tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").stat().st_size > 50_000
