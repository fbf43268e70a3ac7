// What is wrong with how the page looks, as a list of sentences: texts that meet or are cut, that cannot be read, plots without marks.
(() => {
  const wrong = [];
  const said = element => (element.textContent || "").trim().replace(/\s+/g, " ").slice(0, 40);
  const shown = element => element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const wide = document.documentElement.scrollWidth - innerWidth;
  if (wide > 1) {
    const out = [...document.querySelectorAll("main *")].find(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".wide"));
    wrong.push(`the page is ${wide} pixels wider than its window: ${out?.outerHTML.slice(0, 120)}`);
  }
  // Texts of drawings: against each other, and against the drawing.
  for (const svg of document.querySelectorAll("svg")) {
    if (!shown(svg)) continue;
    const frame = svg.getBoundingClientRect();
    const boxes = [...svg.querySelectorAll("text")].map(text => [text, text.getBoundingClientRect()]);
    for (const [text, box] of boxes) {
      const cut = Math.max(frame.left - box.left, box.right - frame.right, frame.top - box.top, box.bottom - frame.bottom);
      if (cut > 1.5) wrong.push(`"${said(text)}" stands ${cut.toFixed(1)} pixels out of "${svg.getAttribute("aria-label")}"`);
    }
    boxes.forEach(([a, p], i) => boxes.slice(0, i).forEach(([b, q]) => {
      const across = Math.min(p.right, q.right) - Math.max(p.left, q.left), down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      // Boxes are as high as the font, letters are not.
      if (across > 0.5 && down > 3.5) wrong.push(`"${said(a)}" meets "${said(b)}" in "${svg.getAttribute("aria-label")}"`);
    }));
  }
  for (const figure of document.querySelectorAll("[data-chart=panel]")) {
    const marks = [...figure.querySelectorAll(".mark")].filter(mark => mark.getBoundingClientRect().width > 2 && getComputedStyle(mark).stroke !== "none");
    if (!marks.length) wrong.push(`no mark is drawn in "${said(figure)}"`);
  }
  // Texts of the page: against each other, cut by their element, and against what lies behind them.
  const colour = text => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const luminance = ({ r, g, b }) => {
    const channel = x => (x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
    return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  };
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const ground = colour(getComputedStyle(e).backgroundColor);
      if (ground.a > 0) return ground;
    }
    return { r: 255, g: 255, b: 255 };
  };
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  const lines = [];
  let texts = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("noscript, script, style, select, title, .off") || !shown(element)) continue;
    texts += 1;
    const style = getComputedStyle(element), svg = element.closest("svg");
    const [front, back] = [luminance(colour(svg ? style.fill : style.color)), luminance(behind(element))];
    const contrast = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    if (contrast < 4.5) wrong.push(`"${node.data.trim().slice(0, 40)}" has a contrast of ${contrast.toFixed(2)}`);
    if (svg || element.closest(".tall")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) lines.push({ box, text: node.data.trim().slice(0, 40), element });
  }
  lines.sort((a, b) => a.box.top - b.box.top);
  lines.forEach((a, i) => {
    for (let j = i + 1; j < lines.length && lines[j].box.top < a.box.bottom - 4; j += 1) {
      const across = Math.min(a.box.right, lines[j].box.right) - Math.max(a.box.left, lines[j].box.left);
      if (across > 1) wrong.push(`"${a.text}" meets "${lines[j].text}"`);
    }
  });
  for (const cell of document.querySelectorAll("td, th, p, li, h1, h2, h3, dd, dt, figcaption, .answer")) {
    if (shown(cell) && !cell.closest(".tall") && cell.scrollWidth > cell.clientWidth + 1 && getComputedStyle(cell).overflowX !== "auto" && getComputedStyle(cell).display !== "inline")
      wrong.push(`"${said(cell)}" needs ${cell.scrollWidth} pixels of ${cell.clientWidth}`);
  }
  if (texts < 20) wrong.push(`only ${texts} texts are shown`);
  return wrong;
})()
