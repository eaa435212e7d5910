"use strict";
// Refreshes the page, and adds keyboard navigation.

const EVERY_MS = 15000;
const PAGES = { f: ".", n: "nodes", c: "classes", w: "warnings" };

async function look() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of ["main", ".kicker"]) {
    document.querySelector(part).replaceWith(document.adoptNode(fresh.querySelector(part)));
  }
}

function step(by) {
  const rows = [...document.querySelectorAll("a.row")];
  const at = rows.indexOf(document.activeElement);
  const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by];
  if (next) next.focus();
}

function busy() { // do not refresh while somebody selects text or uses a control
  return document.hidden || !getSelection().isCollapsed || document.querySelector("main").contains(document.activeElement);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
  const search = document.querySelector("input[type=search]");
  if (event.key === "/" && search) { search.focus(); event.preventDefault(); }
  else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "r") look();
  else if (event.key in PAGES) location.href = new URL(PAGES[event.key], new URL(document.querySelector("nav a").href));
});

document.addEventListener("click", async (event) => {
  if (!event.target.matches("button.copy")) return;
  await navigator.clipboard.writeText(event.target.closest("figure").querySelector("pre").textContent);
  event.target.textContent = "Copied";
});

document.addEventListener("input", (event) => { // the effect of a margin over the peaks of earlier runs
  if (!event.target.matches("input[data-peaks]")) return;
  const peaks = event.target.dataset.peaks.split(" ").map(Number);
  const share = Number(event.target.value) / 100, bytes = share * Math.max(...peaks);
  const above = peaks.filter((peak) => peak > bytes).length;
  const chance = 100 * (above + 1) / (peaks.length + 1);
  const words = bytes < 2 ** 30 ? `${(bytes / 2 ** 20).toFixed(0)}Mi` : `${(bytes / 2 ** 30).toFixed(2)}Gi`;
  event.target.closest("p").querySelector("output").textContent =
    `${event.target.value} %, ${words}: ${above} of ${peaks.length} runs needed more; ` +
    `the next one does with a chance of at most ${chance.toFixed(0)} %`;
});

setInterval(() => { if (!busy()) look().catch(() => {}); }, EVERY_MS);
