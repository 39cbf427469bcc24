"""Debian's Chromium, driven by Playwright, and the real server behind the page."""

import os
import shutil
from contextlib import contextmanager

import pytest

from serve.running import running

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--disable-sync", "--no-first-run"]
CHROMIUM = os.environ.get("NSE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="session")
def browser():
    if not CHROMIUM:
        pytest.skip("there is no chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def address():
    """The shipped model of sentence pairs, served."""
    with running("snli") as (found, _):
        yield found


@pytest.fixture
def opened(browser):
    """Opens pages; whatever one of them complains about fails the test, unless it was expected."""

    @contextmanager
    def open_page(url, expected=(), **settings):
        settings = {"viewport": {"width": 1200, "height": 900}, **settings}
        context = browser.new_context(accept_downloads=True, **settings)
        page = context.new_page()
        complaints = []
        page.on("console", lambda each: complaints.append(each.text) if each.type == "error" else None)
        page.on("pageerror", lambda each: complaints.append(str(each)))
        page.on("dialog", lambda each: complaints.append(each.message))
        page.goto(url)
        yield page
        context.close()
        assert [each for each in complaints if not any(part in each for part in expected)] == []

    return open_page
