// The live page: asks for what goes on, and shows it.
//
//   events (or a clock) -> refresh -> `view` -> draw
//
// Whatever comes from elsewhere (names, arguments, texts) becomes a text node, or an attribute that nothing runs: there
// is no innerHTML here, and the Content-Security-Policy would run nothing of it.

import { openExchange } from "./exchange.js";
import { linkTo, refreshFindings, setUp as setUpFindings } from "./findings.js";

const POLL_MS = 600; // without the feed of events
const POLL_LIVE_MS = 5000; // with it: for what no event tells
const PAUSE_MS = 250; // between two refreshes, however many events come
const PIN_MS = 3000; // of answers of other processes than the one that is shown, until one of those is
const FEED_AGAIN_MS = 30000; // until a server without a feed is asked for one again
const NEWS_MS = 3000; // between two texts for a screen reader
const COLOURS = 8;
const TOOLS_SHOWN = 6; // of a lane
const EVENTS = ["exchange", "call", "hold_began", "hold", "finding", "loop", "action", "result", "mended", "blown", "reset",
  "spent",
  "settings", "feedback", "fail_open", "not_guarded", "not_watched", "store_down", "store_up", "alone", "shared"];
const FIGURES = [
  ["exchanges", "Exchanges"], ["calls", "Calls"], ["findings", "Findings"], ["loops", "Loops"], ["warned", "Warned"], ["steered", "Steered"],
  ["blocked", "Blocked"], ["held_s", "Seconds held"], ["saved_calls", "Calls saved"],
  ["saved_tokens", "Tokens saved"], ["saved_cost", "Cost saved"], ["tokens", "Tokens spent"],
  ["estimated_tokens", "Of them estimated"], ["cost", "Cost"], ["not_guarded", "Not guarded"], ["fail_open", "Failed open"],
];
const COUNTED = new Set(["tokens", "estimated_tokens", "cost", "saved_cost"]); // only where a budget asks for it
const LINES = new Set(["exchanges", "calls"]);
const ESTIMATES = new Set(["saved_calls", "saved_tokens", "saved_cost", "estimated_tokens"]);
const ALARMS = new Set(["fail_open", "not_guarded"]);
const ALONE = ": the store is down, so these are the events of one process only";
export const DONE = {
  none: "nothing found, let through", allow: "let through: a person or the callback allowed it", observe: "only observed",
  warn: "let through, and warned of with its result", steer: "withheld, and the model asked again with guidance",
  force_text: "withheld, and the model asked for text only", escalate: "withheld, and another model asked",
  block: "blocked", blown: "the fuse has blown: callfuse answered by itself",
};
const WITHHOLDS = new Set(["steer", "force_text", "escalate", "block"]);
export const THEN = {
  changed: "It changed course.", same: "It did the same again.", ended: "It ended.", user: "The user wrote a message.",
};

const view = {
  server: "", foreign: 0, version: 0, page: 0, matching: 0, size: 20, now: 0,
  order: [], sessions: new Map(), open: null, newest: null,
};
export const at = (id) => document.getElementById(id);

// Elements

/** An element. `attributes`: those that are false or null are left out; `on...` are listeners. Texts become text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Give a parent one child for each item, in order. Known children are kept, and so are focus and clicks on them. */
export function sync(parent, items, key, create, update) {
  const wanted = new Set(items.map((item) => String(key(item))));
  const known = new Map();
  for (const child of [...parent.children]) {
    if (wanted.has(child.dataset.key)) known.set(child.dataset.key, child);
    else child.remove();
  }
  let next = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    const child = known.get(name) ?? create(item);
    if (!known.has(name)) child.dataset.key = name;
    update(child, item);
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
  }
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const letter = (bead) => (bead.tool ? String.fromCharCode(65 + bead.sign) : "×");
export const number = (value) => Math.round(value).toLocaleString("en");
const amount = (name, value) => (name.endsWith("cost") ? value.toFixed(4) : number(value));
const seconds = (value) => (value < 1 ? `${Math.round(1000 * value)} ms` : `${Math.round(10 * value) / 10} s`);
const clock = (time) => new Date(time * 1000).toLocaleTimeString();

function age(time) {
  const passed = Math.max(0, view.now - time);
  if (passed < 60) return `${Math.round(passed)} s ago`;
  return passed < 3600 ? `${Math.round(passed / 60)} min ago` : `${Math.round(passed / 3600)} h ago`;
}

export const many = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

// Requests

class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The JSON of an endpoint. Throws Refused with the server's own words, or TypeError where no server answers. */
export async function ask(path, parameters = {}, body = undefined) {
  const query = new URLSearchParams(parameters).toString();
  const options = { headers: { accept: "application/json" } };
  if (body !== undefined) {
    options.method = "POST";
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const answer = await fetch(query ? `${path}?${query}` : path, options);
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, said.error || `the server answered ${answer.status}`);
  return said;
}

// What is asked for, and when

let timer = 0;
let due = Infinity;
let busy = false;
let stale = false;
let feed = null;

const isLive = () => feed !== null && feed.readyState === EventSource.OPEN;

/** Ask anew at the latest in so many milliseconds. */
function soon(delay) {
  const then = performance.now() + delay;
  if (due <= then) return; // news without end must not put it off for ever
  clearTimeout(timer);
  due = then;
  timer = setTimeout(refresh, delay);
}

/** Something has happened: ask at once, or as soon as the last answer is there. */
function nudge() {
  if (busy) stale = true;
  else soon(PAUSE_MS);
}

async function refresh() {
  due = Infinity;
  if (busy || document.hidden) return;
  busy = true;
  stale = false;
  try {
    const asked = { page: view.page, search: at("search").value, found: at("found").checked ? 1 : 0 };
    const known = { server: view.server, since: view.version };
    const [shown, rates] = await Promise.all([ask("activity", { ...asked, ...known }), ask("rates", known)]);
    if (isOurs(shown)) {
      take(shown);
      drawList();
      await refreshFindings();
      tellState("live", (isLive() ? "Live" : "Live (polling)") + (shown.alone ? ALONE : ""));
    } else stale = true;
    if (rates.server === view.server) drawFigures(rates);
    else stale = true;
    await drawOpen();
  } catch (error) {
    tellState("lost", error.status === 401 ? "The token has changed: load this page again and log in"
      : error instanceof Refused ? error.message : "The server does not answer; trying again");
  } finally {
    busy = false;
    soon(stale ? PAUSE_MS : isLive() ? POLL_LIVE_MS : POLL_MS);
  }
}

/** Hear of events. A server without a feed is asked for one now and then; until then a clock does. */
function listen() {
  if (typeof EventSource === "undefined") return;
  feed = new EventSource("events");
  for (const name of EVENTS) feed.addEventListener(name, nudge);
  feed.onopen = nudge;
  feed.onerror = () => {
    nudge();
    if (feed.readyState === EventSource.CLOSED) setTimeout(listen, FEED_AGAIN_MS);
  };
}

function tellState(kind, text) {
  at("state").className = kind;
  setText(at("state"), text);
}

/** Whether an answer goes on with what is shown. Several processes may answer: those that share a store tell the same
 * under the same name, and of others one is shown until it answers no more. */
function isOurs(answer) {
  const goesOn = answer.server === view.server && answer.version >= view.version;
  if (goesOn || !view.sessions.size) view.foreign = 0;
  else if (!view.foreign) view.foreign = Date.now();
  return !view.foreign || Date.now() - view.foreign > PIN_MS;
}

/** Take an answer over. After a restart, or for another question, nothing that was known counts. */
function take(shown) {
  view.foreign = 0;
  if (shown.server !== view.server) {
    view.sessions.clear();
    view.newest = view.server ? 0 : null;
    view.server = shown.server;
  }
  Object.assign(view, { now: shown.now, matching: shown.matching, size: shown.page_size });
  const before = view.sessions;
  view.order = shown.sessions.map((one) => one.session);
  view.sessions = new Map(shown.sessions.map((one) => [one.session, one.lanes ? one : before.get(one.session)]));
  // One that is only named although this page does not have it, as after a filter: ask for all.
  view.version = [...view.sessions.values()].includes(undefined) ? 0 : shown.version;
  view.order = view.order.filter((name) => view.sessions.get(name));
  tellNews();
}

/** Say each new finding to a screen reader, one at a time. */
let told = 0;
function tellNews() {
  const beads = [...view.sessions.values()].filter(Boolean)
    .flatMap((one) => one.lanes.flatMap((lane) => lane.beads.map((bead) => [bead, one.session])));
  const newest = Math.max(0, ...beads.map(([bead]) => bead.id));
  const news = beads.filter(([bead]) => bead.kind && view.newest !== null && bead.id > view.newest).at(-1);
  view.newest = Math.max(newest, view.newest ?? 0);
  if (news && Date.now() - told > NEWS_MS) {
    told = Date.now();
    setText(at("news"), `Loop found in session ${news[1]}: ${news[0].tool}, ${DONE[news[0].action] ?? news[0].action}`);
  }
}

function askAnew() {
  view.version = 0;
  nudge();
}

// Figures

function drawFigures(rates) {
  const shown = FIGURES.filter(([name]) => !COUNTED.has(name) || rates.totals[name]);
  sync(at("figures"), shown, ([name]) => name, makeFigure, (item, [name]) => {
    const series = rates.series[name] ?? [];
    setText(item.querySelector("b"), amount(name, rates.totals[name] ?? 0));
    item.classList.toggle("warns", ALARMS.has(name));
    item.querySelector("path").setAttribute("d", LINES.has(name) ? line(series) : bars(series));
    const lately = series.reduce((sum, value) => sum + value, 0);
    setText(item.querySelector(".unseen"), `, ${amount(name, lately)} in the last 15 minutes`);
  });
}

function makeFigure([name, label]) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.setAttribute("viewBox", "0 0 90 24");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  if (!LINES.has(name)) path.setAttribute("class", "bars");
  svg.append(path);
  return make("li", {}, make("span", { class: "note" }, label),
    make("p", {}, ESTIMATES.has(name) ? estimate() : null, make("b"), make("span", { class: "unseen" })),
    svg);
}

const estimate = () => make("small", { title: "This is an estimate." }, "≈ ", make("span", { class: "unseen" }, "an estimate: "));

const heights = (series) => series.map((value) => (22 * value) / Math.max(1, ...series));
const line = (series) => heights(series).map((height, x) => `${x ? "L" : "M"}${x} ${23 - height}`).join("");
const bars = (series) => heights(series).map((height, x) => (height ? `M${x + 0.5} 24v${-height - 1}` : "")).join("");

// Sessions, lanes and beads

function drawList() {
  const focus = document.activeElement;
  sync(at("list"), view.order, (name) => name, makeSession, updateSession);
  if (focus !== document.activeElement && focus.isConnected) focus.focus({ preventScroll: true }); // it was moved
  const first = view.page * view.size;
  const pages = Math.ceil(view.matching / view.size);
  at("empty").hidden = view.order.length > 0;
  setText(at("empty"), at("search").value || at("found").checked ? "No such session."
    : "No session yet. Each one appears here with its first request.");
  at("pager").hidden = pages < 2 && view.page === 0;
  at("newer").disabled = view.page === 0;
  at("older").disabled = view.page + 1 >= pages;
  setText(at("place"), `${number(first + 1)} to ${number(first + view.order.length)} of ${number(view.matching)}`);
}

function makeSession(name) {
  return make("li", {},
    make("h3", {}, make("button", { class: "name", type: "button", onclick: () => open(name, null) })),
    make("p", { class: "meta" }), make("div", { class: "lanes" }));
}

function updateSession(item, name) {
  const session = view.sessions.get(name);
  const isOpen = view.open?.session === name;
  item.classList.toggle("open", isOpen);
  setText(item.querySelector(".meta"), describeSession(session));
  const drawn = `${view.server} ${session.version} ${isOpen ? view.open.bead : ""}`;
  if (item.dataset.drawn === drawn) return;
  item.dataset.drawn = drawn;
  setText(item.querySelector(".name"), name);
  item.querySelector("h3 .flag")?.remove();
  if (session.lanes.some((lane) => lane.blown)) {
    item.querySelector("h3").append(make("span", { class: "flag" }, "fuse blown"));
  }
  drawLanes(item.querySelector(".lanes"), session);
}

function describeSession(session) {
  const counts = session.counts;
  const parts = [session.model, session.dialect, many(counts.calls ?? 0, "call")];
  if (counts.findings) parts.push(many(counts.findings, "finding"));
  if (counts.loops) parts.push(many(counts.loops, "loop"));
  if (counts.blocked) parts.push(`${number(counts.blocked)} blocked`);
  if (session.changes.length) parts.push("settings changed");
  return [...parts, age(session.used)].filter(Boolean).join(" · ");
}

function drawLanes(parent, session) {
  sync(parent, session.lanes, (lane) => lane.lane, makeLane, (element, lane) => {
    const beads = lane.holding ? [...lane.beads, { id: "waiting", tool: "", waiting: true }] : lane.beads;
    const older = lane.calls - lane.beads.filter((bead) => bead.tool).length;
    setText(element.querySelector(".older"), older > 0 ? `${number(older)} earlier` : "");
    drawTools(element.querySelector(".tools"), lane.beads);
    const toolbar = element.querySelector("[role]");
    toolbar.setAttribute("aria-label", `Calls of ${session.session}, lane ${lane.lane || "unknown"}`);
    sync(toolbar, beads, (bead) => bead.id, (bead) => makeBead(session.session, bead), updateBead);
    keepOneStop(toolbar);
  });
}

function makeLane() {
  return make("div", {}, make("span", { class: "older" }), make("div", {
    class: "lane", role: "toolbar", onkeydown: moveFocus,
    onfocusin: (event) => keepOneStop(event.currentTarget, event.target),
  }), make("p", { class: "tools" }));
}

/** Beside the beads the names of their tools, the newest first, each with its letters. */
function drawTools(parent, beads) {
  const found = new Map();
  for (const bead of beads.filter((one) => one.tool).reverse()) {
    if (!found.has(bead.tool)) found.set(bead.tool, new Set());
    found.get(bead.tool).add(letter(bead));
  }
  const shown = [...found].slice(0, TOOLS_SHOWN).map(([tool, letters]) => `${[...letters].sort().join(" ")}: ${tool}`);
  const more = found.size - shown.length;
  setText(parent, [...shown, ...(more > 0 ? [`${many(more, "more tool")}`] : [])].join(" · "));
}

function makeBead(session, bead) {
  if (bead.waiting) return make("span", { class: "bead waiting held", role: "img", "aria-label": "a call is held" }, "…");
  return make("button", { type: "button", tabindex: -1, onclick: () => open(session, bead.id) });
}

function updateBead(element, bead) {
  if (bead.waiting) return;
  const classes = ["bead", bead.tool ? `c${bead.sign % COLOURS}` : "", bead.action, bead.held === null ? "" : "held"];
  element.className = classes.filter(Boolean).join(" ");
  element.setAttribute("aria-pressed", String(view.open?.bead === bead.id));
  const label = describeBead(bead);
  element.setAttribute("aria-label", label);
  element.title = label;
  setText(element, letter(bead));
}

function describeBead(bead) {
  const parts = bead.tool ? [`${letter(bead)}: ${bead.tool}`] : ["Blown fuse"];
  if (bead.kind) parts.push(`loop (${bead.kind})`);
  if (bead.action !== "none" && bead.tool) parts.push(bead.action.replace("_", " "));
  if (bead.held !== null) parts.push(`held ${seconds(bead.held)}`);
  return parts.join(", ");
}

// The keyboard: each lane is one stop of the tab key; arrows go on from there.

/** Let the tab key stop at one bead of a lane: the focused one, the last used one, or else the newest. */
function keepOneStop(toolbar, wanted = null) {
  const beads = [...toolbar.querySelectorAll("button")];
  const stop = beads.includes(wanted) ? wanted : beads.find((bead) => bead.tabIndex === 0 && !wanted) ?? beads.at(-1);
  for (const bead of beads) bead.tabIndex = bead === stop ? 0 : -1;
}

function moveFocus(event) {
  const toolbars = [...at("list").querySelectorAll("[role=toolbar]")];
  const beads = [...event.currentTarget.querySelectorAll("button")];
  const here = beads.indexOf(document.activeElement);
  const row = toolbars.indexOf(event.currentTarget);
  const inRow = (step) => toolbars[row + step]?.querySelector("button[tabindex='0']");
  const to = {
    ArrowLeft: () => beads[here - 1], ArrowRight: () => beads[here + 1], Home: () => beads[0], End: () => beads.at(-1),
    ArrowUp: () => inRow(-1), ArrowDown: () => inRow(1),
  }[event.key];
  if (!to) return;
  event.preventDefault();
  to()?.focus();
}

// Details of a session, and of one of its calls

/** Show a session, and a call of it (null: none). */
async function open(session, bead) {
  showDetails({ session, bead });
  await drawOpen().catch((error) => problem(at("call"), error));
  at("details-title").focus({ preventScroll: true });
}

function showDetails(what) {
  view.open = { ...what, drawn: "", opener: document.activeElement };
  at("call").replaceChildren();
  at("session").replaceChildren();
  setText(at("details-title"), "Loading");
  at("details").hidden = false;
  document.querySelector(".columns").classList.add("split");
  at("details").scrollTop = 0;
  drawList();
}

/** Show all that is known of a finding: in its session if that is live, else what was kept of it. */
export async function openFinding(id) {
  const opener = document.activeElement;
  try {
    const found = await ask("findings/detail", { id });
    if (!found.is_kept) {
      await open(found.session, found.bead);
    } else {
      const [lane] = found.lanes;
      showDetails({ session: found.session, bead: lane.beads[0].id, isKept: true });
      drawCall(found, lane, lane.beads[0]);
      drawSession(found, lane.beads[0]);
      at("details-title").focus({ preventScroll: true });
    }
  } catch (error) {
    showDetails({ session: "", bead: null, isKept: true });
    setText(at("details-title"), "Unknown");
    problem(at("call"), error);
  }
  view.open.opener = opener;
}

function close() {
  const opener = view.open?.opener;
  view.open = null;
  at("details").hidden = true;
  document.querySelector(".columns").classList.remove("split");
  drawList();
  if (opener?.isConnected) opener.focus({ preventScroll: true });
}

/** Draw the details anew if the session has changed. */
async function drawOpen() {
  const shown = view.open;
  if (!shown || shown.isKept) return;
  const version = `${view.server} ${view.sessions.get(shown.session)?.version ?? ""}`;
  if (shown.drawn === version) return;
  let session;
  try {
    const known = { server: view.server, since: view.version };
    session = await ask("activity/session", { session: shown.session, bead: shown.bead ?? 0, ...known });
    if (session.server !== view.server) { // another process's
      stale = true;
      return;
    }
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    problem(at("session"), error); // unknown since a restart: what was shown stays
    return;
  }
  if (view.open !== shown) return;
  shown.drawn = version;
  const lane = session.lanes.find((one) => one.beads.some((bead) => bead.id === shown.bead));
  const bead = lane?.beads.find((one) => one.id === shown.bead);
  if (bead) drawCall(session, lane, bead);
  else setText(at("details-title"), `Session ${shown.session}`);
  drawSession(session, bead);
}

function problem(parent, error) {
  parent.querySelector(".problem")?.remove();
  parent.prepend(make("p", { class: "problem", role: "alert" }, error.message));
}

/** Rows of a description list: pairs of a term, and a text or an element; those without are left out. */
function list(...rows) {
  const shown = rows.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return make("dl", {}, ...shown.flatMap(([term, value]) => [make("dt", {}, term), make("dd", {}, value)]));
}

function drawCall(session, lane, bead) {
  setText(at("details-title"), bead.tool ? `Call ${letter(bead)}: ${bead.tool}` : "The fuse has blown");
  const found = bead.finding;
  const parts = [
    list(
      ["Done", DONE[bead.action] ?? bead.action],
      ["When", `${clock(bead.time)}, ${age(bead.time)}`],
      ["Held", bead.held === null ? null : `${seconds(bead.held)}, then ${bead.hold}`],
      ["Arguments", bead.arguments === undefined ? null : make("pre", { tabindex: 0 }, bead.arguments)],
      ["Outcome", bead.outcome ? outcome(bead.outcome) : WITHHOLDS.has(bead.action) ? "it was not run" : session.is_kept ? "not kept" : "not known yet"],
      ["Call id", bead.call_id], ["Signature", make("code", {}, bead.signature.slice(0, 16))],
    ),
  ];
  if (found) parts.push(make("h3", {}, "Finding"), evidence(lane, found));
  if (bead.told) parts.push(make("h3", {}, `What the ${bead.action === "block" ? "client" : "model"} got`), make("blockquote", {}, bead.told));
  if (found && session.keeps_exchanges) {
    parts.push(make("p", {}, make("button", { type: "button", onclick: () => openExchange(found.id) }, "Show what the vendor sent and what the client got")));
  }
  if (found) parts.push(make("h3", {}, "What happened next"), make("p", {}, whatThen(lane, bead)), feedback(session, bead));
  if (bead.tool) parts.push(make("h3", {}, "Other findings"), findingsOf(session, bead), settings(session, bead));
  at("call").replaceChildren(...parts);
}

/** Links to the findings of the same tool, model and session. */
function findingsOf(session, bead) {
  const values = { tool: bead.tool, model: session.model, session: session.session };
  const links = Object.entries(values).filter(([, value]) => value)
    .map(([name, value]) => make("li", {}, make("a", { href: linkTo({ [name]: value }) }, `${name} ${value}`)));
  return make("ul", { class: "links" }, ...links);
}

const outcome = (came) => (came.text ? make("div", {}, came.kind.replace("_", " "), make("pre", { tabindex: 0 }, came.text)) : came.kind);

function evidence(lane, found) {
  const letters = found.rests_on.map((id) => {
    const bead = lane.beads.find((one) => one.call_id === id && id);
    return bead ? `${letter(bead)} ${id}` : id || "(no id)";
  });
  return list(
    ["Seen", `This would be ${found.seen}.`],
    ["Kinds", make("span", {}, `${found.kinds.join(", ")} (`, make("a", { href: found.url, target: "_blank", rel: "noreferrer" }, `what ${found.kind} means`), ")")],
    ["Count", `${found.count}, limit ${found.limit}${found.hard ? ", beyond the hard limit" : ""}`],
    ["Window", `pauses of at most ${seconds(found.window_s)}`],
    ["Confidence", found.confidence < 1 ? String(found.confidence) : null],
    ["Sequence", found.lap.join(" → ")],
    ["Rests on", letters.join(", ")],
    ["Returned", found.previous],
    ["Step", found.step ? `${found.step} of the ladder${found.blocks ? `, block ${found.blocks} of the lane` : ""}` : null],
    ["Otherwise", found.would ? `it would have been: ${DONE[found.would] ?? found.would}` : null],
    ["Holdout", found.arm === "holdout" ? "only observed, as a control group" : null],
    ["Advice", found.suggestion], ["Finding id", make("code", {}, found.id)],
  );
}

function whatThen(lane, bead) {
  const next = lane.beads[lane.beads.indexOf(bead) + 1];
  const said = THEN[bead.then] ?? "";
  if (!next) return said || "Nothing yet.";
  if (!next.tool) return `${said} Then the fuse blew.`.trim();
  return `${said} Next call: ${letter(next)}, ${next.tool}${next.sign === bead.sign ? ", the same again." : ", another one."}`.trim();
}

function feedback(session, bead) {
  const place = make("p", { class: "feedback" });
  if (bead.feedback) place.append(make("span", {}, `Rating: ${bead.feedback.replace("_", " ")}.`));
  else {
    place.append(action("This was no loop", () => ask("feedback", {}, { finding: bead.finding.id, kind: "false_positive" }),
      () => "Thank you: it is counted as a false positive."));
  }
  place.append(letPass(session, bead));
  return place;
}

/** Buttons that let a call pass from now on, also where it was refused. */
function letPass(session, bead) {
  const client = () => (session.clients.length > 1 ? { client: at("client").value } : {});
  const allow = (what) => ask("allow", client(), { finding: bead.finding.id, what });
  const lines = make("pre", { tabindex: 0, hidden: true });
  const show = (told) => {
    lines.textContent = told.lines;
    lines.hidden = false;
    return "Nothing is changed: add these lines to the settings file.";
  };
  return make("span", {},
    action("Let this call pass", () => allow("call"), () => "It passes from the next request on."),
    action(`Let ${bead.tool} pass in this session`, () => allow("tool"), () => "It passes from the next request on."),
    action(`Let ${bead.tool} pass always`, () => allow("always"), show), lines);
}

/** A button that does something and says what came of it, beside itself. */
function action(label, run, say) {
  const said = make("span", { class: "note", role: "status" });
  const button = make("button", { type: "button", onclick: async () => {
    button.disabled = true;
    try {
      setText(said, ` ${say(await run())}`);
      askAnew();
    } catch (error) {
      setText(said, ` ${error.message}`);
    } finally {
      button.disabled = false;
    }
  } }, label);
  return make("span", {}, button, said);
}

/** The settings that hold for a call of this tool, and where each is from. */
function settings(session, bead) {
  const place = make("div", {}, make("h3", {}, "Settings"));
  const since = session.changes.filter((change) => change.time > bead.time).at(-1);
  if (since) place.append(make("p", { class: "note" }, `Changed since this call: ${since.what}`));
  const query = { tool: bead.tool, session: session.session };
  const model = session.model ? { model: `${session.provider}:${session.model}` } : {};
  ask("settings", { ...query, ...model }).catch(() => ask("settings", { tool: bead.tool })).then((rows) => {
    const loop = rows.filter((row) => row.key.startsWith("tool_call_loop."));
    const main = ["mode", "max_repeats", "ttl_seconds"].map((key) => `tool_call_loop.${key}`);
    const isMain = (row) => main.includes(row.key) || row.tier !== "default";
    place.append(table("In effect now", loop.filter(isMain)),
      make("details", {}, make("summary", {}, "All other settings"), table("Defaults", loop.filter((row) => !isMain(row)))));
  }).catch((error) => problem(place, error));
  return place;
}

function table(caption, rows) {
  const row = (one) => make("tr", {}, make("th", { scope: "row" }, make("code", {}, one.key.replace("tool_call_loop.", ""))),
    make("td", {}, make("code", {}, typeof one.value === "string" ? one.value : JSON.stringify(one.value))),
    make("td", {}, one.source ? `${one.tier}: ${one.source}` : one.tier));
  const heads = ["Setting", "Value", "From"].map((head) => make("th", { scope: "col" }, head));
  return make("table", {}, make("caption", {}, caption), make("thead", {}, make("tr", {}, ...heads)),
    make("tbody", {}, ...rows.map(row)));
}

// What can be changed of a session

function drawSession(session, bead) {
  const place = at("session");
  if (place.contains(document.activeElement)) return; // somebody types
  const which = { session: session.session };
  const client = session.clients.length > 1 ? clientField(session) : null;
  const chosen = () => (client ? { ...which, client: client.querySelector("select").value } : which);
  const changes = session.changes.map((one) => make("li", {}, `${clock(one.time)}: ${one.what} (${one.by})`)).reverse();
  place.replaceChildren(
    ...(bead ? [make("h3", {}, `Session ${session.session}`)] : []),
    list(["Named by", session.source], ["Model", session.model], ["Format", session.dialect],
      ["Lanes", String(session.lanes.length)], ["First seen", clock(session.began)]),
    make("h4", {}, "Fuse"),
    make("p", {}, session.lanes.some((lane) => lane.blown) ? "It has blown: callfuse answers without asking the model. "
      : "It is intact. ", action("Reset the fuse", () => ask("reset", chosen(), {}), () => "Blocks and evidence are forgotten: a blocked request can continue.")),
    ...(session.allowed.length ? [make("h4", {}, "Let pass"), letPassList(session, chosen)] : []),
    make("h4", {}, "Settings of this session"),
    ...(client ? [client] : []),
    ...(session.problem ? [make("p", { class: "note" }, `Nothing can be set: ${session.problem}.`)]
      : session.keys.length ? session.keys.map((key) => changeForm(key, chosen))
        : [make("p", { class: "note" }, "Nothing can be set: the settings of commands lock all keys.")]),
    ...(changes.length ? [make("h4", {}, "Changes"), make("ul", {}, ...changes)] : []),
  );
}

/** What a person lets pass, and a button that takes it back. */
function letPassList(session, chosen) {
  const what = (one) => (one.what === "tool" ? `every call of ${one.tool}` : `a call of ${one.tool}`);
  const { session: name } = session;
  return make("div", {}, make("ul", {}, ...session.allowed.map((one) => make("li", {}, what(one)))),
    action("Take it back", () => {
      const { session: _, ...rest } = chosen();
      return ask("allow", rest, { session: name, what: "nothing" });
    }, () => "Nothing passes any more."));
}

function clientField(session) {
  const options = session.clients.map((tag) => make("option", { value: tag }, tag));
  return make("p", {}, make("label", { for: "client" }, "Several clients have a session of this name: "),
    make("select", { id: "client" }, ...options));
}

/** A form for one setting, by the name that it has in the chat. */
function changeForm(key, chosen) {
  const id = `set-${key.key}`;
  const input = make("input", { id, value: key.set ?? "", placeholder: "not set", autocomplete: "off",
    autocapitalize: "off", spellcheck: "false", "aria-describedby": `${id}-use` });
  const said = make("p", { class: "note", id: `${id}-use` }, key.use);
  const send = async (value) => {
    try {
      await ask("change", chosen(), { [key.key]: value });
      setText(said, value === null ? "It has its previous value again." : "It applies from the next request on.");
      if (value === null) input.value = "";
      askAnew();
    } catch (error) {
      setText(said, error.message);
    }
  };
  const submit = (event) => {
    event.preventDefault();
    send(input.value.trim());
  };
  return make("form", { class: "change", onsubmit: submit }, make("label", { for: id }, key.key), input,
    make("button", { "aria-label": `Set ${key.key}` }, "Set"),
    make("button", { type: "button", "aria-label": `Unset ${key.key}`, onclick: () => send(null) }, "Unset"), said);
}

// The beginning

function turn(by) {
  view.page = Math.max(0, view.page + by);
  askAnew();
  at("sessions").focus();
}

function filter() {
  view.page = 0;
  askAnew();
}

at("filter").addEventListener("submit", (event) => event.preventDefault());
at("search").addEventListener("input", filter);
at("found").addEventListener("change", filter);
at("newer").addEventListener("click", () => turn(-1));
at("older").addEventListener("click", () => turn(1));
at("close").addEventListener("click", close);
document.addEventListener("keydown", (event) => event.key === "Escape" && view.open && !at("exchange").open && close());
document.addEventListener("visibilitychange", nudge);
setUpFindings();
listen();
refresh();
