"""A headless Chromium that returns a page's contents after the page's scripts have run, and takes
screenshots.

It is controlled with the DevTools protocol over a pipe, so no driver or package is needed.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
]


@contextmanager
def browser(program: str) -> Iterator[Page]:
    """Start the browser, and stop it when the block ends."""
    to_browser, write = os.pipe()
    read, from_browser = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The browser reads commands from file descriptor 3, and writes its responses to 4.
        start = [
            "bash",
            "-c",
            f'exec "$@" 3<&{to_browser} 4>&{from_browser}',
            "bash",
            program,
            *FLAGS,
        ]
        start += ["--remote-debugging-pipe", f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            start, pass_fds=(to_browser, from_browser), stderr=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(from_browser)
        try:
            yield Page(read, write)
        finally:
            process.kill()
            process.wait()
            os.close(read)
            os.close(write)


class Page:
    """The browser's only page."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write, self._unread, self._number = read, write, b"", 0
        self.reader()

    def reader(
        self, width: int = 1280, height: int = 900, scheme: str = "light", scale: float = 1
    ) -> None:
        """Start a fresh session with the given window size and color scheme."""
        self._session: dict[str, str] = {}
        context = self.ask("Target.createBrowserContext")["browserContextId"]
        target = self.ask("Target.createTarget", url="about:blank", browserContextId=context)[
            "targetId"
        ]
        self._session = {
            "sessionId": self.ask("Target.attachToTarget", targetId=target, flatten=True)[
                "sessionId"
            ]
        }
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=scale, mobile=width < 600,
        )  # fmt: skip
        self.ask(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )

    def ask(self, method: str, **params: object) -> dict[str, Any]:
        """Send a command to the browser and return its response."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": params, **self._session}
        os.write(self._write, json.dumps(command).encode() + b"\0")
        while True:
            line, end, rest = self._unread.partition(b"\0")
            if not end:
                if not (more := os.read(self._read, 1 << 16)):
                    raise RuntimeError("the browser has exited")
                self._unread += more
                continue
            self._unread = rest
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return dict(answer["result"])

    def open(self, url: str) -> None:
        """Navigate to a page."""
        self.ask("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """Evaluate a JavaScript expression and return its value."""
        answer = self.ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        return answer["result"].get("value")

    def until(self, script: str, seconds: float = 30) -> Any:
        """Wait until a JavaScript expression is truthy and return its value."""
        end = time.monotonic() + seconds
        while not (value := self.run(script)):
            if time.monotonic() > end:
                raise TimeoutError(script)
            time.sleep(0.05)
        return value

    def picture(self, longest: int) -> bytes:
        """Return a screenshot of the page as a PNG, up to a maximum height in pixels."""
        width, height = self.run("[innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, longest), "scale": 1}
        shown = self.ask(
            "Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip
        )
        return base64.b64decode(shown["data"])
