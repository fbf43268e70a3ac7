"""A headless Chromium, driven over its debugging pipe (Chrome DevTools Protocol): one start serves every width and colour scheme."""
import base64
import json
import os
import subprocess
import tempfile


class Browser:
    """Use as `with Browser(CHROMIUM) as page:`. What the page logs as an error is collected in `errors`."""

    def __init__(self, chromium):
        self.chromium, self.errors, self.loaded, self.last = chromium, [], False, 0

    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        (read, self.write), (self.read, write) = os.pipe(), os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars", "--no-first-run"]
        command = [self.chromium, *flags, "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "about:blank"]
        # The browser reads commands from descriptor 3 and answers on descriptor 4.
        shell = f'exec "$@" 3<&{read} 4>&{write} 2>/dev/null'
        self.process = subprocess.Popen(["bash", "-c", shell, "sh", *command], pass_fds=(read, write))
        os.close(read)
        os.close(write)
        self.pending, self.session = b"", None
        page = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.read)
        os.close(self.write)
        self.profile.cleanup()

    def message(self):
        """The next message, as it comes: they end with a zero byte."""
        while b"\0" not in self.pending:
            data = os.read(self.read, 1 << 20)
            assert data, "the browser closed its pipe"
            self.pending += data
        line, self.pending = self.pending.split(b"\0", 1)
        message = json.loads(line)
        method, of = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            self.errors.append(of["exceptionDetails"].get("exception", {}).get("description") or of["exceptionDetails"]["text"])
        elif method == "Log.entryAdded" and of["entry"]["level"] in ("error", "warning"):
            self.errors.append(of["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and of["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(a.get("value", a.get("description"))) for a in of["args"]))
        elif method == "Network.requestWillBeSent" and not of["request"]["url"].startswith(("file:", "data:", "about:")):
            self.errors.append(f"the page asks for {of['request']['url']}")
        return message

    def call(self, method, **params):
        """One command and its result."""
        self.last += 1
        command = {"id": self.last, "method": method, "params": params} | ({"sessionId": self.session} if self.session else {})
        os.write(self.write, json.dumps(command).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.last:
                assert "error" not in message, f"{method}: {message['error']}"
                return message["result"]

    def shape(self, width, height=900, scheme="light", media="screen", **features):
        """Sets the window's size in pixels and the media features, `forced_colors="active"` among them."""
        features = {"prefers-color-scheme": scheme} | {name.replace("_", "-"): value for name, value in features.items()}
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": name, "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def scripts(self, allowed):
        """Whether the page's own scripts run from the next load on."""
        self.call("Emulation.setScriptExecutionDisabled", value=not allowed)

    def load(self, path):
        """Opens a file and waits until it is loaded."""
        self.loaded = False
        self.call("Page.navigate", url=f"file://{path}")
        while not self.loaded:
            self.message()

    def evaluate(self, expression):
        """The value of a JavaScript expression; a promise is awaited."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def picture(self, path, whole=True):
        """A PNG of the page, or of what the window shows of it."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole, **({"clip": self.whole()} if whole else {}))["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def whole(self):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
