// The list of experiments, and what is done to one of them from a row or from its page.

import { h, replace, icon } from "./dom.js";
import * as api from "./api.js";
import { banner, button, confirm, empty, here, link, message, page, paged, pending, searchField, select, status, table, to } from "./parts.js";
import { decimal, integer, none, plural } from "./format.js";
import { sparkline, tint } from "./charts.js";

export async function show(context) {
  if (context.parts.length === 0) return context.query.has("new") ? (await import("./experiment-form.js")).show(context, null) : list(context);
  const [key, part] = context.parts;
  if (part === "edit") return (await import("./experiment-form.js")).show(context, key);
  return (await import("./results.js")).show(context, key);
}

// MARK: What the screens of experiments share

export const all = async options => {
  try {
    return (await api.get("/v1/experiments", null, options)).experiments;
  } catch (error) {
    // A new server has no datafile.
    if (error.status === 404 && !error.isUnknownRoute) return [];
    throw error;
  }
};

export const load = key => api.call("GET", api.path("experiments", key));
export const save = (key, body, ifMatch) => api.call("PUT", api.path("experiments", key), { body, ifMatch });
export const enrollmentOf = experiment => experiment.enrollment ?? "open";

/// The shares of the variations as one bar.
export function shares(experiment) {
  const text = experiment.variations.map(v => `${v.key} ${decimal(v.share, 2)}%`).join(", ");
  return h("div.shares", { role: "img", "aria-label": text, title: text },
    experiment.variations.slice(0, 40).map((v, index) => h("span", { class: "fill", style: { ...tint(index), "flex-grow": v.share } })),
    h("span.rest", { style: { "flex-grow": Math.max(0, 100 - experiment.variations.reduce((sum, v) => sum + v.share, 0)) } }));
}

const explanations = {
  Paused: "While it is paused, nobody is given a variation. Users keep their assignments, and have them again when it runs.",
  Running: "It gives variations to users again. Who had one keeps it.",
  Archived: "Nobody is given a variation any more, and it leaves the list of active experiments. Assignments and results stay; it can be brought back.",
};

/// Asks, then changes the status. Resolves with whether it was changed.
export async function setStatus(experiment, status) {
  const verb = { Paused: "Pause", Running: experiment.status === "Archived" ? "Bring back" : "Resume", Archived: "Archive" }[status];
  const done = await confirm(`${verb} ${experiment.key}?`, h("p", explanations[status]), {
    label: verb, danger: status === "Archived",
    action: async () => {
      const path = api.path("experiments", experiment.key);
      return status === "Archived" ? api.call("DELETE", path) : api.call("PUT", path, { body: { status } });
    },
  });
  if (done) message("good", { Paused: "Paused", Running: "Running again:", Archived: "Archived" }[status] + ` ${experiment.key}.`, done.request);
  return Boolean(done);
}

export function pauseSwitch(experiment, changed) {
  const isRunning = experiment.status === "Running";
  return h("button", { role: "switch", class: "switch", "aria-checked": String(isRunning), "aria-label": `${experiment.key} is running`,
    disabled: experiment.status === "Archived",
    onclick: async () => { if (await setStatus(experiment, isRunning ? "Paused" : "Running")) changed(); } }, h("span"));
}

// MARK: List

const filters = [["active", "Active"], ["Running", "Running"], ["Paused", "Paused"], ["Not started", "Not started"], ["Archived", "Archived"], ["all", "All"]];
const orders = [["newest", "Newest first"], ["name", "By name"]];

async function list(context) {
  const { query } = context;
  let experiments = await all();
  const counts = new Map();
  const content = h("div");
  const summary = h("p.hidden", { role: "status" });

  const visible = () => {
    const text = (query.get("search") ?? "").toLowerCase(), filter = query.get("status") ?? "active";
    const found = experiments.filter(e => (filter === "all" || (filter === "active" ? e.status !== "Archived" : e.status === filter))
      && (e.key.toLowerCase().includes(text) || e.id === text));
    return query.get("order") === "name" ? found.sort((a, b) => a.key.localeCompare(b.key)) : found.reverse();
  };

  const refresh = async () => {
    experiments = await all();
    counts.clear();
    draw();
  };

  const row = [
    { name: "Experiment", class: "wide", cell: e => h("a.name", { href: to("experiments", e.key) }, e.key) },
    { name: "Status", cell: e => status(e.status) },
    { name: "Enrollment", cell: e => e.status === "Archived" ? h("span.faint", none) : enrollmentOf(e) === "open" ? "open" : h("span.badge.warn", "closed") },
    { name: "Variations", class: "shares-cell", cell: e => [shares(e), h("span.faint.small", plural(e.variations.length, "variation"))] },
    { name: "Traffic", number: true, cell: e => `${decimal(e.traffic)}%` },
    { name: "Users", number: true, cell: e => usersOf(e, "count") },
    { name: "Enrolled each day", class: "spark", cell: e => usersOf(e, "line") },
    { name: "Running", cell: e => pauseSwitch(e, refresh) },
  ];

  /// Counts come from the results of each shown row.
  function usersOf(experiment, part) {
    const place = h("span.faint", "…");
    if (!counts.has(experiment.key)) counts.set(experiment.key, enrollment(experiment));
    counts.get(experiment.key).then(({ users, days }) => replace(place, part === "count" ? integer(users) : days?.length > 1 ? sparkline(days) : none),
      () => replace(place, none));
    return place;
  }

  function draw() {
    const found = visible();
    summary.textContent = plural(found.length, "experiment");
    replace(content, found.length === 0
      ? empty("No experiment fits", "Change the search or the status.")
      : paged(found, 25, Number(query.get("page")), rows => table("Experiments", row, rows), number => context.setQuery({ page: number > 1 ? number : null })));
  }

  context.onChange(() => refresh().catch(() => {}));
  const actions = [h("a.button.primary", { href: "#/experiments?new=1" }, icon("plus"), "New experiment")];
  if (experiments.length === 0) {
    return page("Experiments", { actions }, empty("No experiment yet", "Make one here, or with one request:",
      `curl -X PUT ${here("v1/experiments/checkout")} -d '{"variations":["control","new"]}'`));
  }
  draw();
  const set = name => value => { context.setQuery({ [name]: value, page: null }); draw(); };
  return page("Experiments", { actions },
    h("div.filters", searchField("Search experiments", query.get("search") ?? "", set("search")),
      select(filters, query.get("status") ?? "active", { "aria-label": "Status", onchange: e => set("status")(e.target.value === "active" ? null : e.target.value) }),
      select(orders, query.get("order") ?? "newest", { "aria-label": "Order", onchange: e => set("order")(e.target.value === "newest" ? null : e.target.value) })),
    summary, content);
}

/// The users who count, and how many came each day where the server tells. Any goal has the same users.
async function enrollment(experiment) {
  const path = api.path("experiments", experiment.key, "results");
  const options = { silent: true };
  try {
    const results = await api.get(path, { goal: "-", by: "day" }, options);
    return { users: results.users.counted, days: daily(results) };
  } catch (error) {
    if (error.status !== 400) throw error;
    return { users: (await api.get(path, { goal: "-" }, options)).users.counted };
  }
}

/// The users enrolled on each day, over all variations.
export function daily(results) {
  return (results.days ?? []).map(d => d.users ?? (d.variations ?? []).reduce((sum, v) => sum + v.users, 0));
}
