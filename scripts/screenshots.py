"""Makes the pictures of the documentation, docs/images/dashboard.png and status.png: screenshots.py [--seconds N].

Two replicas of the service work for a while, as `screenshots_traffic` says. The status page is what a browser shows of
it. The dashboard is no screenshot of Grafana: a Prometheus scrapes the services and answers the queries of
deploy/grafana.json, and matplotlib draws the answers in the panels' places. Needs the extra ``dev``, and prometheus and
chromium on the path.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from screenshots_panels import draw, prometheus, query  # noqa: E402
from screenshots_traffic import Traffic, ask, stage  # noqa: E402

IMAGES = ROOT / "docs" / "images"
LARGEST = 200_000  # bytes of a picture
BROWSER = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync "
    "--no-first-run --disable-quic"
).split()
TITLE = (
    "deploy/grafana.json, drawn without Grafana by scripts/screenshots.py: two replicas asked for {minutes:.0f} "
    "minutes, two FakeEngines (no model), of which one is emptied after two thirds of the time"
)


def main() -> None:
    """Work for a while, and write both pictures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1200, metavar="N", help="of traffic (default: %(default)g)")
    parser.add_argument("--out", type=Path, default=IMAGES, metavar="FOLDER", help="(default: docs/images)")
    options = parser.parse_args()
    for program in ("prometheus", "chromium"):
        if shutil.which(program) is None:
            raise SystemExit(f"{program} is not on the path; on Debian: apt install prometheus chromium")
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with stage(folder, options.seconds + 300) as on:
            traffic = Traffic(on, options.seconds)
            instances = {f"index-{number}:8765": address for number, address in enumerate(on.services)}
            with prometheus(folder, instances) as server:
                start = time.time()
                traffic.run()
                end = time.time()
                board = json.loads((ROOT / "deploy" / "grafana.json").read_text(encoding="utf-8"))
                title = TITLE.format(minutes=options.seconds / 60)
                answers = partial(query, server, start=start, end=end)
                figure = draw(board, answers, end - start, title)
                with io.BytesIO() as drawn:
                    figure.savefig(drawn, dpi=100, format="png")
                    save(drawn.getvalue(), options.out / "dashboard.png")
            save(photographed(on.services[0]), options.out / "status.png")
            print(json.dumps(ask(on.services[0], "GET", "/v1/stats"), indent=1))


def photographed(address: str, width: int = 1100) -> bytes:
    """A page as Chromium shows it, the whole of it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=BROWSER)
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme="light")
        page.goto(address, wait_until="networkidle")
        picture = page.screenshot(full_page=True)
        browser.close()
        return picture


def save(picture: bytes, path: Path) -> None:
    """Write a PNG with as many colours as fit into `LARGEST`.

    Raises:
        SystemExit: it does not fit.
    """
    with Image.open(io.BytesIO(picture)) as image:
        plain = image.convert("RGB")
    for colours in (256, 128, 64, 32):
        plain.quantize(colours).save(path, optimize=True)
        if path.stat().st_size < LARGEST:
            return
    raise SystemExit(f"{path} is {path.stat().st_size:,} bytes, more than {LARGEST:,}")


if __name__ == "__main__":
    main()
