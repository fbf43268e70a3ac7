// The table of all rows: its text stands once in the page, in `noscript`, and is taken apart here. Cells are HTML already.
(() => {
  const form = document.querySelector("form.find");
  if (!form) return;
  const table = document.querySelector("table.rows"), body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const text = document.getElementById("all-rows").textContent;
  const plain = cell => cell.replace(/<[^>]*>/g, "");
  const rows = text.slice(text.indexOf("<tbody>")).split("<tr>").slice(1).map(line => {
    const cells = line.replace(/\s*(<\/tbody>[^]*)?$/, "").split("<td>").slice(1);
    return { cells, text: plain(cells.join(" ")).toLowerCase() };
  });
  const column = name => heads.findIndex(head => head.textContent === name);
  const columns = { operator: column("operator"), precision: column("precision"), status: column("status") };
  const numbers = heads.map(head => head.classList.contains("n"));
  const units = { n: 1e-9, u: 1e-6, m: 1e-3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18 };
  // `4.20 us`, `1.95 TFLOP/s`, `87 % memory`, `0.86x`, `512x64`: a size is compared by the product of its extents.
  const value = cell => {
    const found = /^(-?[\d.]+(?:e[+-]?\d+)?)( ([numMGTPE])(s|B|FLOP))?/.exec(cell);
    if (!found) return NaN;
    if (/^\d+(x\d+)+$/.test(cell)) return cell.split("x").reduce((all, extent) => all * extent, 1);
    return parseFloat(found[1]) * (found[2] ? units[found[3]] : 1);
  };
  const STEP = 200;
  let shown = rows, drawn = 0, order = { at: -1, up: true };

  const draw = count => {
    const until = Math.min(shown.length, drawn + count);
    const line = row => "<tr><td>" + row.cells.join("<td>");
    body.insertAdjacentHTML("beforeend", shown.slice(drawn, until).map(line).join(""));
    drawn = until;
    const all = shown.length === rows.length ? `${rows.length} rows` : `${shown.length} of ${rows.length} rows`;
    form.querySelector("output").textContent = drawn < shown.length ? `${all}, the first ${drawn} drawn` : all;
  };
  const sort = () => {
    if (order.at < 0) return;
    const keys = new Map(shown.map(row => {
      const cell = plain(row.cells[order.at]);
      return [row, numbers[order.at] ? value(cell) : cell];
    }));
    const empty = key => key === "" || Number.isNaN(key);
    const sign = order.up ? 1 : -1;
    shown = [...shown].sort((x, y) => {
      const [a, b] = [keys.get(x), keys.get(y)];
      if (empty(a) || empty(b)) return empty(a) - empty(b);
      return sign * (typeof a === "number" ? a - b : a.localeCompare(b));
    });
  };
  const update = () => {
    const words = form.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const one = (row, name) => {
      const cell = plain(row.cells[columns[name]]), wanted = form[name].value;
      return !wanted || cell === wanted || name === "operator" && cell.startsWith(wanted + " ");
    };
    shown = rows.filter(row => words.every(word => row.text.includes(word)) && Object.keys(columns).every(name => one(row, name)));
    sort();
    body.textContent = "";
    drawn = 0;
    draw(STEP);
    table.parentElement.scrollTop = 0;
  };

  form.addEventListener("input", update);
  form.addEventListener("submit", event => event.preventDefault());
  table.tHead.addEventListener("click", event => {
    const head = event.target.closest("button")?.parentElement;
    if (!head) return;
    // Numbers are looked at from the largest down, names from the first up.
    const at = heads.indexOf(head);
    order = { at, up: order.at === at ? !order.up : !numbers[at] };
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", order.up ? "ascending" : "descending");
    update();
  });
  table.parentElement.addEventListener("scroll", event => {
    const { scrollTop, clientHeight, scrollHeight } = event.target;
    if (scrollTop + clientHeight > scrollHeight - 800 && drawn < shown.length) draw(2 * STEP);
  });
  document.addEventListener("click", event => {
    const link = event.target.closest("a[data-operator]");
    if (!link) return;
    form.operator.value = link.dataset.operator;
    update();
  });
  form.hidden = table.hidden = false;
  update();
})();
