"""The status page in a real browser: headless Chromium, by playwright. Skipped where either is missing."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from contextpilot_rag.service.keyfile import TenantEntry, changing, new_key
from tests.service.harness import serving
from tests.service.test_page import World

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the path")

ARGUMENTS = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync "
    "--no-first-run --disable-quic"
).split()
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


@pytest.fixture(scope="module")
def service():
    """A service with traffic."""
    with serving() as running:
        for number in range(40):
            ids = [f"doc {(number * 3 + place) % 12}" for place in range(6)]
            body = {
                "blocks": [{"id": HOSTILE if name == "doc 1" else name, "tokens": 120} for name in ids],
                "namespace": {"model": "llama-3.1-8b-instruct", "corpus": HOSTILE if number % 2 else "handbook"},
                "engine": f"vllm-{number % 3}" if number % 5 else HOSTILE,
                "budget": {"min_gain": 0},
            }
            answer = running.ask("POST", "/v1/align", body).json()
            usage = {"prompt_tokens": 800, "cached_tokens": answer["predicted_cached_tokens"]}
            running.ask("POST", "/v1/observe", {"ticket": answer["ticket"], "usage": usage})
        running.ask("POST", "/v1/align", b"no json")
        yield running


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield running
        running.close()


class Seen:
    """The page, opened, and all that went on meanwhile."""

    def __init__(self, browser, address, width, scheme="light"):
        self.context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.requests, self.complaints = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.response = self.page.goto(address, wait_until="networkidle")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.context.close()


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_it_shows_real_traffic_asks_for_nothing_else_and_fits(browser, service, width):
    with Seen(browser, service.address, width) as seen:
        assert seen.response.status == 200
        assert [url for url in seen.requests if not url.startswith("data:")] == [f"{service.address}/"]
        assert seen.complaints == []
        text = seen.page.inner_text("main")
        assert "llama-3.1-8b-instruct · handbook" in text
        assert "vllm-0" in text
        assert "usage reports" in text
        assert "malformed" in text
        assert seen.page.inner_text(".big").rstrip("%").isdigit()
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        cut_off = seen.page.evaluate(
            "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
            ".map(e => e.tagName + ' ' + e.textContent.slice(0, 40))"
        )
        assert cut_off == []


def test_a_browser_shows_it_to_an_operator_who_gives_the_key_as_password(browser, tmp_path):
    key, entry = new_key()
    with changing(tmp_path / "keys.json", create=True) as content:
        content.tenants["ops"] = TenantEntry([entry], operator=True)
    with serving(keys=tmp_path / "keys.json") as service:
        for password, status in ((key, 200), (key[:-4] + "AAAA", 401)):
            context = browser.new_context(http_credentials={"username": "", "password": password})
            assert context.new_page().goto(service.address).status == status
            context.close()


def test_names_that_clients_chose_do_nothing(browser, service):
    with Seen(browser, service.address, 1280) as seen:
        assert HOSTILE[:20] in seen.page.inner_text("main")
        assert seen.page.title().endswith("contextpilot-rag")
        assert seen.page.locator("script").count() == 0
        assert seen.page.locator("main img").count() == 0


def test_a_busy_hour_fits_a_narrow_screen(browser):
    world = World()
    for number in range(1_730):
        world.align(f"{number % 7}{number % 3 + 7}")
    context = browser.new_context(viewport={"width": 360, "height": 800})
    shown = context.new_page()
    with ThreadPoolExecutor() as elsewhere:  # playwright has an event loop in this thread
        shown.set_content(elsewhere.submit(world.page).result())
    over = shown.evaluate("""() => {
        const card = document.querySelector('.hero');
        const edge = card.getBoundingClientRect().right - parseFloat(getComputedStyle(card).paddingRight);
        return [...card.querySelectorAll('.x span')].map(e => e.getBoundingClientRect().right - edge);
    }""")
    assert "1.73 k/min" in shown.inner_html(".x")
    assert max(over) < 1
    context.close()


def test_light_and_dark_differ(browser, service):
    grounds, pictures = [], []
    for scheme in ("light", "dark"):
        with Seen(browser, service.address, 360, scheme) as seen:
            grounds.append(seen.page.evaluate("getComputedStyle(document.body).backgroundColor"))
            pictures.append(seen.page.screenshot())
    assert grounds == ["rgb(247, 247, 244)", "rgb(15, 18, 20)"]
    assert pictures[0] != pictures[1]


def test_before_any_traffic_it_says_so(browser):
    with serving() as service, Seen(browser, service.address, 360) as seen:
        assert seen.complaints == []
        assert "No traffic" in seen.page.inner_text("main")
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_policy_holds_even_if_something_got_in(browser, service):
    with Seen(browser, service.address, 1280) as seen:
        seen.page.evaluate("""() => {
            const script = document.createElement('script'); script.textContent = "document.title = 'owned'";
            document.body.append(script);
            const image = document.createElement('img'); image.src = '/healthz'; document.body.append(image);
        }""")
        seen.page.wait_for_timeout(200)
        assert seen.page.title() != "owned"
        assert any("Content Security Policy" in complaint for complaint in seen.complaints)
        assert ("GET /healthz", "2xx") not in service.hub.metrics.responses, "the image was asked for"
