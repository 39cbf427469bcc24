"""Chromium, driven by Playwright, and a server."""

import os
import shutil
from contextlib import contextmanager

import pytest

from serve.running import run_server

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
    """Address of a server with the shipped model snli."""
    with run_server("snli") as (url, _):
        yield url


@pytest.fixture
def open_page(browser):
    """Open pages; errors in the console fail the test, unless they are expected."""

    @contextmanager
    def open_url(url, expected=(), **settings):
        settings = {"viewport": {"width": 1200, "height": 900}, **settings}
        context = browser.new_context(accept_downloads=True, **settings)
        page = context.new_page()
        errors = []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", lambda dialog: errors.append(dialog.message))
        page.goto(url)
        yield page
        context.close()
        assert [error for error in errors if not any(part in error for part in expected)] == []

    return open_url
