"""Chromium without a window, driven by chromedriver over HTTP: pages as people see them.

``ci/browser.sh`` installs both.  Nothing of Python's is needed for it.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError

DRIVER = shutil.which("chromedriver")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = "NO CHROMIUM: the page is not looked at; ci/browser.sh installs it"
START_S = 60


def is_there() -> bool:
    return DRIVER is not None and CHROMIUM is not None


class Browser:
    """One page.  A context manager."""

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        assert DRIVER is not None
        self._folder = tempfile.mkdtemp(prefix="kudu-core-browser-")
        self._driver = subprocess.Popen(
            [DRIVER, "--port=0", "--log-level=WARNING"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "HOME": self._folder, "TMPDIR": self._folder},
        )
        self._session = ""
        try:
            assert self._driver.stdout is not None
            told = next(line for line in self._driver.stdout if "successfully on port" in line)
            self._url = f"http://127.0.0.1:{int(told.rstrip('. ' + chr(10)).rpartition(' ')[2])}"
            flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
            flags += [f"--user-data-dir={self._folder}/profile", f"--window-size={width},{height}"]
            wanted = {"goog:chromeOptions": {"binary": CHROMIUM, "args": flags}}
            wanted |= {"goog:loggingPrefs": {"browser": "ALL"}}
            made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            self._session = f"/session/{made['sessionId']}"
        except BaseException:
            self.close()
            raise

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=START_S) as answer:
                return json.load(answer)["value"]
        except HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.read()[:500]!r}") from error

    def open(self, url: str | Path) -> None:
        """A page by its URL, or in a file."""
        told = url.as_uri() if isinstance(url, Path) else url
        self._ask("POST", f"{self._session}/url", {"url": told})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns."""
        return self._ask("POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def click(self, selector: str) -> None:
        self.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        found = self.find(selector)
        self._ask("POST", f"{self._session}/element/{found}/click", {})

    def type(self, selector: str, text: str) -> None:
        found = self.find(selector)
        self._ask("POST", f"{self._session}/element/{found}/value", {"text": text})

    def find(self, selector: str) -> str:
        body = {"using": "css selector", "value": selector}
        found: dict[str, str] = self._ask("POST", f"{self._session}/element", body)
        return next(iter(found.values()))

    def count(self, selector: str) -> int:
        return int(self.run("return document.querySelectorAll(arguments[0]).length", selector))

    def console(self) -> list[str]:
        """What the page, or the browser about it, has said since the last call."""
        told = self._ask("POST", f"{self._session}/se/log", {"type": "browser"})
        return [f"{entry['level']}: {entry['message']}" for entry in told]

    def prefer(self, scheme: str) -> None:
        """The colours that the system asks for: "light" or "dark"."""
        self._devtools(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )

    def picture(self, path: Path) -> None:
        """The whole page, as a PNG."""
        size = self.run("var d = document.documentElement; return [d.scrollWidth, d.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": min(size[1], 12_000), "scale": 1}
        taken = self._devtools("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        path.write_bytes(base64.b64decode(taken["data"]))

    def _devtools(self, command: str, parameters: dict[str, Any]) -> Any:
        body = {"cmd": command, "params": parameters}
        return self._ask("POST", f"{self._session}/goog/cdp/execute", body)

    def close(self) -> None:
        try:
            if self._session:
                self._ask("DELETE", self._session)
        finally:
            self._driver.terminate()
            self._driver.wait(START_S)
            if self._driver.stdout is not None:
                self._driver.stdout.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
