"""Looks at reports in headless Chromium. Usage: report_page.py CHROMIUM REPORT.html...

Pictures of them, which nobody but a reader judges, are taken where the variable TESSERA_PICTURES names a folder for them.

Each page is looked at in three widths, light and dark, in print, with forced colours and without scripts: no error on the console,
nothing loaded, no text that is cut, meets another or cannot be read. The table of all rows is sorted, searched and filtered.
"""
import os
import sys

from browser import Browser

MOST_BYTES = 2_000_000
PICTURES = os.environ.get("TESSERA_PICTURES")
LOOKS = [(width, scheme, "screen", {}) for width in (1440, 1024, 400) for scheme in ("light", "dark")]
LOOKS += [(1032, "light", "print", {}), (1440, "dark", "screen", {"forced_colors": "active", "prefers_contrast": "more"})]

with open(os.path.join(os.path.dirname(__file__), "report_page.js")) as script:
    WRONG = script.read()


def look(page, name):
    """How the page looks, in every shape. A page that runs no script on load can be shaped without loading it again."""
    for width, scheme, media, features in LOOKS:
        page.shape(width, 900, scheme, media, **features)
        wrong = page.evaluate(WRONG)
        assert not wrong, f"{name}, {width} wide, {scheme}, {media}: {len(wrong)} things are wrong\n" + "\n".join(wrong[:20])
        if PICTURES and media == "screen" and not features:
            page.picture(os.path.join(PICTURES, f"{name}-{width}-{scheme}.png"), whole=width == 1440)


def cells(page, column):
    """A column of the table as it is drawn."""
    return page.evaluate(
        f"""(() => {{
            const table = document.querySelector("table.rows"), heads = [...table.tHead.rows[0].cells];
            const at = heads.findIndex(head => head.textContent === "{column}");
            return [...table.tBodies[0].rows].map(row => row.cells[at].textContent);
        }})()"""
    )


def put(page, field, value):
    """Types or chooses, as a reader would."""
    page.evaluate(
        f"""(() => {{
            const field = document.querySelector("form.find").elements["{field}"];
            field.value = {value!r};
            field.dispatchEvent(new Event("input", {{ bubbles: true }}));
        }})()"""
    )


def said(page):
    return page.evaluate('document.querySelector("form.find output").textContent')


def seconds(cell):
    number, unit = cell.split()
    return float(number) * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]


def sort(page, column):
    """Sorts by the keyboard: the head's button is focused and pressed."""
    page.evaluate(f"""document.querySelector('[data-column="{column}"]').focus()""")
    key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
    page.call("Input.dispatchKeyEvent", type="keyDown", **key)
    page.call("Input.dispatchKeyEvent", type="keyUp", **key)


def table(page, name):
    """Sorting, searching and filtering; the number of rows."""
    count = page.evaluate('document.querySelector("#all-rows")?.textContent.split("<tr>").length - 2') or 0
    if count == 0:
        return 0
    assert said(page).split()[0] == str(count), f"{name}: {said(page)!r} of {count}"
    drawn = cells(page, "operator")
    assert len(drawn) == min(count, 200), f"{name}: {len(drawn)} rows of {count} are drawn"
    timed = []
    for turn in range(2):
        sort(page, "time")
        timed = [seconds(cell) for cell in cells(page, "time") if cell]
        wanted = sorted(timed, reverse=turn == 0)
        assert timed == wanted, f"{name}: times are not in order: {timed[:9]}"
    sort(page, "operator")
    names = cells(page, "operator")
    assert names == sorted(names), f"{name}: operators are not in order: {names[:9]}"
    words = drawn[len(drawn) // 2].split() + [cells(page, "precision")[0]]
    put(page, "words", f" {words[0]} {words[-1]} ")
    found = page.evaluate("""[...document.querySelector("table.rows").tBodies[0].rows].map(row => row.textContent)""")
    assert all(words[0] in row and words[-1] in row for row in found), f"{name}: {words} found {found[:3]}"
    put(page, "words", "nothing has this name")
    assert cells(page, "operator") == [] and said(page).startswith(f"0 of {count} rows"), f"{name}: {said(page)!r}"
    put(page, "words", "")
    operator = page.evaluate("""document.querySelector("form.find").elements.operator.options[1].value""")
    page.evaluate(f"""document.querySelector('a[data-operator="{operator}"]')?.click()""")
    put(page, "operator", operator)
    chosen = cells(page, "operator")
    assert chosen and all(cell == operator or cell.startswith(operator + " ") for cell in chosen), f"{name}: {operator}: {chosen[:9]}"
    put(page, "operator", "")
    # The rest is drawn as one scrolls.
    before = len(cells(page, "operator"))
    if before < count:
        page.evaluate("""(async () => {
            const box = document.querySelector(".tall");
            box.scrollTop = box.scrollHeight;
            await new Promise(done => setTimeout(done, 100));
        })()""")
        after = len(cells(page, "operator"))
        assert before < after <= count, f"{name}: {after} rows after scrolling, {before} before"
    return count


def without_scripts(page, path, name, count):
    """The page says the same to a reader without scripts, all rows in a plain table."""
    page.scripts(False)
    page.shape(1440)
    page.load(path)
    page.scripts(True)
    rows = page.evaluate('document.querySelectorAll("noscript table.rows tbody tr").length')
    assert rows == count, f"{name}: {rows} rows of {count} without scripts"
    assert page.evaluate("!document.querySelector('form.find') || document.querySelector('form.find').hidden"), name
    assert not page.errors, f"{name}: without scripts: {page.errors}"


def main(chromium, *paths):
    if PICTURES:
        os.makedirs(PICTURES, exist_ok=True)
    with Browser(chromium) as page:
        for path in paths:
            name, size = os.path.splitext(os.path.basename(path))[0], os.path.getsize(path)
            assert size < MOST_BYTES, f"{name} has {size} bytes"
            page.shape(1440)
            page.load(os.path.abspath(path))
            look(page, name)
            page.shape(1440)
            count = table(page, name)
            assert not page.errors, f"{name}: {page.errors}"
            without_scripts(page, os.path.abspath(path), name, count)
            print(f"{name}: {size} bytes, {count} rows, looks right")


main(*sys.argv[1:])
