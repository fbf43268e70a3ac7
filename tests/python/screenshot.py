"""Opens a report in headless Chromium, and checks that its plots are drawn. Usage: screenshot.py CHROMIUM REPORT.html OUT.png"""
import subprocess
import sys
import zlib

import numpy as np

chromium, report, out = sys.argv[1:]
base = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,2400"]
subprocess.run([*base, f"--screenshot={out}", f"file://{report}"], check=True, capture_output=True, timeout=120)
dom = subprocess.run([*base, "--dump-dom", f"file://{report}"], check=True, capture_output=True, text=True, timeout=120).stdout
plots = dom.count("<svg")
assert plots >= 3, f"{plots} plots in the page"


def pixels(path):
    """Rows x columns x channels of an 8-bit PNG (W3C PNG specification, sections 5 and 9)."""
    data = open(path, "rb").read()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, body = 8, b""
    while at < len(data):
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        chunk = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour = (int.from_bytes(chunk[:4], "big"), int.from_bytes(chunk[4:8], "big"), chunk[8], chunk[9])
        elif kind == b"IDAT":
            body += chunk
        at += 12 + length
    channels = {2: 3, 6: 4}[colour]
    assert depth == 8
    raw = np.frombuffer(zlib.decompress(body), np.uint8).reshape(height, 1 + width * channels)
    rows, above = np.zeros((height, width, channels), np.uint8), np.zeros((width, channels), np.int32)
    for y in range(height):
        line, kind = raw[y, 1:].reshape(width, channels).astype(np.int32), raw[y, 0]
        if kind == 2:
            line = (line + above) & 255
        elif kind == 1:
            line = np.cumsum(line, axis=0) & 255
        elif kind:
            done = np.zeros_like(line)
            left = upper_left = np.zeros(channels, np.int32)
            for x in range(width):
                if kind == 3:
                    guess = (left + above[x]) // 2
                else:
                    p = left + above[x] - upper_left
                    distances = np.stack([abs(p - left), abs(p - above[x]), abs(p - upper_left)])
                    guess = np.choose(distances.argmin(axis=0), [left, above[x], upper_left])
                left, upper_left = (line[x] + guess) & 255, above[x]
                done[x] = left
            line = done
        rows[y], above = line, line
    return rows


image = pixels(out)[..., :3].astype(np.int32)
coloured = int((image.max(axis=-1) - image.min(axis=-1) > 60).sum())
assert coloured > 2000, f"only {coloured} coloured pixels: the plots are empty"
print(f"{plots} plots drawn, {coloured} coloured pixels")
