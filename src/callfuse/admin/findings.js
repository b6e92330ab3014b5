// The view of the findings: which there were, and how many loops. What is asked for stands in the address, behind
// `#findings?`, so that it can be kept as a link.

import { DONE, THEN, ask, at, make, many, number, openFinding, setText, sync } from "./page.js";

const LEAST_MS = 2000; // between two times that the list is asked for by itself
const NAME = "#findings";
const CHOSEN = ["kind", "tool", "model", "action"];
const FIELDS = ["range", "from", "to", ...CHOSEN, "session", "by"];
const RANGES = { hour: 1, day: 1, week: 1, month: 1, all: 1 };
const COLUMNS = [
  ["time", "Time"], ["kind", "Kind"], ["tool", "Tool"], ["count", "Count"], ["action", "Done"], ["session", "Session"],
  ["model", "Model"], ["saved_calls", "Calls saved"],
];
const PLACES = {
  memory: "They are kept in memory until this process ends; the setting findings.path names a file.",
  file: "They are kept in a file.", store: "They are kept in the store.",
};

let sort = "-time";
let page = 0;
let asked = 0;
let drawn = "";

/** Whether this view is shown. */
export const isShown = () => location.hash.startsWith(NAME);

/** The address of this view for some values, such as `{ tool: "search" }`. */
export const linkTo = (values) => `${NAME}?${new URLSearchParams({ range: "all", ...values })}`;

/** Show this view, or the sessions, as the address says. */
export function route() {
  const shown = isShown();
  at("findings").hidden = !shown;
  at("sessions").hidden = shown;
  for (const link of document.querySelectorAll("#views a[href^='#']")) {
    if ((link.getAttribute("href") === NAME) === shown) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!shown) return;
  const given = new URLSearchParams(location.hash.slice(NAME.length + 1));
  for (const name of FIELDS) {
    const field = at(`of-${name}`);
    const value = given.get(name) ?? field.dataset.default ?? "";
    if (field.tagName === "SELECT" && value && ![...field.options].some((one) => one.value === value)) {
      field.append(make("option", { value }, value));
    }
    field.value = value;
  }
  sort = given.get("sort") ?? "-time";
  page = Number(given.get("page") ?? 0) || 0;
  showTimes();
  asked = 0;
  refreshFindings();
}

/** Put what the form says into the address. */
function go(changed = {}) {
  const values = {};
  for (const name of FIELDS) {
    const field = at(`of-${name}`);
    if (field.value && field.value !== field.dataset.default) values[name] = field.value;
  }
  if (values.range !== "times") {
    delete values.from;
    delete values.to;
  }
  const all = { ...values, ...(sort === "-time" ? {} : { sort }), ...changed };
  const wanted = `${NAME}?${new URLSearchParams(all)}`;
  if (location.hash === wanted) route();
  else location.hash = wanted;
}

function showTimes() {
  for (const one of document.querySelectorAll(".times")) one.hidden = at("of-range").value !== "times";
}

/** What the server is asked: times of this browser become Unix seconds. */
function parameters() {
  const found = { sort, page };
  for (const name of [...CHOSEN, "session", "by"]) if (at(`of-${name}`).value) found[name] = at(`of-${name}`).value;
  const range = at("of-range").value;
  if (range in RANGES) found.range = range;
  else if (range === "today") found.from = new Date().setHours(0, 0, 0, 0) / 1000;
  else for (const name of ["from", "to"]) if (at(`of-${name}`).value) found[name] = new Date(at(`of-${name}`).value) / 1000;
  return found;
}

/** Ask for the list, if this view is shown and it is time. */
export async function refreshFindings() {
  if (!isShown() || performance.now() - asked < LEAST_MS) return;
  asked = performance.now() + LEAST_MS; // not twice at a time
  try {
    const wanted = parameters();
    const shown = await ask("findings", wanted);
    draw(shown, wanted);
  } catch (error) {
    if (!error.status) throw error;
    setText(at("summary"), error.message);
    at("summary").classList.add("problem");
  } finally {
    asked = performance.now();
  }
}

function draw(shown, wanted) {
  const { kept } = shown;
  at("summary").classList.remove("problem");
  setText(at("summary"), `${many(shown.loops, "loop")}, ${many(shown.findings, "finding")}.`);
  const parts = [PLACES[kept.in], `Kept for ${many(kept.days, "day")}.`];
  if (kept.alone) parts.push("The store is down: these are the findings of one process.");
  if (kept.dropped) parts.push(`${many(kept.dropped, "event")} could not be kept.`);
  setText(at("kept"), parts.join(" "));
  for (const name of CHOSEN) offer(at(`of-${name}`), shown.values[name]);
  for (const format of ["csv", "json"]) {
    const { page: _, ...all } = wanted;
    at(`as-${format}`).href = `findings?${new URLSearchParams({ ...all, format })}`;
  }
  const rows = JSON.stringify([shown.rows, shown.by, sort]);
  if (rows !== drawn) {
    drawn = rows;
    drawHead();
    sync(at("rows"), shown.rows, (row) => row.id, () => make("tr"), (tr, row) => drawRow(tr, row, shown.by));
  }
  const count = shown.by === "loop" ? shown.loops : shown.findings;
  const first = shown.page * shown.page_size;
  at("nothing").hidden = shown.rows.length > 0;
  at("rows").closest("table").hidden = !shown.rows.length;
  at("turn").hidden = count <= shown.page_size && page === 0;
  at("back").disabled = page === 0;
  at("on").disabled = first + shown.rows.length >= count;
  setText(at("where"), `${number(first + 1)} to ${number(first + shown.rows.length)} of ${number(count)}`);
}

/** The values that can be chosen, with how many loops each has. */
function offer(select, values) {
  if (select === document.activeElement) return; // somebody chooses
  const options = [{ value: "", text: "any" }, ...values.map((one) => ({ value: one.value, text: `${one.value} (${one.loops})` }))];
  const chosen = select.value;
  if (chosen && !values.some((one) => one.value === chosen)) options.push({ value: chosen, text: `${chosen} (0)` });
  sync(select, options, (one) => `=${one.value}`, () => make("option"), (option, one) => {
    option.value = one.value;
    setText(option, one.text);
  });
  select.value = chosen;
}

function drawHead() {
  const column = sort.replace("-", "");
  sync(at("heads"), COLUMNS, ([name]) => name, ([name, label]) => make("th", { scope: "col" },
    make("button", { type: "button", class: "head", onclick: () => sortBy(name) }, label)), (th, [name]) => {
    if (name === column) th.setAttribute("aria-sort", sort.startsWith("-") ? "descending" : "ascending");
    else th.removeAttribute("aria-sort");
  });
}

function sortBy(name) {
  sort = sort === `-${name}` ? name : `-${name}`;
  go({ sort });
}

function drawRow(tr, row, by) {
  const time = new Date(row.time * 1000).toLocaleString();
  const done = by === "loop" ? row.actions.split(",").map((one) => one.replace("_", " ")).join(", then ") : row.action.replace("_", " ");
  const notes = [row.feedback && `rated ${row.feedback.replace("_", " ")}`, row.then && THEN[row.then]];
  const count = by === "loop" ? `${row.count} (${many(row.findings, "finding")})` : `${row.count} of ${row.limit}`;
  const cells = [
    make("th", { scope: "row" }, make("button", { type: "button", class: "name", onclick: () => openFinding(row.id) }, time)),
    cell(make("a", { href: linkTo({ kind: row.kind }) }, row.kind)), cell(make("a", { href: linkTo({ tool: row.tool }) }, row.tool)),
    cell(count), cell(done, ...notes.filter(Boolean).map((note) => make("span", { class: "note" }, ` ${note}`))),
    cell(make("a", { href: linkTo({ session: row.session }) }, row.session)),
    cell(row.model && make("a", { href: linkTo({ model: row.model }) }, row.model)),
    cell(row.saved_calls ? `≈ ${Math.round(10 * row.saved_calls) / 10}` : ""), // an estimate
  ];
  cells[4].title = DONE[row.action] ?? "";
  tr.replaceChildren(...cells);
}

const cell = (...children) => make("td", {}, ...children);

/** Listen to the form; the address does the rest. */
export function setUp() {
  at("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    go();
  });
  at("ask").addEventListener("change", () => {
    showTimes();
    if (at("of-range").value !== "times" || at("of-from").value || at("of-to").value) go();
  });
  at("back").addEventListener("click", () => go({ page: page - 1 }));
  at("on").addEventListener("click", () => go({ page: page + 1 }));
  window.addEventListener("hashchange", route);
  route();
}
