// A user: what the server keeps, what it would answer now and why, and what admins did.

import { h, replace, icon } from "./dom.js";
import * as api from "./api.js";
import { badge, banner, button, card, code, commandLine, confirm, dialog, empty, facts, failure, field, here, link, message, moment, page, paged, pending, searchField, section, select, table, to } from "./parts.js";
import { exactTime, integer, none, plural } from "./format.js";
import { all } from "./experiments.js";
import { entryList } from "./audit.js";

const recentKey = "holdfast.users";
const recent = () => { try { return JSON.parse(sessionStorage.getItem(recentKey)) ?? []; } catch { return []; } };

export async function show(context) {
  return context.parts.length === 0 ? lookup() : user(context, context.parts.join("/"));
}

function lookup() {
  const input = h("input", { type: "search", "aria-label": "User id", placeholder: "User id", required: true, "data-focus": true });
  const users = recent();
  return page("Users", { below: "See what a user has, what they would get now and why, and change it." },
    h("form.lookup", { onsubmit: event => { event.preventDefault(); if (input.value) location.hash = to("users", input.value); } },
      h("div.search-field.large", icon("search"), input), h("button", { type: "submit", class: "button primary" }, "Look up")),
    users.length > 0 ? section("Looked up in this tab", {}, h("ul.links", users.map(u => h("li", link(to("users", u), u)))))
      : empty("Look somebody up", "By the id that your apps send. With curl:", `curl ${here("v1/profiles/ann?detail=true")}`));
}

// MARK: A user

const profilePath = id => api.path("profiles", id);
const experimentPath = (id, experiment) => api.path("profiles", id, "experiments", experiment);

async function user(context, id) {
  sessionStorage.setItem(recentKey, JSON.stringify([id, ...recent().filter(u => u !== id)].slice(0, 10)));
  const [profile, experiments] = await Promise.all([profileOf(id), all({ silent: true })]);
  const state = { profile, experiments };
  const assignments = h("div");
  const log = pending(() => auditOf(id));
  const refresh = async () => {
    state.profile = await profileOf(id);
    drawAssignments();
    log.reload();
  };
  const drawAssignments = () => replace(assignments, assignmentTable(context, id, state, refresh));
  drawAssignments();
  context.onChange(async () => { state.experiments = await all({ silent: true }); await refresh(); });
  return page(id, {
    above: link(to("users"), "Users"),
    below: profile ? plural(Object.keys(profile.experiment_bucket_map).length, "assignment") : "No profile is stored of this user.",
    actions: [
      button("Merge…", () => merge(id).then(done => done && refresh())),
      button("Erase…", () => erase(id).then(done => done && context.reload()), "danger quiet")],
  }, section("Experiments", { note: "What is stored of the user, beside what the server would answer now." }, assignments),
  h("div.columns",
    section("Attributes", { actions: button("Edit…", () => editAttributes(id).then(done => done && context.reload()), "quiet") }, pending(() => attributesOf(id))),
    section("Exposures and goals", {}, pending(() => events(id)))),
  section("What admins did", { actions: link(`#/audit?user_id=${encodeURIComponent(id)}`, "In the audit log") }, log));
}

async function profileOf(id) {
  try { return await api.get(profilePath(id), { detail: "true" }); } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}

function assignmentTable(context, id, state, refresh) {
  const map = state.profile?.experiment_bucket_map ?? {};
  const byID = new Map(state.experiments.map(e => [e.id, e]));
  const has = Object.entries(map).map(([experiment, assignment]) => ({ id: experiment, experiment: byID.get(experiment), assignment }));
  has.sort((a, b) => (a.experiment?.key ?? `~${a.id}`).localeCompare(b.experiment?.key ?? `~${b.id}`));
  const others = state.experiments.filter(e => e.status === "Running" && !map[e.id]).map(experiment => ({ id: experiment.id, experiment }));
  const rows = [...has, ...others];
  if (rows.length === 0) return empty("No experiment yet", "Make one, and see here what this user would get.", null, h("a.button.primary", { href: "#/experiments?new=1" }, "New experiment"));
  const answers = new Map();
  const columns = [
    { name: "Experiment", class: "wide", cell: r => r.experiment ? h("a.name", { href: to("experiments", r.experiment.key) }, r.experiment.key) : h("span", h("span.name", r.id), h("span.faint.small", " not in the datafile")) },
    { name: "Has", cell: r => r.assignment ? h("strong", variationName(r)) : h("span.faint", "nothing") },
    { name: "Source", cell: r => r.assignment ? badge(r.assignment.source, r.assignment.source === "override" ? "warn" : "") : h("span.faint", none) },
    { name: "Since", cell: r => r.assignment ? moment(r.assignment.assigned_at) : h("span.faint", none) },
    { name: "Expires", cell: r => !r.assignment ? h("span.faint", none) : r.assignment.expires_at ? moment(r.assignment.expires_at) : h("span.faint", "never") },
    { name: "Would get now", cell: r => answerCell(r) },
    { name: "Actions", hidden: true, class: "row-actions", cell: r => h("div",
      button("Override…", () => override(id, r).then(done => done && refresh()), "quiet"),
      r.assignment && button(r.assignment.source === "override" ? "Remove override…" : "Remove…", () => remove(id, r).then(done => done && refresh()), "quiet")) },
  ];

  function answerCell(row) {
    if (!row.experiment) return h("span.faint", none);
    if (!answers.has(row.id)) answers.set(row.id, answer(id, row.experiment));
    const place = h("div.answer", h("span.faint", "…"));
    answers.get(row.id).then(found => {
      const differs = row.assignment && found.variation_id !== row.assignment.variation_id;
      replace(place, h("details", h("summary", found.variation_id === null ? h("span.faint", "nothing") : h("strong", found.variation_key ?? found.variation_id),
        differs && badge("differs", "warn"), h("span.why", "why")), reasonsOf(found)));
    }, error => { if (error.name !== "AbortError") replace(place, h("span.faint", { title: error.message }, error.message)); });
    return place;
  }

  return rows.length > 25 ? withFilter(rows, columns, context) : table("Experiments of the user", columns, rows);
}

function withFilter(rows, columns, context) {
  const content = h("div");
  const draw = text => {
    const found = rows.filter(r => (r.experiment?.key ?? r.id).toLowerCase().includes(text.toLowerCase()));
    replace(content, found.length ? paged(found, 25, 1, part => table("Experiments of the user", columns, part)) : empty("No experiment fits"));
  };
  draw(context.query.get("search") ?? "");
  return h("div", h("div.filters", searchField("Search the user’s experiments", context.query.get("search") ?? "", text => { context.setQuery({ search: text }); draw(text); })), content);
}

const variationName = row => row.experiment?.variations.find(v => v.id === row.assignment.variation_id)?.key ?? row.assignment.variation_id;

let explains = true;

/// What an assignment would give now, with the steps that lead to it. Nobody is enrolled by asking.
async function answer(id, experiment) {
  const options = { sdkKey: experiment.sdk_key };
  if (explains) {
    try { return await api.get(`${experimentPath(id, experiment.key)}/explain`, null, options); } catch (error) {
      if (!error.isUnknownRoute) throw error;
      explains = false;
    }
  }
  return api.get("/v1/assign", { user_id: id, experiment: experiment.key }, options);
}

function reasonsOf(found) {
  const steps = found.steps ?? found.reasons ?? [];
  return h("ol.reasons", steps.map(step => h("li", typeof step === "string" ? step : step.detail ?? step.text ?? JSON.stringify(step))));
}

// MARK: Attributes, events, audit

async function attributesOf(id) {
  const found = Object.entries((await api.get(`${profilePath(id)}/attributes`, null)).attributes ?? {});
  if (found.length === 0) return empty("No attributes", "Apps set them:", `curl -X PATCH ${here(`v1/profiles/${encodeURIComponent(id)}/attributes`)} -d '{"country":"de"}'`);
  return card(facts(found.map(([name, value]) => [name, Array.isArray(value) ? value.join(", ") : String(value)])));
}

/// There is no route for the events of one user; the exports have those of all.
async function events(id) {
  const line = JSON.stringify(id).replaceAll("'", "'\\''");
  const find = path => `curl -s ${here(path)} | grep -F '"user_id":${line}'`;
  return card(h("p.note", "The server exports exposures and goals of all users, one a line. These commands find this user’s (a token needs the scope admin):"), commandLine(find("v1/exposures")), commandLine(find("v1/events")));
}

async function auditOf(id) {
  const { entries } = await api.get("/v1/audit", { user_id: id, limit: 20 });
  return entries.length ? entryList(entries) : empty("Nothing", "Overrides, removals and merges of this user appear here.");
}

// MARK: Actions

async function override(id, row) {
  const experiment = row.experiment;
  const options = experiment ? experiment.variations.map(v => [v.id, v.key]) : [];
  const input = experiment ? select(options, row.assignment?.variation_id ?? options[0]?.[0]) : h("input", { required: true, value: row.assignment?.variation_id ?? "" });
  const choice = field("Variation", input, { pointer: "/variation_id" });
  const name = experiment?.key ?? row.id;
  const done = await confirm(`Override ${name} for ${id}?`,
    h("p", "The user gets this variation from now on, whatever apps save, until an admin removes the override. They no longer count in the results."), {
      label: "Override", fields: [choice],
      action: () => api.call("PUT", experimentPath(id, name), { body: { variation_id: input.value }, sdkKey: experiment?.sdk_key }),
    });
  if (done) message("good", `${id} now has ${done.data.variation_key ?? done.data.variation_id} in ${name}.`, done.request);
  return done;
}

async function remove(id, row) {
  const name = row.experiment?.key ?? row.id;
  const done = await confirm(`Remove ${variationName(row)} from ${id}?`,
    h("p", `The assignment in ${name} is deleted. When the user is next asked for, they are given a variation anew: by their hash, if the experiment runs and they fit its audience.`), {
      label: "Remove", danger: true, action: () => api.call("DELETE", experimentPath(id, name), { sdkKey: row.experiment?.sdk_key }),
    });
  if (done) message("good", `Removed the assignment of ${id} in ${name}.`, done.request);
  return done;
}

async function merge(id) {
  const from = field("From", h("input", { required: true }), { hint: "The id that the user had before they logged in. Its profile is erased.", pointer: "/from" });
  const rule = field("Where both have a variation", select([["keep", `${id} keeps theirs`], ["replace", "take that of the other profile"]], "keep"), { pointer: "/on_conflict" });
  const done = await confirm(`Merge another profile into ${id}?`,
    h("p", "Its assignments, exposures, goals and attributes join this user’s, and nothing is counted twice. This cannot be undone."), {
      label: "Merge", fields: [from, rule], danger: true,
      action: () => api.call("POST", `${profilePath(id)}/merge`, { body: { from: from.input.value.trim(), on_conflict: rule.input.value } }),
    });
  if (done) message("good", `Merged ${from.input.value.trim()} into ${id}.`, done.request);
  return done;
}

async function erase(id) {
  const keep = h("input", { type: "checkbox" });
  const done = await confirm(`Erase ${id}?`, [
    h("p", "Their profile, attributes, exposures and goals are deleted, they leave every total, and the audit log forgets their id. This cannot be undone."),
    h("label.check", keep, "Keep what was counted in the totals of results")], {
    label: "Erase", danger: true, word: id,
    action: () => api.call("DELETE", profilePath(id), { query: keep.checked ? { keep_totals: "true" } : {} }),
  });
  if (done) message("good", `Erased ${id}.`, done.request);
  return done;
}

async function editAttributes(id) {
  const [{ attributes }, stored] = await Promise.all([api.get("/v1/attributes", null, { silent: true }),
    api.get(`${profilePath(id)}/attributes`, null, { silent: true }).then(d => d.attributes ?? {}, () => ({}))]);
  if (attributes.length === 0) return dialog("Attributes", close => [empty("No attribute is defined", "Define attributes first.", null, h("a.button.primary", { href: to("attributes"), onclick: () => close() }, "Attributes"))]);
  const text = value => value === undefined ? "" : Array.isArray(value) ? value.join("; ") : String(value);
  const fields = attributes.map(a => field(a.name, a.type === "boolean" ? select([["", none], "true", "false"], text(stored[a.name]))
    : a.type === "selection" && !a.multiple ? select([["", none], ...a.values], text(stored[a.name])) : h("input", { value: text(stored[a.name]) }),
    { hint: a.type === "selection" && a.multiple ? `several of ${a.values.join(", ")}, with ; between` : a.type, pointer: `/${a.name.replaceAll("~", "~0").replaceAll("/", "~1")}` }));
  const done = await confirm(`Attributes of ${id}`, h("p", "An empty value removes the attribute."), {
    label: "Save", fields, action: async () => {
      const set = {}, removed = [];
      attributes.forEach((a, index) => {
        const value = fields[index].input.value.trim();
        if (value === text(stored[a.name])) return;
        if (value === "") removed.push(a.name);
        else set[a.name] = a.type === "number" && Number.isFinite(Number(value)) ? Number(value) : a.type === "boolean" ? value === "true" : value;
      });
      const path = `${profilePath(id)}/attributes`;
      let last = true;
      if (Object.keys(set).length) last = await api.call("PATCH", path, { body: set });
      if (removed.length) last = await api.call("DELETE", `${path}?${removed.map(n => `name=${encodeURIComponent(n)}`).join("&")}`);
      return last;
    },
  });
  if (done?.request) message("good", `Saved the attributes of ${id}.`, done.request);
  return done;
}
