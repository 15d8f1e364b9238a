# SPDX-License-Identifier: BSD-3-Clause
"""Check the built site: links, anchors, absence of external resources, and every page in Chromium.

Every page is opened in light mode, and the pages of SHOWN in dark mode too, at the sizes of a phone and a
desktop. Screenshots of the pages of SHOWN, and of the search, stay in screenshots/ of the site.

    python docs/site/check.py build/docs
"""

import functools
import html.parser
import http.server
import pathlib
import re
import shutil
import sys
import threading
import urllib.parse

from playwright.sync_api import sync_playwright

SHOWN = [
    "index",
    "README",
    "docs/which_call",
    "gallery",
    "figures",
    "docs/scan",
    "docs/python",
    "docs/cuda",
    "reference/cpp/index",
    "reference/cpp/linear_scans",
    "reference/cpp/views",
    "reference/python/index",
    "reference/python/scanrec.torch",
    "source/examples/index",
    "genindex",
    "CHANGELOG",
]
SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
LOADS = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "object": "data",
}
#: JavaScript that describes at most two elements beyond the right edge of the window. Elements inside one
#: that scrolls or clips are left out. The theme makes the whole article scroll; that does not count.
OVERFLOW = """room => {
  const scrolls = e => ["auto", "scroll", "hidden"].includes(getComputedStyle(e).overflowX);
  const within = e => {
    while ((e = e.parentElement) && !e.matches("article, footer")) if (scrolls(e)) return true;
    return false;
  };
  const wide = [...document.querySelectorAll("article *, footer *")]
    .filter(e => e.getBoundingClientRect().right > room + 1 && !within(e))
    .map(e => `${e.tagName}.${e.className}: ${e.textContent.trim().slice(0, 50)}`);
  if (!wide.length && document.documentElement.scrollWidth > room) wide.push("the page");
  return wide.slice(-2);
}"""


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        of = dict(attributes)
        self.ids |= {of[name] for name in ("id", "name") if of.get(name)}
        if tag == "a" and of.get("href"):
            self.links.append(of["href"])
        if of.get(LOADS.get(tag, "")) and of.get("rel") not in (
            "search",
            "next",
            "prev",
            "index",
            "canonical",
        ):
            self.loads.append(of[LOADS[tag]])


def is_foreign(address):
    return re.match(r"(?:[a-z]+:)?//", address) is not None


def check_files(site, complain):
    """Check links, anchors, and the addresses that pages, style sheets and SVG files load.

    Return the names of the pages.
    """
    pages = {p: Page(p.read_text(encoding="utf-8")) for p in site.rglob("*.html")}
    for path, page in pages.items():
        name = path.relative_to(site)
        for address in page.loads:
            if is_foreign(address):
                complain(f"{name}: loads {address} from another site")
            elif not address.startswith("data:") and not goal(site, path, address)[0].exists():
                complain(f"{name}: loads {address}, which does not exist")
        for address in page.links:
            if re.match(r"[a-z]+:", address):
                continue
            to, anchor = goal(site, path, address)
            if not to.exists():
                complain(f"{name}: links to {address}, which does not exist")
            elif anchor and to in pages and anchor not in pages[to].ids:
                complain(f"{name}: links to {address}, but the page has no such anchor")
    for path in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        for address in re.findall(
            r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", path.read_text(encoding="utf-8")
        ):
            if is_foreign("".join(address)):
                complain(f"{path.relative_to(site)}: loads {''.join(address)} from another site")
    return sorted(p.relative_to(site).with_suffix("").as_posix() for p in pages)


def goal(site, path, address):
    page, _, anchor = address.partition("#")
    page = urllib.parse.unquote(page.partition("?")[0])
    return ((path.parent / page).resolve() if page else path), urllib.parse.unquote(anchor)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


def open_pages(site, names, complain):
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = f"http://127.0.0.1:{server.server_port}"
    pictures = site / "screenshots"
    shutil.rmtree(pictures, ignore_errors=True)
    pictures.mkdir()
    found = shutil.which("chromium") or shutil.which(
        "google-chrome"
    )  # None: Playwright's own browser
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox"]
        )  # Chromium's sandbox does not work for root
        for size, (width, height) in SIZES.items():
            for scheme in ("light", "dark"):
                context = browser.new_context(
                    viewport={"width": width, "height": height},
                    color_scheme=scheme,
                    device_scale_factor=1,
                    has_touch=size == "phone",
                )
                tab = context.new_page()
                here = [""]
                tab.on(
                    "console",
                    lambda m, here=here: m.type == "error" and complain(f"{here[0]}: {m.text}"),
                )
                tab.on("pageerror", lambda e, here=here: complain(f"{here[0]}: {e}"))
                tab.on(
                    "request",
                    lambda r, here=here: (
                        r.url.startswith((home, "data:"))
                        or complain(f"{here[0]}: requests {r.url}")
                    ),
                )
                # Colours do not change widths, so dark mode opens only the pages of SHOWN.
                for name in names if scheme == "light" else SHOWN:
                    here[0] = f"{name}, {size}, {scheme}"
                    tab.goto(f"{home}/{name}.html", wait_until="load")
                    for wide in tab.evaluate(OVERFLOW, width):
                        complain(f"{here[0]}: wider than the window: {wide}")
                    if name in SHOWN:
                        stem = name.replace("/", "-")
                        tab.screenshot(
                            path=pictures / f"{stem}-{size}-{scheme}.png", full_page=False
                        )
                        if scheme == "light":
                            tab.screenshot(
                                path=pictures / f"{stem}-{size}-whole.png", full_page=True
                            )
                if size == "desktop":
                    search(tab, home, here, complain)
                    tab.screenshot(path=pictures / f"search-{size}-{scheme}.png")
                context.close()
        browser.close()
    server.shutdown()
    return len(list(pictures.iterdir()))


def search(tab, home, here, complain):
    """Check that the search finds a call in the references and in the documents."""
    here[0] = "search"
    tab.goto(f"{home}/search.html?q=linear_scan_vjp")
    tab.wait_for_selector("#search-results li")
    tab.wait_for_timeout(1500)
    found = " ".join(
        tab.locator("#search-results li a").evaluate_all("all => all.map(a => a.href)")
    )
    for wanted in ("reference/cpp/", "reference/python/", "docs/"):
        if wanted not in found:
            complain(f"search for linear_scan_vjp: nothing in {wanted}")


def main():
    site, problems = pathlib.Path(sys.argv[1]).resolve(), []

    def complain(text):
        problems.append(text)
        print(text)

    names = check_files(site, complain)
    missing = [name for name in SHOWN if name not in names]
    for name in missing:
        complain(f"{name}: this page does not exist")
    pictures = open_pages(site, names, complain) if not missing else 0
    print(f"{len(names)} pages, {pictures} screenshots in {site / 'screenshots'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
