"""Chromium driven through its own debugging pipe: no driver, no port, no library."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--no-default-browser-check",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-default-apps", "--disable-dev-shm-usage", "--hide-scrollbars", "--mute-audio",
    "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream",  # a microphone that beeps
    "--remote-debugging-pipe",
)  # fmt: skip


def program() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One process; every page is a tab of its own."""

    def __init__(self) -> None:
        self.home = tempfile.mkdtemp(prefix="heedful-chromium-")
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()

        def wire() -> None:  # Chromium reads from descriptor 3 and writes to 4
            spare = [os.dup(theirs_in), os.dup(theirs_out)]
            os.dup2(spare[0], 3)
            os.dup2(spare[1], 4)

        self.process = subprocess.Popen(
            [str(program()), *FLAGS, f"--user-data-dir={self.home}", "about:blank"],
            preexec_fn=wire, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,  # noqa: PLW1509
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self.reader, self.writer = ours_in, ours_out
        self.waiting, self.number = b"", 0
        self.answers: dict[int, Any] = {}
        self.pages: dict[str, Page] = {}

    def send(self, method: str, session: str | None = None, **params: Any) -> Any:
        """Call a method of the protocol and wait for its answer."""
        self.number += 1
        number, message = self.number, {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        self.until(lambda: number in self.answers, f"an answer to {method}")
        answer = self.answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def until(self, done: Any, what: str, seconds: float = 60) -> None:
        """Read messages until something is the case."""
        end = time.monotonic() + seconds
        while not done():
            if not select.select([self.reader], [], [], max(0.0, min(0.05, end - time.monotonic())))[0]:
                if time.monotonic() > end:
                    raise TimeoutError(f"waited {seconds} s for {what}")
                continue
            self.waiting += os.read(self.reader, 1 << 20)
            *messages, self.waiting = self.waiting.split(b"\0")
            for message in messages:
                self._take(json.loads(message))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self.answers[message["id"]] = message
        elif message.get("sessionId") in self.pages:
            self.pages[message["sessionId"]].take(message["method"], message["params"])

    def open(self, path: Path, hash: str = "", width: int = 1280, height: int = 900, **media: str) -> Page:
        """Open a file in a new tab and wait until it is drawn."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        page.send("Performance.enable", timeDomain="threadTicks")
        page.resize(width, height)
        page.send(
            "Emulation.setEmulatedMedia", features=[{"name": n.replace("_", "-"), "value": v} for n, v in media.items()]
        )
        began = time.monotonic()
        page.send("Page.navigate", url=f"{path.resolve().as_uri()}{'#' + hash if hash else ''}")
        page.wait("document.documentElement?.dataset.ready === 'yes'")
        page.seconds = time.monotonic() - began
        return page

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.reader)
        os.close(self.writer)
        shutil.rmtree(self.home, ignore_errors=True)


class Page:
    """A tab: what it shows, what it complains of, what it asks for."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self.browser, self.session, self.target = browser, session, target
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.seconds = 0.0

    def send(self, method: str, **params: Any) -> Any:
        return self.browser.send(method, self.session, **params)

    def take(self, event: str, params: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"].get("exception", {}).get("description", "an exception"))
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([param.get("value") for param in params["args"]]))
        elif event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def run(self, script: str) -> Any:
        """The value of an expression; a promise is waited for."""
        result = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"].get("description", script))
        return result["result"].get("value")

    def wait(self, condition: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not self.run(condition):
            if time.monotonic() > end:
                raise TimeoutError(f"waited {seconds} s for {condition}")
            time.sleep(0.02)

    def settle(self) -> None:
        """Until what was asked for is drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def processor_seconds(self) -> float:
        """What the page has cost its thread so far, however busy the machine is."""
        metrics = self.send("Performance.getMetrics")["metrics"]
        return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))

    def resize(self, width: int, height: int) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def point(self, selector: str) -> None:
        """Move the pointer over the middle of an element."""
        x, y = self._middle(selector)
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def click(self, selector: str) -> None:
        x, y = self._middle(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def count(self, selector: str) -> int:
        return int(self.run(f"document.querySelectorAll({json.dumps(selector)}).length"))

    def colours(self, selector: str) -> int:
        """Different colours in a canvas: one or none means that nothing was drawn."""
        return int(
            self.run(
                f"""(() => {{ const c = document.querySelector({json.dumps(selector)});
                const copy = new OffscreenCanvas(c.width, c.height).getContext('2d', {{willReadFrequently: true}});
                copy.drawImage(c, 0, 0);
                const d = copy.getImageData(0, 0, c.width, c.height).data, seen = new Set();
                for (let i = 0; i < d.length; i += 4) seen.add((d[i] << 16) | (d[i + 1] << 8) | d[i + 2]);
                return seen.size; }})()"""
            )
        )

    def drawn(self, selector: str, seconds: float = 20) -> bool:
        """Whether something appears in a canvas before long."""
        end = time.monotonic() + seconds
        while self.colours(selector) <= 3:
            if time.monotonic() > end:
                return False
            self.settle()
        return True

    def _middle(self, selector: str) -> tuple[float, float]:
        box = self.run(
            f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            e.scrollIntoView({{ block: 'center' }});
            const b = e.getBoundingClientRect();
            return [b.left + b.width / 2, b.top + b.height / 2]; }})()"""
        )
        return box[0], box[1]

    def close(self) -> None:
        self.browser.send("Target.closeTarget", targetId=self.target)
        self.browser.pages.pop(self.session, None)
