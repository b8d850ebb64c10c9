"""Uses the console in Firefox, over a server of its own, for what Chromium alone cannot show.

usage: firefox.py HOLDFAST DIRECTORY FIREFOX

DIRECTORY is for the database and the profile. HOLDFAST_CONSOLE_SHOTS names a folder for screenshots.
"""
import base64
import http.client
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta, timezone

BINARY, DIRECTORY, FIREFOX = sys.argv[1:4]
SHOTS = os.environ.get("HOLDFAST_CONSOLE_SHOTS")
ADMIN = "admin-secret-0123456789"
# On a machine that does much else, too, a page may take long.
PATIENCE = 60


class Redrawn(Exception):
    """The page has another element now."""


class Firefox:
    """A window of Firefox, driven by its protocol Marionette: JSON after its length, over TCP."""

    ELEMENT = "element-6066-11e4-a52e-4f735466cecf"

    def __init__(self):
        profile = pathlib.Path(DIRECTORY, "profile")
        profile.mkdir()
        preferences = {
            "marionette.port": 0, "devtools.console.stdout.content": True, "browser.shell.checkDefaultBrowser": False, "datareporting.policy.dataSubmissionEnabled": False,
            "app.update.enabled": False, "browser.startup.homepage_override.mstone": "ignore", "intl.accept_languages": "en-GB", "extensions.getAddons.cache.enabled": False,
            "network.captive-portal-service.enabled": False, "network.connectivity-service.enabled": False, "services.settings.server": "", "toolkit.telemetry.enabled": False,
        }
        profile.joinpath("user.js").write_text("".join(f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in preferences.items()))
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", FIREFOX, "--headless", "--marionette", "--profile", str(profile), "--no-remote"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "HOME": DIRECTORY, "MOZ_DISABLE_CONTENT_SANDBOX": "1", "TZ": "Europe/Berlin"})
        self.lines = []
        threading.Thread(target=lambda: self.lines.extend(self.process.stdout), daemon=True).start()
        port = until(lambda: (profile / "MarionetteActivePort").exists() and (profile / "MarionetteActivePort").read_text().strip(), "Firefox starts")
        self.socket = socket.create_connection(("127.0.0.1", int(port)), timeout=PATIENCE)
        self.buffer, self.number = b"", 0
        self.read()
        self.call("WebDriver:NewSession", {"capabilities": {"alwaysMatch": {"unhandledPromptBehavior": "accept"}}})

    def read(self):
        while b":" not in self.buffer:
            self.receive()
        length, self.buffer = self.buffer.split(b":", 1)
        while len(self.buffer) < int(length):
            self.receive()
        message, self.buffer = self.buffer[:int(length)], self.buffer[int(length):]
        return json.loads(message)

    def receive(self):
        received = self.socket.recv(1 << 16)
        assert received, "Firefox has closed the connection"
        self.buffer += received

    def call(self, command, parameters=None):
        self.number += 1
        data = json.dumps([0, self.number, command, parameters or {}]).encode()
        self.socket.sendall(b"%d:%s" % (len(data), data))
        _, number, error, result = self.read()
        assert number == self.number, (number, self.number)
        if error and error["error"] == "stale element reference":
            raise Redrawn
        if error:
            raise AssertionError(f"{command}: {error['error']}: {error['message'][:400]}")
        return result

    def open(self, address):
        self.call("WebDriver:Navigate", {"url": address})

    def run(self, script, *arguments):
        return self.call("WebDriver:ExecuteScript", {"script": script, "args": list(arguments)})["value"]

    def find(self, path):
        """The first element that is shown, by XPath."""
        def found():
            elements = self.call("WebDriver:FindElements", {"using": "xpath", "value": path})
            return next((e for e in elements if self.run("return arguments[0].checkVisibility() && !arguments[0].disabled", e)), None)
        return until(found, path, self)[self.ELEMENT]

    def click(self, path):
        until(lambda: self.call("WebDriver:ElementClick", {"id": self.find(path)}) is not None, path, self)

    def type(self, path, text):
        until(lambda: self.call("WebDriver:ElementSendKeys", {"id": self.find(path), "text": text}) is not None, path, self)

    def text(self):
        return self.run("return document.body.innerText")

    def reads(self, text):
        until(lambda: text in self.text(), text, self)

    def resize(self, width, height):
        self.call("WebDriver:SetWindowRect", {"width": width, "height": height})

    def fits(self):
        return self.run("return document.documentElement.scrollWidth <= innerWidth")

    def shot(self, name):
        if SHOTS:
            os.makedirs(SHOTS, exist_ok=True)
            picture = self.call("WebDriver:TakeScreenshot", {"full": True, "hash": False})["value"]
            pathlib.Path(SHOTS, f"firefox-{name}.png").write_bytes(base64.b64decode(picture))

    def close(self):
        try:
            self.call("Marionette:Quit", {"flags": ["eForceQuit"]})
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()


def until(holds, what, firefox=None):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            found = holds()
        except Redrawn:
            found = None
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {PATIENCE} s: {what}\n{firefox.text() if firefox else ''}")


def button(name):
    return f"//*[self::button or self::a][normalize-space(.)={json.dumps(name, ensure_ascii=False)}]"


def labelled(name):
    return f"//*[@id=//label[normalize-space(.)={json.dumps(name, ensure_ascii=False)}]/@for]"


def start():
    with open(os.open(f"{DIRECTORY}/tokens", os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
        file.write(f"admin boss {ADMIN}\n")
    server = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", BINARY, "serve", "--listen", "127.0.0.1:0", "--database", f"{DIRECTORY}/firefox.db", "--log-format", "json", "--tokens-file", f"{DIRECTORY}/tokens"],
        stderr=subprocess.PIPE, text=True, env={**os.environ, "HOLDFAST_MAX_WRITE_WAIT": "120s", "HOLDFAST_MAX_LOOP_DELAY": "120s"})
    for line in server.stderr:
        if '"listening"' in line:
            threading.Thread(target=server.stderr.read, daemon=True).start()
            return server, int(json.loads(line)["address"].rsplit(":", 1)[1])
    raise SystemExit("the server did not start")


def main():
    server, port = start()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def ask(method, path, body=None):
        connection.request(method, path, None if body is None else json.dumps(body), {"Authorization": f"Bearer {ADMIN}"})
        response = connection.getresponse()
        content = response.read()
        assert response.status < 300, (method, path, response.status, content[:500])
        return json.loads(content) if content else None

    for key, body in {"orders": {"kind": "conversion", "goal": "order"}, "revenue": {"kind": "total", "goal": "order", "unit": "EUR"}, "complaints": {"kind": "conversion", "goal": "complaint", "direction": "decrease"}}.items():
        ask("PUT", f"/v1/metrics/{key}", body)
    ask("PUT", "/v1/experiments/checkout", {"name": "One-page checkout", "variations": ["old", "new"], "metrics": {"primary": ["orders"], "secondary": ["revenue"], "guardrails": [{"metric": "complaints", "margin": 0.3}]}})
    now = datetime.now(timezone.utc)
    stamp = lambda n: (now - timedelta(days=n % 5, minutes=9)).strftime("%Y-%m-%dT%H:%M:%SZ")
    ask("POST", "/v1/exposures", [{"user_id": f"u{n}", "experiment": "checkout", "variation_key": "old" if n < 400 else "new", "timestamp": stamp(n)} for n in range(800)])
    ask("POST", "/v1/events", [{"user_id": f"u{n}", "goal": "order", "value": 20 + n % 9} for n in [*range(0, 100), *range(400, 600)]])
    ask("POST", "/v1/events", [{"user_id": f"u{n}", "goal": "complaint"} for n in [*range(0, 200), *range(400, 600)]])

    firefox = Firefox()
    try:
        home = f"http://127.0.0.1:{port}/console/"
        firefox.resize(1280, 900)
        firefox.open(home)
        firefox.type(labelled("Access token"), "not-a-token-of-this-server")
        firefox.click(button("Sign in"))
        firefox.reads("The server refuses the token")
        firefox.run("document.querySelector('input[type=password]').value = ''")
        firefox.type(labelled("Access token"), ADMIN)
        firefox.click(button("Sign in"))
        firefox.reads("What needs somebody now.")
        firefox.shot("today")
        # The list, and the results with their charts.
        firefox.click(button("Experiments"))
        firefox.reads("One-page checkout")
        firefox.shot("list")
        firefox.click("//main//a[contains(., 'One-page checkout')]")
        firefox.reads("Ship new")
        firefox.find("//main//*[local-name()='svg' and contains(@class, 'chart')]")
        firefox.find("//main//*[local-name()='svg' and contains(@class, 'interval')]")
        until(lambda: "€" in firefox.text(), "euros", firefox)
        def reads_the_chart():
            firefox.run("document.querySelector('svg.chart').focus()")
            firefox.run("document.querySelector('svg.chart').dispatchEvent(new KeyboardEvent('keydown', { key: 'End', bubbles: true }))")
            return "%" in firefox.run("return document.querySelector('figure .legend b').textContent")

        # The page may draw the chart anew meanwhile.
        until(reads_the_chart, "a share in the legend", firefox)
        firefox.shot("results")
        for width in (1024, 500):
            firefox.resize(width, 900)
            assert firefox.fits(), width
            firefox.shot(f"results-{width}")
        firefox.resize(1280, 900)
        # An experiment is made, started and stopped.
        firefox.open(f"{home}#/experiments?new=1")
        firefox.type(labelled("Name"), "Short form")
        firefox.click(button("Add a metric"))
        firefox.click(button("Add a step"))
        firefox.shot("form")
        firefox.click(button("Review"))
        firefox.click(button("Make the experiment"))
        firefox.reads("Before it starts")
        made = ask("GET", "/v1/experiments/short-form")
        assert made["status"] == "draft" and len(made["ramp"]["steps"]) == 3 and made["metrics"]["primary"], made
        firefox.shot("draft")
        firefox.click(button("Start"))
        firefox.click(f"//dialog{button('Start')}")
        firefox.reads("short-form is running.")
        until(lambda: ask("GET", "/v1/experiments/short-form")["status"] == "running", "it runs")
        firefox.open(f"{home}#/experiments")
        firefox.click("//main//button[@aria-label='short-form is running']")
        firefox.click(f"//dialog{button('Pause')}")
        firefox.reads("short-form is paused.")
        assert ask("GET", "/v1/experiments/short-form")["status"] == "paused"
        # A change by somebody else appears by itself.
        ask("PUT", "/v1/experiments/another", {"variations": ["a", "b"]})
        firefox.reads("another")
        # Concluded by the button of the verdict.
        firefox.open(f"{home}#/experiments/checkout")
        firefox.click(button("Conclude with new…"))
        firefox.click(f"//dialog{button('Conclude')}")
        firefox.reads("Concluded: everybody gets new")
        # Every other screen shows itself.
        for screen in ("flags", "flags?new=1", "holdouts", "metrics", "users", "users/u1", "segments", "attributes", "live", "proposals", "audit", "datafiles", "projects", "tokens", "experiments/checkout/edit"):
            firefox.open(f"{home}#/{screen}")
            until(lambda: firefox.run("return document.querySelector('main h1') !== null && document.querySelector('main [aria-busy=true]') === null"), screen, firefox)
            assert firefox.fits(), screen
            assert not firefox.run("return document.querySelector('main .banner.bad') !== null"), (screen, firefox.text())
        firefox.click(button("Sign out"))
        firefox.reads("Access token")
    except BaseException:
        print("".join(firefox.lines[-40:]), file=sys.stderr)
        raise
    finally:
        firefox.close()
        server.kill()
        server.wait()
    wrong = [line for line in firefox.lines if "127.0.0.1" in line and ("JavaScript error" in line or "Content-Security-Policy" in line)]
    assert not wrong, wrong


main()
