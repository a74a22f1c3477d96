"""The site in a real browser: Chromium without a window, on a phone in the dark and on a desk."""
import functools
import http.server
import os
import shutil
import threading

import pytest

playwright = pytest.importorskip(
    "playwright.sync_api", reason="the extra `browser` (Playwright, axe) is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
QUIET = ("--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
         "--disable-background-networking --disable-component-update").split()
ZERO = """[...document.querySelectorAll('main math')].filter(formula => {
    const box = formula.getBoundingClientRect(); return !(box.width > 0 && box.height > 0)
}).map(formula => formula.getAttribute('alttext'))"""
PREVIEWS = "for (const p of document.querySelectorAll('.preview')) {}"
TOO_WIDE = """[...document.querySelectorAll('main *')].filter(element =>
    element.getBoundingClientRect().right > innerWidth + 1 &&
    !element.closest('.wide, pre, .formula')
).map(element => element.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def address(site):
    """The site, served on this machine."""
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *a: None})
    with http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="module", params=[(390, "dark"), (1280, "light")],
                ids=["phone-dark", "desk-light"])
def page(request):
    """A tab, and the list of what went wrong in it."""
    width, scheme = request.param
    with playwright.sync_playwright() as start:
        browser = start.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        tab = browser.new_context(viewport={"width": width, "height": 844},
                                  color_scheme=scheme).new_page()
        tab.wrong = []
        tab.on("console", lambda message: tab.wrong.append(message.text))
        tab.on("pageerror", lambda error: tab.wrong.append(str(error)))
        tab.on("requestfailed", lambda asked: tab.wrong.append(f"failed: {asked.url}"))
        tab.on("response", lambda answer: answer.status < 400 or tab.wrong.append(answer.url))
        yield tab
        browser.close()


def test_every_page(page, address, site):
    """No error, no failed request, no formula without size, no sideways scroll, and nothing that
    axe finds wrong (names, order, contrast, focus).
    """
    names = sorted(path.name for path in site.glob("*.html")) + ["source/primal.py.html"]
    assert len(names) > 15
    for name in names:
        page.goto(f"{address}/{name}", wait_until="load")
        page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
        page.evaluate("for (const img of document.images) img.loading = 'eager'")
        page.wait_for_function("[...document.images].every(img => img.complete)")
        assert page.wrong == [], name
        assert page.evaluate("[...document.images].every(img => img.naturalWidth > 0)"), name
        page.evaluate(PREVIEWS.format("p.popover = 'manual', p.showPopover()"))
        assert page.evaluate(ZERO) == [], name
        page.evaluate(PREVIEWS.format("p.hidePopover(), p.popover = 'auto'"))
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), \
            (name, page.evaluate(TOO_WIDE)[:3])
        found = axe.Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        assert [(x["id"], x["nodes"][0]["html"]) for x in found] == [], name


def test_the_font_of_mathematics_is_there(page, address):
    page.goto(f"{address}/03_from_dual_to_primal.html", wait_until="load")
    loaded = "document.fonts.ready.then(() => [...document.fonts].map(font => font.status))"
    assert page.evaluate(loaded) == ["loaded"]


def test_the_keyboard_is_enough(page, address):
    """The first Tab offers to skip to the text; Enter opens a folded solution."""
    page.goto(f"{address}/03_from_dual_to_primal.html", wait_until="load")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    page.keyboard.press("Enter")
    assert page.url.endswith("#main")
    page.locator("main summary").first.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector('main details').open")


def test_a_tag_is_previewed_in_place(page, address):
    """Press a tag: what it says stands on the page, and Escape takes it away; without a script."""
    page.goto(f"{address}/03_from_dual_to_primal.html", wait_until="load")
    tag, shown = page.locator("main button").first, page.locator("main .preview").first
    assert not shown.is_visible() and tag.inner_text() == "K.12"        # beside its formula
    tag.click()
    box = shown.bounding_box()
    assert 0 <= box["x"] and box["x"] + box["width"] <= page.evaluate("innerWidth")
    assert shown.is_visible() and shown.locator("a").get_attribute("href").startswith("equations")
    page.keyboard.press("Escape")
    assert not shown.is_visible() and page.url.endswith("primal.html")


def test_the_sidebar_stays_in_view(page, address):
    """On a desk; on a phone it is folded at the top. Prose has lines of 42rem at most."""
    page.goto(f"{address}/03_from_dual_to_primal.html", wait_until="load")
    desk = page.evaluate("innerWidth") > 1000
    page.evaluate("scrollTo(0, 3000)")
    assert page.locator(".side").is_visible() == desk
    assert page.locator("header summary").is_visible() != desk
    if desk:
        assert page.evaluate("document.querySelector('.side').getBoundingClientRect().top") == 0
    assert page.evaluate("Math.max(...[...document.querySelectorAll('main p')].map("
                         "p => p.getBoundingClientRect().width))") <= 42 * 16


def test_dark_is_dark(page, address):
    page.goto(f"{address}/index.html", wait_until="load")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert ground == ("rgb(23, 25, 28)" if dark else "rgb(255, 255, 255)")


def test_a_broken_page_is_seen(page, address, site, tmp_path):
    """The test itself: an empty formula, a missing picture and a wide word are all noticed."""
    bad = site / "broken.html"
    bad.write_text('<!doctype html><html lang="en"><title>x</title><main><math alttext="x"></math>'
                   '<img src="none.svg" alt="x"><div style="width: 3000px">x</div></main>')
    try:
        page.goto(f"{address}/broken.html", wait_until="load")
        assert any("none.svg" in text for text in page.wrong)
        assert page.evaluate(ZERO) == ["x"] and page.evaluate(TOO_WIDE)
        assert not page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    finally:
        bad.unlink()
        page.wrong.clear()
