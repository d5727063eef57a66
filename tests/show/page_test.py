#!/usr/bin/env python3
"""The page of `trireme show --html` in headless Chromium: play, pause, step, keys, no script error.

  page_test.py TRIREME CHROMIUM CHROMEDRIVER

Speaks WebDriver (W3C) with chromedriver over HTTP on a port that the system chose.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One chromedriver and one headless window."""

    def __init__(self, chromium, driver, profile):
        # It takes any IPv4 port and then wants the same IPv6 port, which another program may use.
        for _ in range(10):
            self.process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True)
            said = ""
            for line in self.process.stdout:
                said += line
                match = re.search(r"started successfully on port (\d+)", line)
                if match:
                    break
            else:
                self.process.wait()
                continue
            break
        else:
            sys.exit(f"chromedriver did not start: {said}")
        self.url = f"http://127.0.0.1:{match[1]}/session"
        options = {"binary": chromium, "args": ["--headless=new", "--no-sandbox", "--disable-gpu",
                                                "--disable-dev-shm-usage", f"--user-data-dir={profile}"]}
        session = self.call("", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"}}}})
        self.url += "/" + session["sessionId"]

    def call(self, path, data=None, method=None):
        request = urllib.request.Request(self.url + path, method=method,
                                         data=None if data is None else json.dumps(data).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def script(self, text):
        return self.call("/execute/sync", {"script": "return " + text, "args": []})

    def click(self, element_id):
        element = self.call("/element", {"using": "css selector", "value": "#" + element_id})[ELEMENT]
        self.call(f"/element/{element}/click", {})

    def press(self, key):
        body = self.call("/element", {"using": "css selector", "value": "body"})[ELEMENT]
        self.call(f"/element/{body}/value", {"text": key})

    def close(self):
        try:
            self.call("", method="DELETE")
        finally:
            self.process.terminate()
            self.process.wait()


def expect(condition, what):
    if not condition:
        sys.exit(f"page: {what}")


def shown(browser):
    """The titles of the frames that can be seen."""
    return browser.script("[...document.querySelectorAll('.frame')].filter(f => f.offsetHeight > 0)"
                          ".map(f => f.querySelector('title').textContent)")


def position(browser):
    """What the page says of where it is."""
    return browser.script("document.getElementById('count').textContent + ': ' + "
                          "document.getElementById('where').textContent")


def prefer(browser, scheme):
    browser.call("/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {
        "features": [{"name": "prefers-color-scheme", "value": scheme}]}})


def check_dark(browser):
    """The colours of the paper, of a label and of a cell in either scheme."""
    colours = ("[getComputedStyle(document.body).backgroundColor, "
               "getComputedStyle(document.querySelector('.frame:not([hidden]) text')).fill, "
               "getComputedStyle(document.querySelector('.symbols rect')).fill]")
    prefer(browser, "light")
    light = browser.script(colours)
    expect(light == ["rgb(255, 255, 255)", "rgb(51, 51, 51)", "rgb(255, 255, 255)"],
           f"has the colours {light}")
    prefer(browser, "dark")
    dark = browser.script(colours)
    expect(dark[0] == "rgb(28, 28, 28)" and dark[2] == "rgb(28, 28, 28)",
           f"is not dark where that is preferred: {dark}")
    expect(all(int(part) > 180 for part in re.findall(r"\d+", dark[1])), f"has labels in {dark[1]}")
    prefer(browser, "light")


def check(browser, page):
    browser.call("/url", {"url": page.as_uri()})
    expect(shown(browser) == ["before"], "does not begin before the first round")
    expect(position(browser) == "round 0 of 6: Before the first round: what each rank brings.",
           f"says that it is at {position(browser)}")
    check_dark(browser)
    browser.click("step")
    expect(position(browser).startswith("round 1 of 6: Rank 0 sends chunk "),
           f"says that it is at {position(browser)}")
    browser.click("step")
    expect(shown(browser) == ["round 2 of 6"], "Step twice is not round 2")
    browser.click("back")
    expect(shown(browser) == ["round 1 of 6"], "Back is not round 1")
    browser.press("\ue014")   # arrow right
    expect(shown(browser) == ["round 2 of 6"], "the right arrow is not Step")
    browser.click("play")
    expect(browser.script("document.body.dataset.playing") == "yes", "Play does not play")
    deadline = time.monotonic() + 20
    while shown(browser) != ["round 3 of 6"] and time.monotonic() < deadline:
        time.sleep(0.1)
    browser.click("play")     # now Pause
    expect(browser.script("document.body.dataset.playing") == "no", "Pause does not pause")
    paused = shown(browser)
    time.sleep(1.5)
    expect(shown(browser) == paused, "goes on though paused")
    browser.click("play")
    while browser.script("document.body.dataset.playing") == "yes" and time.monotonic() < deadline:
        time.sleep(0.1)
    expect(shown(browser) == ["round 6 of 6"], "does not play to the end")
    cells = browser.script("[...document.querySelectorAll('.frame:not([hidden]) use')]"
                           ".map(use => document.querySelector(use.getAttribute('href')))"
                           ".filter(symbol => symbol.textContent.trim() === '0+1+2+3').length")
    expect(cells == 16, f"{cells} of 16 cells are complete in the end")
    overflow = browser.script("document.documentElement.scrollWidth > window.innerWidth")
    expect(not overflow, "is wider than its window")
    errors = browser.call("/se/log", {"type": "browser"})
    expect(not errors, f"the console says {errors}")


def passes(browser):
    """The passes that can be seen, in order of the document."""
    return browser.script("[...document.querySelectorAll('[data-since]')]"
                          ".filter(g => getComputedStyle(g).visibility === 'visible')"
                          ".map(g => g.querySelector('text').textContent)")


def check_schedule(browser, page):
    browser.call("/url", {"url": page.as_uri()})
    expect(passes(browser) == ["F0.0"], f"begins with {passes(browser)}")
    expect(position(browser).startswith("moment 1 of 10: time 0: rank 0 F0.0, rank 1 idle"),
           f"says that it is at {position(browser)}")
    browser.click("step")
    expect(passes(browser) == ["F0.0", "F0.1", "F1.0"], f"Step shows {passes(browser)}")
    browser.press("\ue012")   # arrow left
    expect(passes(browser) == ["F0.0"], "the left arrow is not Back")
    lines = browser.script("[...document.querySelectorAll('[data-at]')]"
                           ".filter(g => getComputedStyle(g).visibility === 'visible').length")
    expect(lines == 1, f"{lines} lines of the time are seen")
    browser.click("play")
    deadline = time.monotonic() + 30
    while browser.script("document.body.dataset.playing") == "yes" and time.monotonic() < deadline:
        time.sleep(0.1)
    expect(len(passes(browser)) == 2 * 2 * 3, f"{len(passes(browser))} of 12 passes in the end")
    errors = browser.call("/se/log", {"type": "browser"})
    expect(not errors, f"the console says {errors}")


def main():
    trireme, chromium, driver = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "ring.html"
        subprocess.run([trireme, "show", "all-reduce", "ring", "--ranks", "4", "--html", str(page)],
                       check=True)
        schedule = pathlib.Path(folder) / "1f1b.html"
        subprocess.run([trireme, "show", "schedule", "1f1b", "--stages", "2", "--microbatches", "3",
                        "--html", str(schedule)], check=True)
        browser = Browser(chromium, driver, folder + "/profile")
        try:
            check(browser, page)
            check_schedule(browser, schedule)
        finally:
            browser.close()
    print("page: plays, pauses, steps")


if __name__ == "__main__":
    main()
