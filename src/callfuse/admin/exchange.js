// Shows one exchange: what the vendor sent beside what the client got. Lines that only one side has are marked.

import { ask, at, make, many, setText } from "./page.js";

/** Show the exchange of a finding in a dialog, or say why it cannot be shown. */
export async function openExchange(id) {
  setText(at("exchange-note"), "Loading");
  at("sides").replaceChildren();
  const opener = document.activeElement;
  at("exchange").addEventListener("close", () => {
    if (!opener.isConnected) at("details-title").focus({ preventScroll: true }); // it was drawn anew
  }, { once: true });
  at("exchange").showModal();
  try {
    draw(await ask("findings/exchange", { id }));
  } catch (error) {
    setText(at("exchange-note"), error.message);
  }
}

function draw(exchange) {
  const { vendor, client } = exchange;
  const began = new Date(exchange.began * 1000).toLocaleString();
  const isOver = exchange.is_over ? "" : " It has not ended yet: open it again to see more.";
  setText(at("exchange-note"), `The exchange began ${began}. Lines that only one side has are marked.${isOver}`);
  const came = vendor.map((answer, place) => section(`Answer ${place + 1} of ${vendor.length}`, answer, lines([client])));
  at("sides").replaceChildren(
    side("What the vendor sent", came.length ? came : [none("The vendor was not asked: callfuse answered by itself.")]),
    side("What the client got", client ? [section("Answer", client, lines(vendor))] : [none("Nothing yet.")]),
  );
}

const side = (title, parts) => make("section", {}, make("h3", {}, title), ...parts);
const none = (text) => make("p", { class: "note" }, text);

/** All lines of some answers. */
function lines(answers) {
  const found = new Set([""]);
  for (const answer of answers.filter(Boolean)) {
    for (const text of [answer.first, answer.last]) for (const line of text.split("\n")) found.add(line);
  }
  return found;
}

function section(title, answer, others) {
  const what = [`status ${answer.status}`, answer.media_type, answer.coding, many(answer.size, "byte")];
  if (!answer.ended) what.push("not complete");
  const gap = answer.left_out ? make("span", { class: "gap" }, `${many(answer.left_out, "byte")} left out`) : null;
  const text = make("pre", { tabindex: 0, "aria-label": title }, ...marked(answer.first, others), gap, ...marked(answer.last, others));
  return make("div", {}, make("h4", {}, title), make("p", { class: "note" }, what.filter(Boolean).join(", ")),
    answer.is_unpacked ? null : none("Not all of it could be unpacked."), text);
}

/** A text as nodes: each run of lines that the other side does not have is one mark. */
function marked(text, others) {
  const nodes = [];
  let run = [];
  let isOnly = false;
  const end = () => {
    if (run.length) nodes.push(isOnly ? make("mark", {}, run.join("")) : run.join(""));
    run = [];
  };
  for (const line of text.split(/(?<=\n)/)) {
    const only = !others.has(line.replace(/\n$/, ""));
    if (only !== isOnly) end();
    isOnly = only;
    run.push(line);
  }
  end();
  return nodes;
}
