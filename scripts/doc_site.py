"""
Build the documentation site into build/site: `make site`.

Sphinx reads the pages of docs/ as they are, and what else of this repository they link to. Its
packages, pinned in requirements/site.txt, go to build/site-packages and not to .venv. A warning is
an error. Then every link of the built pages is followed, but for those that leave the site, and no
page may load anything from elsewhere: the site works from a folder, without a network.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PACKAGES = ROOT / "build" / "site-packages"
SOURCE = ROOT / "build" / "site-source"
SITE = ROOT / "build" / "site"
REQUIREMENTS = ROOT / "requirements" / "site.txt"
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")
STARTED = time.monotonic()


def say(text: str) -> None:
    """Print a line with the seconds since the start."""
    print(f"[site {time.monotonic() - STARTED:4.0f} s] {text}", flush=True)


def install() -> None:
    """Fetch what builds the site, each package checked against its hashes, where it isn't there."""
    key = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    stamp = PACKAGES / "installed"
    if stamp.is_file() and stamp.read_text() == key:
        return
    shutil.rmtree(PACKAGES, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    pip += ["--quiet", "--progress-bar", "off", "--no-deps", "--require-hashes"]
    subprocess.run([*pip, "--target", PACKAGES, "-r", REQUIREMENTS], check=True)
    stamp.write_text(key)


def staged(path: Path) -> Path:
    """Return where a file of this repository is among the site's sources."""
    return SOURCE / path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT)


def with_links(page: Path, linked: list[Path]) -> str:
    """Return a page's text with links to where the site has their targets; note these targets."""

    def moved(link: re.Match[str]) -> str:
        target, _, anchor = link[2].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return link[0]
        path = (page.parent / target).resolve()
        linked.append(path)
        way = os.path.relpath(staged(path), staged(page).parent)
        return link[1] + way + ("#" + anchor if anchor else "") + link[3]

    return LINK.sub(moved, page.read_text(encoding="utf-8"))


def tables_of_contents(index: str) -> str:
    """Return the site's list of pages: a part for each heading of the index, in its order."""
    parts = []
    for section in index.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        found = re.findall(r"\[([^\]]+)\]\(([^)#:]+)\.md\)", text)
        pages = {page: " ".join(name.replace("`", "").split()) for name, page in found}
        named = [f"{name[0].upper()}{name[1:]} <{page}>" for page, name in pages.items()]
        parts += ["```{toctree}", ":hidden:", f":caption: {title}", "", *named, "```", ""]
    return "\n".join(parts)


def gather() -> None:
    """Copy the pages, what they show, and what they link to, to where Sphinx reads them."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    waiting = [path for path in DOCS.rglob("*") if path.is_file()]
    listed: list[Path] = []
    index = with_links(DOCS / "index.md", listed)
    taken = set(waiting)
    while waiting:
        path = waiting.pop()
        there = staged(path)
        there.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".md":
            shutil.copyfile(path, there)
            continue
        linked: list[Path] = []
        text = with_links(path, linked)
        if path not in listed:  # linked from another page only
            text = "---\norphan: true\n---\n\n" + text
        there.write_text(text, encoding="utf-8")
        waiting += [path for path in dict.fromkeys(linked) if path not in taken]
        taken |= set(linked)
    (SOURCE / "index.md").write_text(index + "\n" + tables_of_contents(index), encoding="utf-8")


def build() -> int:
    """Run Sphinx; return its exit status."""
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]
    command += ["--jobs", "2", "-c", DOCS / "site", "-d", ROOT / "build" / "site-doctrees"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(PACKAGES), str(ROOT / "src")))}
    return subprocess.run([*command, SOURCE, SITE], env=environment, check=False).returncode


class Page(HTMLParser):
    """What a built page links to, what it loads, and which anchors it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the attributes of a tag that name something."""
        given = {name: value for name, value in attrs if value}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        where = self.links if tag == "a" else self.loads
        where += [given[name] for name in ("href", "src") if name in given]


def faults() -> list[str]:
    """Follow the links of all built pages; return what doesn't lead anywhere or leaves the site."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in SITE.rglob("*.html")}
    found = []
    for path, page in pages.items():
        name = path.relative_to(SITE)
        found += [
            f"{name} loads {url} from elsewhere" for url in page.loads if urlsplit(url).netloc
        ]
        for url in (*page.links, *page.loads):
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[there].anchors if there in pages else None
            if not there.exists():
                found.append(f"{name} links to {url}, which isn't there")
            elif parts.fragment and anchors is not None and unquote(parts.fragment) not in anchors:
                found.append(f"{name} links to {url}, where there is no such anchor")
    say(f"{len(pages)} pages, {sum(len(page.links) for page in pages.values()):,} links")
    return found


def main() -> int:
    """Fetch, gather, build, check; 1 if something is wrong."""
    install()
    say("Sphinx and what it needs are there")
    gather()
    if build() != 0:
        print("error: Sphinx warned (see above)", file=sys.stderr)
        return 1
    found = faults()
    for fault in found:
        print(f"error: {fault}", file=sys.stderr)
    say(f"{SITE.relative_to(ROOT)}/index.html")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
