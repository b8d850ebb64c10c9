// An experiment with its results: the numbers of each variation, and the conclusions that they permit.

import { h, update } from "./dom.js";
import * as api from "./api.js";
import { badge, banner, button, card, choose, copy, dash, doing, download, empty, failure, here, link, moment, page, pending, section, status, submitButton, table, to } from "./parts.js";
import { decimal, integer, measure, none, pValue, percent, plural, sentence, short, signed, time, utcDay } from "./format.js";
import { interval, lineChart, scale, swatch } from "./charts.js";
import { planOf, planSection } from "./plan.js";
import { entryList } from "./audit.js";
import { conclude, controlRamp, duplicate, load, reopen, resultsOf, setStatus, shares } from "./experiments.js";

/// The confidence levels to choose from, with their quantiles of the normal distribution.
const confidences = { 0.9: 1.6449, 0.95: 1.96, 0.99: 2.5758 };

export async function show(context, key) {
	const { query } = context;
	const experiment = (await load(key)).data;
	const goals = query.getAll("goal");
	const known = await knownGoals(experiment);
	if (goals.length === 0 && known.length > 0) goals.push(known[0]);

	const body = h("div");
	const overview = h("div");
	const options = () => ({ baseline: query.get("baseline"), confidence: query.get("confidence"), metric: query.get("metric"), live: query.get("live") });
	const view = { metric: query.get("metric") ?? "conversion", cuped: query.get("cuped") === "1" };
	let loaded = [], plan = null;

	/// Fetches the results of all goals, and draws them.
	async function refresh() {
		plan = await planOf(experiment, options());
		view.isPlanned = plan !== null;
		loaded = await Promise.all((goals.length ? goals : ["-"]).map(async goal => {
			try {
				return { goal, results: await resultsOf(key, { goal, ...options() }) };
			} catch (error) {
				if (error.name === "AbortError") throw error;
				return { goal, error };
			}
		}));
		draw();
	}

	function draw() {
		const first = loaded.find(l => l.results)?.results;
		// The results that decide come first: of all metrics, or else of the first goal.
		const decide = (decision, carrying) => verdict(decision, carrying, nextStep(experiment, decision, first, context.reload));
		const decided = plan ? planSection(plan, decide)
			: first && goals.length > 0 && experiment.status !== "concluded" && section("Verdict", { note: `By the goal ${first.goal ?? goals[0]}. You may look whenever you like.` }, decide(first.verdict, carryingOf(first)));
		update(overview, ending(experiment, first, live => { context.setQuery({ live }); refresh(); }), first && checks(first), decided, ramping(experiment, context.reload), first && summary(experiment, first));
		update(body, goals.length === 0 ? noGoal(key) : loaded.map((l, index) => l.error
			? section(l.goal, { actions: removeGoal(l.goal) }, failure(l.error)) : goalSection(l.goal, l.results, { ...view, isPlanned: view.isPlanned || index === 0 && Boolean(decided) }, removeGoal(l.goal))),
			first && health(first));
	}

	const removeGoal = goal => goals.length > 1 && button("Remove", () => { goals.splice(goals.indexOf(goal), 1); changeGoals(); }, "quiet");

	function changeGoals() {
		query.delete("goal");
		for (const goal of goals) query.append("goal", goal);
		context.setQuery({});
		return refresh();
	}

	const names = h("datalist", { id: "known-goals" }, known.map(g => h("option", { value: g })));
	const goalInput = h("input", { list: "known-goals", placeholder: "Add a goal", label: "Add a goal" });
	const addGoal = event => {
		event.preventDefault();
		const goal = goalInput.value.trim();
		goalInput.value = "";
		if (goal && !goals.includes(goal)) { goals.push(goal); changeGoals(); }
	};
	const ask = name => value => { context.setQuery({ [name]: value }); refresh(); };
	const redraw = change => { Object.assign(view, change); context.setQuery({ metric: view.metric === "conversion" ? null : view.metric, cuped: view.cuped ? "1" : null }); draw(); };
	const controls = h("div.filters",
		h("form.add", { onsubmit: addGoal }, goalInput, names, submitButton("Add", "")),
		choose("Metric", [["conversion", "Conversion"], ["value", "Value per user"]], view.metric, metric => { redraw({ metric }); refresh(); }),
		choose("Baseline", [["", "Baseline: automatic"], ...experiment.variations.map(v => [v.key, `Baseline: ${v.key}`])], query.get("baseline") ?? "", ask("baseline")),
		choose("Confidence", Object.keys(confidences).map(c => [c === "0.95" ? "" : c, `${percent(Number(c), 0)} intervals`]), query.get("confidence") ?? "", ask("confidence")),
		h("label.check", h("input", { type: "checkbox", checked: view.cuped, onchange: e => redraw({ cuped: e.target.checked }) }), "CUPED"),
		h("div.actions",
			button("CSV", () => exportAs(key, goals, options(), "csv"), "quiet"), button("SVG", () => exportAs(key, goals, options(), "svg"), "quiet"),
			button("Copy link", () => copy(location.href, "The link was copied. It has no token in it."), "quiet")));

	const definition = experiment => JSON.stringify({ ...experiment, revision: null });
	context.onChange(async () => { if (definition((await load(key)).data) !== definition(experiment)) context.reload(); });
	context.every(20_000, () => { if (!document.hidden && !document.querySelector("dialog[open]")) return refresh(); });
	await changeGoals();
	return page(experiment.key, {
		above: link(to("experiments"), "Experiments"), below: [status(experiment.status), " ", experiment.enrollment === "closed" && badge("enrollment closed", "warn")],
		actions: [
			api.may("admin") && h("a.button", { href: to("experiments", key, "edit") }, "Edit"),
			["running", "paused"].includes(experiment.status) && doing("Conclude", () => conclude(experiment), context.reload),
			experiment.status === "concluded" && [doing("Reopen", () => reopen(experiment), context.reload), doing("Change the winner", () => conclude(experiment), context.reload)],
			statusChanges(experiment.status).map(([label, status]) => doing(label, () => setStatus(experiment, status), context.reload)),
			api.may("admin") && button("Duplicate…", async () => { const copy = await duplicate(experiment); if (copy) location.hash = to("experiments", copy, "edit"); }, "quiet"),
		],
	}, intention(experiment), overview, controls, body, timeline(key));
}

const statusChanges = status => status === "archived" ? [["Bring back", "running"]]
	: [...({ running: [["Pause", "paused"]], concluded: [] }[status] ?? [["Run", "running"]]), ["Archive", "archived"]];

/// How a concluded experiment ended, and of when the results are. `show` asks for the present ones, or with `null` for those
/// of the conclusion.
function ending({ conclusion }, results, show) {
	if (!conclusion) return null;
	const { winner, reason, author, concluded_at: at } = conclusion, kept = results?.frozen_at;
	return banner("", winner === null ? "Concluded without a winner" : `Concluded: everybody gets ${winner}`,
		h("p", reason && `${sentence(reason)} `, `By ${author}, `, moment(at), "."),
		results && h("p", kept ? ["These are the results of ", moment(kept), ", which nothing changes any more. "] : "These are the present results. ",
			kept ? button("Show the present ones", () => show("true"), "quiet") : conclusion.frozen_at && button("Show those of the conclusion", () => show(null), "quiet")));
}

/// How far the ramp is.
function ramping(experiment, changed) {
	const { ramp } = experiment;
	if (!ramp) return null;
	const { status, step, since, due_at: due, reason } = ramp.state, { traffic, users } = ramp.steps[step - 1];
	const next = status === "active" && (due ? ["The next step is due ", moment(due), ". "] : `The next step begins with ${integer(users)} users. `);
	return banner(["held", "stopped"].includes(status) ? "warn" : "", `Ramp ${status}: step ${step} of ${ramp.steps.length}, ${decimal(traffic)}% of the users`,
		h("p", reason && `${sentence(reason)} `, since && ["Since ", moment(since), ". "], next,
			["waiting", "active", "held"].includes(status) && doing("Stop the ramp", () => controlRamp(experiment, "stop"), changed, "quiet"),
			["held", "stopped", "ended"].includes(status) && doing("Resume the ramp", () => controlRamp(experiment, "resume"), changed, "quiet")));
}

/// The goals that users of the experiment reached.
const knownGoals = async ({ key, sdk_key: sdkKey }) => (await api.get(api.path("experiments", key, "goals"), null, { silent: true, sdkKey })).goals;

const noGoal = key => empty("Which goal?", "Add the name of a goal above. Apps report goals like this:",
	`curl ${here("v1/events")} -d '{"user_id":"ann","goal":"purchase","value":49.9}'`);

async function exportAs(key, goals, options, format) {
	for (const goal of goals) {
		const path = format === "svg" ? api.path("experiments", key, "results.svg") : api.path("experiments", key, "results");
		const text = (await api.call("GET", path, { query: { goal, ...options, format: format === "csv" ? "csv" : null }, text: true })).data;
		download(`${key}-${goal}.${format}`, format === "svg" ? "image/svg+xml" : "text/csv", text);
	}
}

function summary(experiment, results) {
	const { counted, multiple_variations: several, forced } = results.users;
	const leftOut = [[several, "in several variations"], [forced, "forced"], ...results.removed_variations.map(v => [v.users, `of ${v.variation_key ?? v.variation_id}, which was removed`])].filter(([count]) => count > 0);
	return h("div.tiles",
		tile("Users counted", integer(counted), leftOut.length > 0 && `left out: ${leftOut.map(([count, why]) => `${integer(count)} ${why}`).join(", ")}`),
		tile("Traffic", `${decimal(experiment.traffic)}%`, "of users take part"),
		tile("Split", shares(experiment), h("ul.legend", experiment.variations.slice(0, 10).map((v, i) => h("li", swatch(i), `${v.key} ${decimal(v.share)}%`)))),
	);
}

export const tile = (name, value, note) => h("div.tile", h("p.tile-name", name), h("div.tile-value", value), note && h("div.tile-note", note));

function checks(results) {
	const shown = [];
	const ratio = results.sample_ratio;
	if (ratio.mismatch) shown.push(sampleRatio(ratio));
	if (results.control_check?.differs) shown.push(banner("bad", "The two controls differ", h("p", `control and control-check get the same, yet their results differ (conversion p ${pValue(results.control_check.conversion_p_value)}, value p ${pValue(results.control_check.value_p_value)}). Something is wrong with assignment or counting.`)));
	else if (results.control_check) shown.push(banner("good", "The two controls agree", h("p", `control and control-check do not differ (conversion p ${pValue(results.control_check.conversion_p_value)}).`)));
	const told = ratio.mismatch ? ["sample_ratio_mismatch", "control_check_differs"] : ["control_check_differs"];
	for (const warning of results.warnings) {
		if (!told.includes(warning.code) && !results.verdict.reasons.includes(warning.message)) shown.push(banner("warn", sentence(warning.message)));
	}
	return shown;
}

/// Observed and expected users, for each variation and each period with one allocation.
function sampleRatio({ p_value: p, periods }) {
	const observed = ({ variations }) => {
		// Rounded first, so that the columns of a row add up.
		const total = variations.reduce((sum, v) => sum + v.users, 0), expected = v => v.expected_share === null ? null : Math.round(v.expected_share * total * 10) / 10;
		return table("Observed and expected users", [["Variation", v => v.variation_key], ["Observed", v => integer(v.users), "number"],
			["Expected", v => decimal(expected(v), 1), "number"], ["Difference", v => expected(v) === null ? none : signedCount(v.users - expected(v)), "number"]], variations);
	};
	return banner("bad", "The users are not split as configured",
		h("p", `Sample ratio mismatch, p ${pValue(p)}. Something loses or adds users of one variation. Do not trust any number below until the cause is found.`),
		periods.map(each => [periods.length > 1 && h("h3", each.since ? `Since ${time(each.since)}` : "Before", h("span.faint", ` p ${pValue(each.p_value)}`)), observed(each)]));
}

const signedCount = value => `${value > 0 ? "+" : ""}${decimal(value, 1)}`;

export function goalSection(goal, results, view, actions) {
	const hasValues = results.variations.some(v => v.value);
	const metric = view.metric === "value" && hasValues ? "value" : "conversion";
	const rows = results.variations.map((v, index) => rowOf(v, index, results, metric, view.cuped));
	const levels = scale(rows.flatMap(r => [r.low, r.high]), false);
	const lifts = scale(rows.flatMap(r => r.lift ? [r.lift.low, r.lift.high] : []), true);
	const number = metric === "conversion" ? percent : measure;
	const columns = [
		["Variation", r => [swatch(r.index), r.name, r.isBaseline && badge("baseline")]],
		["Lift", r => r.isBaseline ? dash() : h("span", { class: `lift ${r.lift?.tone ?? ""}` }, signed(r.lift?.estimate)), "number"],
		["Always-valid interval", r => r.lift && drawn("lift ", r.lift, signed, { scale: lifts, tone: r.lift.tone, inner: r.lift.fixed, zero: true }), "drawn"],
		[metric === "conversion" ? "Rate" : "Mean", r => r.users ? number(r.estimate) : none, "number"],
		["Interval", r => r.users > 0 && drawn("", r, number, { scale: levels, tone: "level" }), "drawn"],
		["Users", r => integer(r.users), "number"],
		["Converted", r => integer(r.converted), "number"],
	];
	return section(goal, { actions },
		// Of two verdicts, the one over all metrics counts.
		!view.isPlanned && verdict(results.verdict),
		results.users.counted === 0 ? empty("No user counts yet", "A user counts from the first exposure:", `curl ${here("v1/exposures")} -d '{"user_id":"ann","experiment":${JSON.stringify(results.experiment_key)}}'`)
			: card(table(`Results for ${goal}`, columns, rows),
				oneLook(rows), view.cuped && h("p.note", cupedNote(rows)), view.metric === "value" && !hasValues && h("p.note", "No event of this goal has a value; this is its conversion.")),
		h("div.below-table", power(results, metric, rows), overTime(results, metric)));
}

/// An interval, drawn and as text.
const drawn = (what, { low, high, estimate }, format, options) => [interval({ low, high, middle: estimate, label: `${what}from ${format(low)} to ${format(high)}`, ...options }),
	h("span.small.faint.range", `${format(low)} – ${format(high)}`)];

function rowOf(v, index, results, metric, cuped) {
	const data = v[metric] ?? { rate: 0, mean: 0, standard_deviation: 0 };
	const estimate = data.rate ?? data.mean ?? 0;
	const z = confidences[results.confidence] ?? 1.96;
	const [low, high] = metric === "conversion" ? wilson(v.converted, v.users, z) : around(estimate, z * data.standard_deviation / Math.sqrt(Math.max(1, v.users)));
	const comparison = data.comparison, source = cuped && comparison?.cuped ? comparison.cuped : comparison;
	// The verdict's interval allows for the number of variations.
	const found = source === comparison && results.verdict.metric === metric && results.verdict.variations.find(f => f.variation_id === v.variation_id);
	const sequential = found ? found.lift_interval : source?.sequential_lift_interval;
	const lift = source && source.lift !== null && sequential ? {
		estimate: source.lift, low: sequential[0], high: sequential[1], fixed: source.lift_interval,
		tone: sequential[0] > 0 ? "good" : sequential[1] < 0 ? "bad" : "",
	} : null;
	return {
		index, name: v.variation_key, users: v.users, converted: v.converted, estimate, low, high, lift,
		isBaseline: results.baseline === v.variation_key, fixed: comparison,
		reduction: comparison?.cuped?.variance_reduction ?? null,
	};
}

/// What is expected of the experiment, and by whom.
function intention({ name, hypothesis, description, owner, tags = [] }) {
	if (![name, hypothesis, description, owner].some(Boolean) && tags.length === 0) return null;
	return card(name && h("p", h("strong", name)), hypothesis && h("p", h("span.faint", "Hypothesis: "), hypothesis), description && h("p.note", description),
		(owner || tags.length > 0) && h("p.note", owner && ["Owner: ", owner, " "], tags.map(tag => badge(tag))));
}

/// What carries the verdict of a goal: the lift of the winner.
function carryingOf({ verdict: { winner, variations }, variations: all }) {
	const id = all.find(v => v.variation_key === winner)?.variation_id, found = variations.find(v => v.variation_id === id);
	return found && { lift: found.lift, interval: found.lift_interval, p: found.p_value };
}

/// The button for what the verdict says to do next; for who may not, nothing.
function nextStep(experiment, { decision, winner }, results, changed) {
	if (!["running", "paused"].includes(experiment.status)) return null;
	const step = {
		ship: [`Conclude with ${winner}…`, () => conclude(experiment, winner), "primary"],
		stop: ["Conclude without a winner…", () => conclude(experiment), "primary"],
		invalid: experiment.status === "running" && ["Pause…", () => setStatus(experiment, "paused"), "danger"],
		continue: experiment.status === "paused" && ["Run…", () => setStatus(experiment, "running"), "primary"],
	}[decision];
	if (step) return doing(step[0], step[1], changed, step[2]);
	const rate = results?.power?.users_per_day;
	return decision === "continue" && h("p.note", "Nothing to do: let it run.", rate > 0 && ` ${short(rate)} users join each day.`);
}

/// New users of each variation and day: whether the experiment is healthy.
function health({ days, variations }) {
	if (days.length < 2) return null;
	const series = variations.slice(0, 10).map((v, color) => ({ name: v.variation_key, color, values: days.map(d => d.variations.find(t => t.variation_id === v.variation_id)?.users ?? 0) }));
	return section("New users", { note: "By the day (UTC) of their first exposure. Lines that part without a change of the split show a fault of counting." },
		card(lineChart({ title: "New users each day", labels: days.map(d => utcDay(d.day)), series, format: integer })));
}

/// Every change of the experiment, the newest first, for who may read the audit log.
function timeline(key) {
	if (!api.mayAll("admin")) return null;
	return section("Timeline", { note: "Every change, by people and by the ramp.", actions: link(`#/audit?target=${encodeURIComponent(key)}`, "In the audit log") }, pending(async () => {
		const entries = (await api.get("/v1/audit", { target: key, limit: 50 })).entries.filter(e => e.action.startsWith("experiment."));
		return entries.length ? entryList(entries, []) : empty("No change is recorded", "Changes over the API appear here.");
	}));
}

/// What the server says to do, with the numbers that carry it, its reasons, and the next step.
function verdict({ decision, winner, reasons }, carrying, next) {
	const [tone, title] = {
		ship: ["good", `Ship ${winner}`], stop: ["bad", "Stop: no variation is better"],
		continue: ["", "Continue: nothing is certain yet"], invalid: ["bad", "Invalid: do not decide by these numbers"],
	}[decision];
	const shown = banner(tone, title,
		carrying?.lift != null && h("p.carrying", h("span", { class: `lift ${tone}` }, signed(carrying.lift)), " lift", carrying.interval && `, between ${signed(carrying.interval[0])} and ${signed(carrying.interval[1])}`, carrying.p != null && h("span.faint", ` (p ${pValue(carrying.p)}, valid at any look)`)),
		h("ul", reasons.map(reason => h("li", sentence(reason)))), next);
	shown.classList.add("verdict");
	// A statement, and no alarm.
	shown.setAttribute("role", "note");
	return shown;
}

/// What would hold if this were the only look, which people know from other tools.
function oneLook(rows) {
	const shown = rows.filter(r => r.fixed);
	if (shown.length === 0) return null;
	return h("details.numbers", h("summary", "If this were the only look"),
		h("p.note", "These numbers hold for one look that was planned before the experiment began. Who looks often will see them promise a difference that is not there. The verdict counts every look, and therefore needs more users."),
		table("Numbers for one look", [["Variation", r => r.name], ["Lift", r => signed(r.fixed.lift), "number"],
			["Interval", r => r.fixed.lift_interval ? `${signed(r.fixed.lift_interval[0])} – ${signed(r.fixed.lift_interval[1])}` : none, "number"],
			["p", r => r.fixed.p_value === null ? none : pValue(r.fixed.p_value), "number"],
			["Chance to win", r => r.fixed.chance_to_win === null ? none : chance(r.fixed.chance_to_win), "number"]], shown));
}

const chance = value => value > 0.9999 ? "> 99.99%" : value < 0.0001 ? "< 0.01%" : percent(value, value > 0.999 || value < 0.001 ? 2 : 1);

function cupedNote(rows) {
	const found = rows.filter(r => r.reduction !== null);
	if (!found.length) return "CUPED has nothing to adjust by: no user did anything in the 14 days before the exposure.";
	return `Adjusted by what users did in the 14 days before their exposure; the verdict is by the numbers without adjustment. ${found.map(r => `${r.name}: ${percent(Math.max(0, r.reduction))} less variance`).join("; ")}.`;
}

/// The effect that the users so far can show, and when the wanted effect could be seen.
function power(results, metric, rows) {
	const found = results.variations.map(v => v[metric]?.power).filter(Boolean);
	if (!results.power || found.length === 0 || rows.some(r => r.lift?.tone)) return null;
	const lifts = found.map(p => p.smallest_lift).filter(Number.isFinite), days = found.map(p => p.days_to_mde).filter(Number.isFinite);
	const { users_per_day: rate, mde } = results.power;
	const wait = days.length ? Math.ceil(Math.max(...days)) : null;
	const sees = lifts.length > 0 && `With the users so far, a lift of ${percent(Math.max(...lifts))} would be seen four times out of five.`;
	if (wait === null) return sees && h("p.note", sees);
	return wait > 0 ? banner("warn", `Not enough users yet for a lift of ${percent(mde)}: about ${plural(wait, "day")} at this rate.`, h("p", `${short(rate)} users a day. `, sees))
		: h("p.note", `Enough users for a lift of ${percent(mde)}. `, sees);
}

/// The rate of all users up to the end of each day.
function overTime(results, metric) {
	const days = results.days;
	if (days.length < 2) return null;
	const z = confidences[results.confidence] ?? 1.96;
	const series = results.variations.slice(0, 10).map((v, color) => {
		const line = { name: v.variation_key, color, values: [], low: [], high: [] };
		let users = 0, converted = 0, value = 0;
		for (const day of days) {
			const tally = day.variations.find(t => t.variation_id === v.variation_id);
			users += tally?.users ?? 0; converted += tally?.converted ?? 0; value += tally?.value ?? 0;
			line.values.push(users ? (metric === "value" ? value : converted) / users : null);
			const [low, high] = metric === "value" ? [null, null] : wilson(converted, users, z);
			line.low.push(low); line.high.push(high);
		}
		return line;
	});
	return card(lineChart({ title: metric === "value" ? "Mean of all users so far" : "Rate of all users so far", labels: days.map(d => utcDay(d.day)), series, format: metric === "value" ? measure : percent, fromZero: false }));
}

/// Wilson's score interval of a rate.
function wilson(successes, count, z) {
	if (!count) return [NaN, NaN];
	const rate = successes / count, square = z * z, center = (rate + square / (2 * count)) / (1 + square / count);
	const reach = z / (1 + square / count) * Math.sqrt(rate * (1 - rate) / count + square / (4 * count * count));
	return [Math.max(0, center - reach), Math.min(1, center + reach)];
}

const around = (middle, reach) => [middle - reach, middle + reach];
