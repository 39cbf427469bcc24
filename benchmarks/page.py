"""Measure the size and the drawing time of the page, and take the screenshots of the documents.

    python benchmarks/page.py

Serves the shipped model snli, runs texts of several lengths in Chromium, and writes the drawing times that
the page reports. Needs playwright and chromium.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

import nse
from nse.files import write_text

ROOT = Path(__file__).parents[1]
RESULTS, IMAGES = ROOT / "benchmarks" / "results" / "page.json", ROOT / "docs" / "images"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
CHILD = "A little child sits quietly on a hand built rock wall in autumn"
PUPPIES = "Three puppies are in the tub being sprayed with water by the vet."
FORTY = (
    "A young man in a blue shirt and an old woman with a red umbrella wait for the bus near a small market "
    "in the middle of the city while two children play with a brown dog in the rain"
)
SIXTY = (
    f"{FORTY} and a tall man on a black horse watches them from the other side of the busy street at night"
)
TIMES = 21


def open_page(browser: Browser, address: str, width: int = 1200, scheme: str = "light") -> Page:
    """Open the page in a new context."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto(address)
    page.locator("#examples button").first.wait_for()
    return page


def run_model(page: Page, *texts: str) -> float:
    """Run the model on texts; return the drawing time in milliseconds that the page reports."""
    for number, text in enumerate(texts):
        page.locator("textarea").nth(number).fill(text)
    page.evaluate("delete document.documentElement.dataset.drawn")
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator("html[data-drawn]").wait_for()
    return float(page.evaluate("document.documentElement.dataset.drawn"))


def measure_bytes(browser: Browser, address: str) -> dict[str, int]:
    """Return the size of every file that the page loads, by path."""
    sizes: dict[str, int] = {}
    context = browser.new_context()
    page = context.new_page()
    page.on("response", lambda response: sizes.update({response.url: len(response.body())}))
    page.goto(address)
    page.locator("#examples button").first.wait_for()
    context.close()
    return {url.removeprefix(address) or "/": size for url, size in sizes.items() if url.startswith(address)}


def measure_page(browser: Browser, address: str) -> dict[str, Any]:
    """Measure sizes, and drawing times of short and long texts."""
    rows = []
    for text in (CHILD, FORTY, SIXTY):
        page = open_page(browser, address)
        times = [run_model(page, text, "People wait.") for _ in range(TIMES)]
        words = page.locator("#graph .node").count()
        summary = {"ms_first": times[0], "ms_median": median(times), "ms_most": max(times), "times": TIMES}
        rows.append({"words": words, **summary})
        page.context.close()
    sizes = measure_bytes(browser, address)
    return {"bytes": sizes, "bytes_in_all": sum(sizes.values()), "drawn": rows, "browser": browser.version}


def take_screenshots(browser: Browser, address: str) -> None:
    """Take the screenshots of the documents."""
    page = open_page(browser, address)
    run_model(page, CHILD, "A child is sitting outdoors.")
    page.screenshot(path=IMAGES / "page-light.png", full_page=True)
    page = open_page(browser, address, scheme="dark")
    run_model(page, PUPPIES, "The dogs are being washed.")
    page.get_by_role("button", name="Go to the start").click()
    for _ in range(9):
        page.keyboard.press("ArrowRight")
    page.locator("#slots button", has_text=re.compile("^sprayed$")).click()
    page.screenshot(path=IMAGES / "page-dark.png", full_page=True)
    page = open_page(browser, address, width=375)
    run_model(page, CHILD, "A child is sitting outdoors.")
    page.screenshot(path=IMAGES / "page-phone.png", full_page=True)
    page = open_page(browser, address)
    run_model(page, SIXTY, "People wait.")
    page.locator("#graph").screenshot(path=IMAGES / "page-sixty-words.png")


def main() -> None:
    """Serve the model, measure and take the screenshots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--chromium", default=os.environ.get("NSE_CHROMIUM") or shutil.which("chromium"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    command = [sys.executable, "-m", "nse", "serve", "snli", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = re.findall(r"http://\S+", server.stdout.readline())[0]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=args.chromium, args=FLAGS)
            result = {**measure_page(browser, address), "cores": os.cpu_count(), "nse": nse.__version__}
            take_screenshots(browser, address)
            browser.close()
    finally:
        server.terminate()
    write_text(args.out, json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
