// An experiment with its results: what each variation did, and what may be concluded from it.

import { h, replace, icon } from "./dom.js";
import * as api from "./api.js";
import { badge, banner, button, card, copy, download, empty, failure, field, here, link, page, pending, section, select, status, table, to } from "./parts.js";
import { decimal, integer, measure, none, pValue, percent, plural, short, signed, utcDay } from "./format.js";
import { interval, lineChart, scale, swatch } from "./charts.js";
import { daily, enrollmentOf, load, setStatus, shares } from "./experiments.js";

const goalsKey = "holdfast.goals";
const confidences = ["0.9", "0.95", "0.99"];

export async function show(context, key) {
  const { query } = context;
  const experiment = (await load(key)).data;
  const goals = query.getAll("goal");
  const known = await knownGoals(experiment);
  if (goals.length === 0) goals.push(...remembered(experiment.key).filter(g => known.includes(g)).slice(0, 3));
  if (goals.length === 0 && known.length > 0) goals.push(known[0]);

  const body = h("div.results");
  const overview = h("div");
  const options = () => ({ baseline: query.get("baseline"), confidence: query.get("confidence") });
  const view = { metric: query.get("metric") ?? "conversion", cuped: query.get("cuped") === "1" };
  let loaded = [];

  /// Fetches the results of all goals, and draws them.
  async function refresh() {
    const path = api.path("experiments", key, "results");
    loaded = await Promise.all((goals.length ? goals : ["-"]).map(async goal => {
      const question = { goal, ...options() };
      try {
        return { goal, results: await withDays(path, question) };
      } catch (error) {
        if (error.name === "AbortError") throw error;
        return { goal, error };
      }
    }));
    draw();
  }

  function draw() {
    const first = loaded.find(l => l.results)?.results;
    replace(overview, first && summary(experiment, first));
    replace(body, first && checks(first), goals.length === 0 ? noGoal(key) : loaded.map(l => l.error
      ? section(l.goal, { actions: removeGoal(l.goal) }, failure(l.error)) : goalSection(l.goal, l.results, view, removeGoal(l.goal))));
  }

  const removeGoal = goal => goals.length > 1 && button("Remove", () => { goals.splice(goals.indexOf(goal), 1); changeGoals(); }, "quiet");

  function changeGoals() {
    query.delete("goal");
    for (const goal of goals) query.append("goal", goal);
    remember(key, goals);
    context.setQuery({});
    refresh();
  }

  const names = h("datalist", { id: "known-goals" }, known.map(g => h("option", { value: g })));
  const goalInput = h("input", { list: "known-goals", placeholder: "Add a goal", "aria-label": "Add a goal" });
  const addGoal = event => {
    event.preventDefault();
    const goal = goalInput.value.trim();
    goalInput.value = "";
    if (goal && !goals.includes(goal)) { goals.push(goal); changeGoals(); }
  };
  const choose = name => event => { context.setQuery({ [name]: event.target.value }); refresh(); };
  const redraw = change => { Object.assign(view, change); context.setQuery({ metric: view.metric === "conversion" ? null : view.metric, cuped: view.cuped ? "1" : null }); draw(); };
  const controls = h("div.filters",
    h("form.add", { onsubmit: addGoal }, goalInput, names, h("button", { type: "submit", class: "button" }, "Add")),
    select([["conversion", "Conversion"], ["value", "Value per user"]], view.metric, { "aria-label": "Metric", onchange: e => redraw({ metric: e.target.value }) }),
    select([["", "Baseline: automatic"], ...experiment.variations.map(v => [v.key, `Baseline: ${v.key}`])], query.get("baseline") ?? "", { "aria-label": "Baseline", onchange: choose("baseline") }),
    select(confidences.map(c => [c === "0.95" ? "" : c, `${percent(Number(c), 0)} intervals`]), confidences.includes(query.get("confidence")) ? query.get("confidence") : "", { "aria-label": "Confidence", onchange: choose("confidence") }),
    h("label.check", h("input", { type: "checkbox", checked: view.cuped, onchange: e => redraw({ cuped: e.target.checked }) }), "CUPED"),
    h("div.actions",
      button("CSV", () => exportAs(key, goals, options(), "csv"), "quiet"), button("SVG", () => exportAs(key, goals, options(), "svg"), "quiet"),
      button("Copy link", () => { remember(key, goals); const url = new URL(location.href); copy(withGoals(url, goals), "The link was copied. It has no token in it."); }, "quiet")));

  context.onChange(() => context.reload());
  context.every(20_000, () => { if (!document.hidden && !document.querySelector("dialog[open]")) refresh().catch(() => {}); });
  await refresh();
  const changed = done => { if (done) context.reload(); };
  const isRunning = experiment.status === "Running";
  return page(experiment.key, {
    above: link(to("experiments"), "Experiments"), below: [status(experiment.status), " ", enrollmentOf(experiment) === "closed" && badge("enrollment closed", "warn")],
    actions: [
      h("a.button.primary", { href: to("experiments", key, "edit") }, "Edit"),
      experiment.status !== "Archived" && button(isRunning ? "Pause" : "Run", async () => changed(await setStatus(experiment, isRunning ? "Paused" : "Running"))),
      experiment.status === "Archived" ? button("Bring back", async () => changed(await setStatus(experiment, "Running"))) : button("Archive", async () => changed(await setStatus(experiment, "Archived"))),
      link(`#/audit?target=${encodeURIComponent(key)}`, h("span.button.quiet", "History")),
    ],
  }, overview, controls, body);
}

// MARK: Goals

const remembered = key => { try { return JSON.parse(sessionStorage.getItem(goalsKey))?.[key] ?? []; } catch { return []; } };
function remember(key, goals) {
  let all = {};
  try { all = JSON.parse(sessionStorage.getItem(goalsKey)) ?? {}; } catch { /* It is written anew. */ }
  sessionStorage.setItem(goalsKey, JSON.stringify({ ...all, [key]: goals }));
}

function withGoals(url, goals) {
  const [path, text = ""] = url.hash.split("?");
  const query = new URLSearchParams(text);
  query.delete("goal");
  for (const goal of goals) query.append("goal", goal);
  url.hash = `${path}?${query}`;
  return url.href;
}

/// The goals of the datafile, and those of the first stored events where the token may read them: no route lists goals.
async function knownGoals(experiment) {
  const options = { silent: true, sdkKey: experiment.sdk_key };
  const found = new Set();
  const [datafile, events] = await Promise.allSettled([
    api.get("/v1/datafile", null, options), api.get("/v1/events", { limit: 500, format: "json" }, options)]);
  if (events.status === "fulfilled") {
    const counts = new Map();
    for (const event of Object.values(events.value).find(Array.isArray) ?? []) counts.set(event.goal, (counts.get(event.goal) ?? 0) + 1);
    [...counts].sort((a, b) => b[1] - a[1]).forEach(([goal]) => found.add(goal));
  }
  if (datafile.status === "fulfilled") for (const event of datafile.value?.events ?? []) found.add(event.key);
  return [...found];
}

const noGoal = key => empty("Which goal?", "Add the name of a goal above. Apps report goals like this:",
  `curl ${here("v1/events")} -d '{"user_id":"ann","goal":"purchase","value":49.9}'`);

let hasDays = true;
async function withDays(path, question) {
  if (hasDays) {
    try { return await api.get(path, { ...question, by: "day" }); } catch (error) {
      if (!(error.status === 400 && /`by`/.test(error.message))) throw error;
      hasDays = false;
    }
  }
  return api.get(path, question);
}

async function exportAs(key, goals, options, format) {
  for (const goal of goals) {
    const path = format === "svg" ? api.path("experiments", key, "results.svg") : api.path("experiments", key, "results");
    const text = (await api.call("GET", path, { query: { goal, ...options, format: format === "csv" ? "csv" : null }, text: true })).data;
    download(`${key}-${goal}.${format}`, format === "svg" ? "image/svg+xml" : "text/csv", text);
  }
}

// MARK: What holds for all goals

function summary(experiment, results) {
  const { users } = results;
  return h("div.tiles",
    tile("Users counted", integer(users.counted), (users.crossed > 0 || users.forced > 0) && [`left out: ${integer(users.crossed)} in several variations, ${integer(users.forced)} forced`]),
    tile("Traffic", `${decimal(experiment.traffic)}%`, "of users take part"),
    tile("Split", shares(experiment), h("ul.legend", experiment.variations.slice(0, 10).map((v, i) => h("li", swatch(i), `${v.key} ${decimal(v.share)}%`)))),
  );
}

export const tile = (name, value, note) => h("div.tile", h("p.tile-name", name), h("div.tile-value", value), note && h("div.tile-note", note));

function checks(results) {
  const shown = [];
  const ratio = results.sample_ratio;
  if (ratio?.mismatch) shown.push(sampleRatio(results));
  if (results.control_check?.differs) shown.push(banner("bad", "The two controls differ", h("p", `control and control-check get the same, yet their results differ (conversion p ${pValue(results.control_check.conversion_p_value)}, value p ${pValue(results.control_check.value_p_value)}). Something is wrong with assignment or counting.`)));
  else if (results.control_check) shown.push(banner("good", "The two controls agree", h("p", `control and control-check do not differ (conversion p ${pValue(results.control_check.conversion_p_value)}).`)));
  const told = ratio?.mismatch ? ["sample_ratio_mismatch", "control_check_differs"] : ["control_check_differs"];
  for (const warning of results.warnings ?? []) {
    if (!told.includes(warning.code) && warning.code !== "no_conversions") shown.push(banner("warn", sentence(warning.message)));
  }
  return shown;
}

const sentence = text => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

/// Who was expected, who came, for each variation and, where the server tells, for each period of one allocation.
function sampleRatio(results) {
  const ratio = results.sample_ratio;
  const name = v => v.variation_key ?? v.key ?? v.variation_id;
  const observed = rows => table("Observed and expected users", [
    { name: "Variation", cell: v => name(v) }, { name: "Observed", number: true, cell: v => integer(v.users ?? v.observed) },
    { name: "Expected", number: true, cell: v => integer(v.expected ?? v.expected_users) }, { name: "Difference", number: true, cell: v => signedCount((v.users ?? v.observed) - (v.expected ?? v.expected_users)) },
  ], rows);
  const total = results.users.counted;
  const periods = ratio.periods ?? [];
  return banner("bad", "The users are not split as the experiment says", 
    h("p", `Sample ratio mismatch, p ${pValue(ratio.p_value)}. Something loses or adds users of one variation; no number below can be trusted until it is found.`),
    periods.length > 0
      ? periods.map(p => h("div", h("h3", periodName(p), p.p_value !== undefined && h("span.faint", ` p ${pValue(p.p_value)}`)), observed(p.variations ?? [])))
      : observed(results.variations.filter(v => v.expected_share !== null && v.expected_share !== undefined).map(v => ({ ...v, expected: v.expected_share * total }))));
}

const periodName = p => p.since || p.from ? `${utcDay(p.since ?? p.from)} – ${p.until || p.to ? utcDay(p.until ?? p.to) : "now"}` : `Period ${p.period ?? ""}`;
const signedCount = value => `${value > 0 ? "+" : ""}${integer(value).replace("-", "−")}`;

// MARK: One goal

function goalSection(goal, results, view, actions) {
  const hasValues = results.variations.some(v => v.value);
  const metric = view.metric === "value" && hasValues ? "value" : "conversion";
  const rows = results.variations.map((v, index) => rowOf(v, index, results, metric, view.cuped));
  const levels = scale(rows.flatMap(r => [r.low, r.high]), false);
  const lifts = scale(rows.flatMap(r => r.lift ? [r.lift.low, r.lift.high] : []), true);
  const number = metric === "conversion" ? percent : measure;
  const columns = [
    { name: "Variation", cell: r => [swatch(r.index), r.name, r.isBaseline && badge("baseline"), r.isGone && badge("left out", "warn")] },
    { name: "Users", number: true, cell: r => integer(r.users) },
    { name: "Converted", number: true, cell: r => integer(r.converted) },
    { name: metric === "conversion" ? "Rate" : "Mean", number: true, cell: r => r.users ? number(r.estimate) : none },
    { name: "Interval", class: "drawn", cell: r => r.users > 0 && [interval({ low: r.low, high: r.high, middle: r.estimate, scale: levels, tone: "level", label: `from ${number(r.low)} to ${number(r.high)}` }), h("span.small.faint.range", `${number(r.low)} – ${number(r.high)}`)] },
    { name: "Lift", number: true, cell: r => r.isBaseline ? h("span.faint", none) : h("span", { class: `lift ${r.lift?.tone ?? ""}` }, signed(r.lift?.estimate)) },
    { name: "Always-valid interval", class: "drawn", cell: r => r.lift && [interval({ low: r.lift.low, high: r.lift.high, middle: r.lift.estimate, inner: r.lift.fixed, scale: lifts, zero: true, tone: r.lift.tone, label: `lift from ${signed(r.lift.low)} to ${signed(r.lift.high)}` }), h("span.small.faint.range", `${signed(r.lift.low)} – ${signed(r.lift.high)}`)] },
    { name: "Chance to win", number: true, cell: r => r.isBaseline ? h("span.faint", none) : chance(r.chance) },
  ];
  const isAll = results.users.counted === 0;
  return section(goal, { actions, note: verdict(rows, metric) },
    isAll ? empty("No user counts yet", "A user counts from the first exposure:", `curl ${here("v1/exposures")} -d '{"user_id":"ann","experiment":${JSON.stringify(results.experiment_key ?? "")}}'`)
      : card(table(`Results for ${goal}`, columns, rows),
        view.cuped && h("p.note", cupedNote(rows)), view.metric === "value" && !hasValues && h("p.note", "No event of this goal has a value; this is its conversion.")),
    power(results, metric), overTime(results, metric));
}

function rowOf(v, index, results, metric, cuped) {
  const data = v[metric] ?? { rate: 0, mean: 0, standard_deviation: 0 };
  const estimate = data.rate ?? data.mean;
  const z = normalQuantile(results.confidence);
  const [low, high] = metric === "conversion" ? wilson(v.converted, v.users, z) : around(estimate, z * data.standard_deviation / Math.sqrt(Math.max(1, v.users)));
  const comparison = data.comparison, source = cuped && comparison?.cuped ? comparison.cuped : comparison;
  const sequential = source?.sequential_lift_interval;
  const lift = source && source.lift !== null && sequential ? {
    estimate: source.lift, low: sequential[0], high: sequential[1], fixed: source.lift_interval,
    tone: sequential[0] > 0 ? "good" : sequential[1] < 0 ? "bad" : "",
  } : null;
  return {
    index, name: v.variation_key ?? v.variation_id, isGone: v.variation_key === null, users: v.users, converted: v.converted, estimate, low, high, lift,
    isBaseline: results.baseline === v.variation_key || results.baseline === v.variation_id, chance: comparison?.chance_to_win ?? null,
    reduction: comparison?.cuped?.variance_reduction ?? null,
  };
}

const chance = value => value === null ? none : h("span.meter-cell", h("span.meter", h("span", { style: { width: `${value * 100}%` } })), percent(value, value > 0.999 || value < 0.001 ? 2 : 1));

/// What may be said, at this look as at any other.
function verdict(rows, metric) {
  const better = rows.filter(r => r.lift?.tone === "good").sort((a, b) => b.lift.estimate - a.lift.estimate);
  const worse = rows.filter(r => r.lift?.tone === "bad");
  const parts = [];
  if (better.length) parts.push(`${better.map(r => r.name).join(", ")} ${better.length > 1 ? "are" : "is"} better than the baseline.`);
  if (worse.length) parts.push(`${worse.map(r => r.name).join(", ")} ${worse.length > 1 ? "are" : "is"} worse than the baseline.`);
  if (!parts.length && rows.some(r => r.lift)) parts.push("No difference is certain yet.");
  return parts.join(" ");
}

function cupedNote(rows) {
  const found = rows.filter(r => r.reduction !== null);
  if (!found.length) return "CUPED has nothing to adjust by: no user did anything in the 14 days before the exposure.";
  return `Adjusted by what users did in the 14 days before their exposure. ${found.map(r => `${r.name}: ${percent(Math.max(0, r.reduction))} less variance`).join("; ")}.`;
}

function power(results) {
  const power = results.power;
  if (!power) return null;
  const days = power.days ?? power.days_left;
  return null ?? (days > 0 ? banner("warn", `Not enough users yet: about ${plural(Math.ceil(days), "day")} at this rate.`) : null);
}

function overTime(results, metric) {
  if (!results.days?.length) return null;
  return null;
}

// MARK: Statistics of one variation; those of comparisons come from the server

/// The interval of a rate by Wilson's score.
function wilson(successes, count, z) {
  if (!count) return [NaN, NaN];
  const rate = successes / count, square = z * z, center = (rate + square / (2 * count)) / (1 + square / count);
  const reach = z / (1 + square / count) * Math.sqrt(rate * (1 - rate) / count + square / (4 * count * count));
  return [Math.max(0, center - reach), Math.min(1, center + reach)];
}

const around = (middle, reach) => [middle - reach, middle + reach];

/// The two-sided quantile of the normal distribution, by bisection of its integral (Abramowitz and Stegun 7.1.26).
function normalQuantile(confidence) {
  let low = 0, high = 6;
  while (high - low > 1e-6) { const middle = (low + high) / 2; if (within(middle) < confidence) low = middle; else high = middle; }
  return low;
}

function within(z) {
  const x = z / Math.SQRT2, t = 1 / (1 + 0.3275911 * x);
  return 1 - ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t * Math.exp(-x * x);
}
