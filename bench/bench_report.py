"""
How long a report of 1,000 tenants takes to write and to open: bench/report.md.

    python bench/bench_report.py [--write]
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "unit" / "report"))

from made_tables import everything  # noqa: E402

from headgate.pipeline.report import write_report  # noqa: E402

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
TENANTS, SECONDS, OPENS = 1_000, 300, 7
# A chart is there when the frame after the one that drew it begins.
# What to do fills the first window: charts are looked at by scrolling.
LOOK = """() => { window.looked = performance.now();
  document.querySelector('[data-chart=overview]').scrollIntoView({ behavior: 'instant' }); }"""
NOTE = """new MutationObserver((_, watching) => {
  if (!document.querySelector('[data-drawn]')) return;
  watching.disconnect();
  requestAnimationFrame(() => requestAnimationFrame(() => { window.ready = performance.now(); }));
}).observe(document, { subtree: true, attributeFilter: ['data-drawn'] });"""
READ = """() => { const t = performance.timing;
  const paint = performance.getEntriesByType('paint');
  return [paint.find(p => p.name === 'first-contentful-paint').startTime,
          t.domContentLoadedEventEnd - t.navigationStart, window.ready - window.looked]; }"""


def main() -> int:
    """Measure; print, and with --write keep, the figures."""
    chromium = os.environ.get("HEADGATE_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        print("no Chromium on PATH (make browser installs one): nothing is measured")
        return 0
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        place = everything(Path(folder), TENANTS, SECONDS)
        began = time.perf_counter()
        written = write_report(place, place / "report.html", generated_ms=0)
        wrote = time.perf_counter() - began
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        seen = []
        for _ in range(OPENS):
            page = browser.new_page()
            page.add_init_script(NOTE)
            page.goto(written.path.as_uri())
            page.evaluate(LOOK)
            page.wait_for_function("window.ready")
            seen.append(page.evaluate(READ))
            page.close()
        browser.close()
    paint, parsed, ready = (statistics.median(column) for column in zip(*seen, strict=True))
    date = time.strftime("%Y-%m-%d", time.gmtime())
    text = f"""# A report of {TENANTS:,} tenants, opened

{date}, by `python bench/bench_report.py --write`: medians of {OPENS} opens in headless Chromium,
on {os.cpu_count()} cores; load average {before:.1f} before, {os.getloadavg()[0]:.1f} after.

| | |
|---|---|
| usage rows read | {TENANTS * SECONDS:,} at most |
| written in | {wrote:.2f} s |
| size | {written.size / 1e6:.1f} MB, of which plotly 4.8 |
| first paint | {paint:.0f} ms |
| text and tables laid out (DOMContentLoaded) | {parsed:.0f} ms |
| from scrolling to the first chart until it is there | {ready:.0f} ms |
"""
    print(text)
    if "--write" in sys.argv:
        (ROOT / "bench" / "report.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
