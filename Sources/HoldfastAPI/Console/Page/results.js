// An experiment with its results: the numbers of each variation, and the conclusions that they permit.

import { h, icon, newID, replace, update } from "./dom.js";
import * as api from "./api.js";
import { badge, banner, button, card, choose, copy, dash, doing, download, empty, failure, field, here, isPhone, keyChip, lazily, link, moment, older, page, pending, section, select, status, submitButton, table, to } from "./parts.js";
import { decimal, integer, inUnit, measure, many, none, pValue, percent, plural, rampStatus, sentence, short, signed, time, utcDay } from "./format.js";
import { vocabulary } from "./conditions.js";
import { axis, drawn, lineChart, scale, swatch } from "./charts.js";
import { breakdownSection, disagreements, durationSection, formatOf, needs, planOf, planSection, ruleOf, unbounded } from "./plan.js";
import { entryList } from "./audit.js";
import { versions } from "./history.js";
import { marginOf } from "./sentences.js";
import { conclude, controlRamp, duplicate, filterNames, filtersOf, load, reopen, resultsOf, setStatus, shares, waiting } from "./experiments.js";

/// The confidence levels to choose from, with their quantiles of the normal distribution.
const confidences = { 0.9: 1.6449, 0.95: 1.96, 0.99: 2.5758 };

export async function show(context, key) {
	const { query } = context;
	const [{ data: experiment }, known] = await Promise.all([load(key), knownGoals(key)]);
	/// The goals, and the metrics of the experiment, that have a section of their own.
	const goals = query.getAll("goal"), measures = query.getAll("show");
	const measured = metricsOf(experiment);
	if (goals.length + measures.length === 0) {
		if (measured.length > 0) measures.push(measured[0]); else if (known.length > 0) goals.push(known[0]);
	}

	const body = h("div");
	const overview = h("div"), waits = h("div");
	const options = () => ({ baseline: query.get("baseline"), live: query.get("live"), ...filtersOf(query), confidence: query.get("confidence"), metric: query.get("metric") });
	const view = { metric: query.get("metric") ?? "conversion", cuped: query.get("cuped") === "1", isDaily: query.get("chart") === "day" };
	let loaded = [], plan = null, grown = null, wasCalm = false;

	/// Fetches the results of all goals, and draws them.
	async function refresh() {
		const wanted = [...measures.map(name => ["metric", name]), ...goals.map(name => ["goal", name])];
		const refused = error => { if (error.name === "AbortError") throw error; return { error }; };
		[plan, ...loaded] = await Promise.all([planOf(experiment, options()).catch(refused), ...(wanted.length ? wanted : [["goal", "-"]]).map(async ([kind, goal]) => {
			const { metric, ...rest } = options();
			try {
				return { kind, goal, results: await resultsOf(key, kind === "metric" ? { metric: goal, ...rest } : { goal, metric, ...rest }) };
			} catch (error) { return { kind, goal, ...refused(error) }; }
		})]);
		if (plan?.error && !loaded.some(l => l.error)) throw plan.error;
		if (plan?.error) plan = null;
		view.isPlanned = plan !== null;
		view.metrics = plan?.metrics ?? [];
		draw();
		// The lift over time takes longer, and is drawn when it is there.
		grownLift(wanted[0]).then(found => {
			grown = found;
			if (!context.signal.aborted) draw();
		}, () => { /* The page was left. */ });
	}

	/// The lift of the first metric or goal over time; null where it cannot be read.
	async function grownLift(subject) {
		if (!subject || !loaded[0]?.results?.users.counted) return null;
		const [kind, name] = subject, { metric, ...rest } = options();
		try {
			return await api.get(`${api.path("experiments", key, "results")}/series`, kind === "metric" ? { metric: name, ...rest } : { goal: name, ...rest });
		} catch (error) {
			if (error.name === "AbortError") throw error;
			return null;
		}
	}

	function draw() {
		const first = loaded.find(l => l.results)?.results;
		// Before the first user, the screen shows a checklist instead of results.
		const isNarrowed = filterNames.some(name => query.get(name));
		const isCalm = ["draft", "not_started"].includes(experiment.status) || !isNarrowed && first && experiment.status !== "concluded" && first.users.counted === 0 && !first.users.forced && !first.users.multiple_variations;
		controls.hidden = narrow.hidden = isCalm;
		// On a phone the verdict comes before the proposals.
		const isBelow = isPhone() && !isCalm;
		update(waits, isBelow ? null : waiting(key));
		if (isCalm) {
			// The checklist is not redrawn, because its calculator has inputs.
			if (wasCalm) return;
			wasCalm = true;
			replace(overview, experiment.status !== "draft" && ramping(experiment, context.reload), adapting(experiment, first), checklist(experiment), first && checks(first).filter(Boolean));
			return replace(body);
		}
		// The results that decide come first: of all metrics, or else of the first goal.
		const isSplitWrong = first?.sample_ratio.mismatch;
		// A wrong split is reported once, beside its numbers.
		const decide = (decision, carrying) => isSplitWrong && decision.decision === "invalid" ? null : verdict(decision, carrying, nextStep(experiment, decision, first, context.reload));
		const decided = plan ? planSection(plan, decide)
			: first && goals.length + measures.length > 0 && experiment.status !== "concluded" && section("Verdict", { note: `By the goal ${first.goal ?? first.metric?.key ?? goals[0]}. You may look whenever you like.` }, decide(first.verdict, carryingOf(first)));
		if (wasCalm) replace(overview);
		wasCalm = false;
		update(overview, ending(experiment, first, live => { context.setQuery({ live }); refresh(); }), first && checks(first, isSplitWrong && nextStep(experiment, { decision: "invalid" }, first, context.reload)), decided, isBelow && waiting(key), grown && liftOverTime(grown, loaded[0].goal), ramping(experiment, context.reload), adapting(experiment, first), first && summary(experiment, first));
		for (const place of [overview, body]) place.classList.toggle("worthless", Boolean(isSplitWrong));
		update(body, goals.length + measures.length === 0 ? noGoal(key) : loaded.map((l, index) => l.error
			? section(l.goal, { actions: removeGoal(l) }, failure(l.error)) : goalSection(l.goal, l.results, { ...view, isPlanned: view.isPlanned || index === 0 && Boolean(decided) }, removeGoal(l))),
			first && health(first, view.isDaily));
	}

	const removeGoal = ({ kind, goal }) => {
		const list = kind === "metric" ? measures : goals;
		return goals.length + measures.length > 1 && button("Remove", () => { list.splice(list.indexOf(goal), 1); changeGoals(); }, "quiet");
	};

	function changeGoals() {
		for (const name of ["goal", "show"]) query.delete(name);
		for (const goal of goals) query.append("goal", goal);
		for (const metric of measures) query.append("show", metric);
		context.setQuery({});
		drawGroups();
		return refresh();
	}

	/// Results by group are read separately, because they take longer and change less.
	const groups = h("div");
	const drawGroups = () => update(groups, ["attribute", "segment", "days"].some(name => query.get(name)) ? null : breakdownSection(experiment, query.get("group"), measures.length ? ["metric", measures[0]] : goals.length ? ["goal", goals[0]] : null, value => { context.setQuery({ group: value }); drawGroups(); }, options()));

	const names = h("datalist", { id: "known-goals" }, [...measured, ...known].map(g => h("option", { value: g })));
	const goalInput = h("input", { list: "known-goals", placeholder: measured.length ? "Add a metric or goal" : "Add a goal", label: "Add a goal" });
	const addGoal = event => {
		event.preventDefault();
		const goal = goalInput.value.trim();
		goalInput.value = "";
		const list = measured.includes(goal) ? measures : goals;
		if (goal && !list.includes(goal)) { list.push(goal); changeGoals(); }
	};
	const ask = name => value => { context.setQuery({ [name]: value }); refresh(); };
	const redraw = change => { Object.assign(view, change); context.setQuery({ metric: view.metric === "conversion" ? null : view.metric, cuped: view.cuped ? "1" : null, chart: view.isDaily ? "day" : null }); draw(); };
	const controls = h("div.filters",
		h("form.add", { onsubmit: addGoal }, goalInput, names, submitButton("Add", "")),
		goals.length > 0 && choose("Metric", [["conversion", "Conversion"], ["value", "Value per user"]], view.metric, metric => { redraw({ metric }); refresh(); }),
		choose("Over time", [["", "Charts: all users so far"], ["day", "Charts: users of each day"]], view.isDaily ? "day" : "", value => redraw({ isDaily: value === "day" })),
		choose("Baseline", [["", "Baseline: automatic"], ...experiment.variations.map(v => [v.key, `Baseline: ${v.key}`])], query.get("baseline") ?? "", ask("baseline")),
		choose("Confidence", Object.keys(confidences).map(c => [c === "0.95" ? "" : c, `${percent(Number(c), 0)} intervals`]), query.get("confidence") ?? "", ask("confidence")),
		h("label.check", h("input", { type: "checkbox", checked: view.cuped, onchange: e => redraw({ cuped: e.target.checked }) }), "CUPED"),
		h("div.actions",
			button("Report", () => report(experiment, measured.length ? null : goals[0], options()), "quiet"), button("CSV", () => exportAs(key, loaded, options(), "csv"), "quiet"), button("SVG", () => exportAs(key, loaded, options(), "svg"), "quiet"),
			button("Print", () => print(), "quiet"), button("Copy link", () => copy(location.href, "The link was copied. It has no token in it."), "quiet")));

	const narrow = narrowing(experiment, query, changes => { context.setQuery(changes); drawGroups(); return refresh(); });

	api.server.addEventListener("proposals", () => { if (loaded.length) draw(); }, { signal: context.signal });
	const definition = experiment => JSON.stringify({ ...experiment, revision: null });
	const reread = async () => { if (definition((await load(key)).data) !== definition(experiment)) context.reload(); };
	context.onChange(reread);
	// A bandit's look that keeps the weights changes no definition, so no change is announced. And the first look, or the start of a
	// ramp, may come while the page is loaded.
	if (experiment.bandit || experiment.ramp) context.every(10_000, reread);
	context.every(20_000, () => { if (!document.hidden && !document.querySelector("dialog[open]")) return refresh(); });
	await changeGoals();
	const edit = () => api.may("admin") && h("a.button", { href: to("experiments", key, "edit") }, "Edit");
	return page(experiment.name || experiment.key, {
		above: link(to("experiments"), "Experiments"),
		below: [h("span.facts", status(experiment.status), experiment.enrollment === "closed" && badge("enrollment closed", "warn"), keyChip(experiment.key), experiment.owner && h("span.owner", { title: experiment.owner }, experiment.owner), experiment.tags?.map(tag => badge(tag))),
			experiment.hypothesis && h("span.hypothesis", experiment.hypothesis)],
		actions: [
			edit(),
			["running", "paused"].includes(experiment.status) && doing("Conclude", () => conclude(experiment), context.reload),
			experiment.status === "concluded" && [doing("Reopen", () => reopen(experiment), context.reload), doing("Change the winner", () => conclude(experiment), context.reload)],
			statusChanges(experiment.status).map(([label, status]) => doing(label, () => setStatus(experiment, status), context.reload, label === "Start" ? "primary" : "")),
			api.may("admin") && button("Duplicate…", async () => { const copy = await duplicate(experiment); if (copy) location.hash = to("experiments", copy, "edit"); }, "quiet"),
		],
	}, waits, overview, isPhone() ? h("details.folded", h("summary", "Choose and export"), controls, narrow) : [controls, narrow], body, groups, intention(experiment, plan), versions("experiments", key, context.reload), timeline(key));
}

const statusChanges = status => status === "archived" ? [["Bring back", "running"]]
	: [...({ running: [["Pause", "paused"]], concluded: [], paused: [["Resume", "running"]] }[status] ?? [["Start", "running"]]), ["Archive", "archived"]];

/// How a concluded experiment ended, and the time of the results. `show` is called to show the present results, or with `null`
/// those of the conclusion.
function ending({ conclusion }, results, show) {
	if (!conclusion) return null;
	const { winner, reason, author, concluded_at: at } = conclusion, kept = results?.frozen_at;
	return banner("", winner === null ? "Concluded without a winner" : `Concluded: everybody gets ${winner}`,
		h("p", reason && `${sentence(reason)} `, `By ${author}, `, moment(at), "."),
		results && h("p", kept ? ["These are the results of ", moment(kept), ", which nothing changes any more. "] : "These are the present results. ",
			kept ? button("Show the present ones", () => show("true"), "quiet") : conclusion.frozen_at && button("Show those of the conclusion", () => show(null), "quiet")));
}

/// How far the ramp is, and what comes next.
function ramping(experiment, changed) {
	const { ramp } = experiment;
	if (!ramp) return null;
	const { status, step, since, due_at: due, reason } = ramp.state, { traffic, users } = ramp.steps[step - 1], next = ramp.steps[step];
	const coming = !next ? status === "completed" ? "This was the last step. " : "This is the last step. " : status === "active" ? due ? ["Next: ", h("strong", `${decimal(next.traffic)}%`), " ", moment(due), ". "] : ["Next: ", h("strong", `${decimal(next.traffic)}%`), ` with ${integer(users)} users. `]
		: ["Next: ", h("strong", `${decimal(next.traffic)}%`), ", once it goes on. "];
	return banner(["held", "stopped"].includes(status) ? "warn" : "", `Ramp ${rampStatus(status)}: step ${step} of ${ramp.steps.length}, ${decimal(traffic)}% of the users`,
		h("ol.steps", ramp.steps.map((s, index) => h("li", { class: index + 1 < step || status === "completed" ? "done" : index + 1 === step ? "now" : "", "aria-current": index + 1 === step && status !== "completed" ? "step" : null },
			h("strong", `${decimal(s.traffic)}%`), h("span.faint.small", s.for ? `for ${s.for}` : s.users ? `until ${short(s.users)} users` : "to the end")))),
		h("p", reason && `${sentence(reason)} `, since && ["Since ", moment(since), ". "], coming, { pause: "An alarm pauses the experiment. ", hold: "An alarm keeps the traffic as it is. ", back: "An alarm takes the traffic back. " }[ramp.on_alarm]),
		["waiting", "active", "held"].includes(status) && doing("Stop the ramp", () => controlRamp(experiment, "stop"), changed, status === "held" ? "" : "danger"),
		["held", "stopped", "ended"].includes(status) && doing("Resume the ramp", () => controlRamp(experiment, "resume"), changed, ""));
}

/// The present weights of a bandit, the findings of its last look, and the time of the next one.
function adapting({ bandit, variations, metrics, status, enrollment }, results) {
	if (!bandit) return null;
	const { looked_at: at, due_at: due, users, reason, variations: found } = bandit.state;
	const total = variations.reduce((sum, v) => sum + v.weight, 0) || 1, isWaiting = status !== "running" || enrollment === "closed";
	const periods = (results?.sample_ratio.periods ?? []).filter(p => p.since && p.variations.every(v => v.expected_share !== null));
	return section("Bandit", { note: `It gives new users what does best in ${metrics?.primary[0] ?? "the first primary metric"}. Enrolled users keep their variation.` }, card(
		table("Weights of the bandit", [["Variation", v => [swatch(variations.indexOf(v)), v.key]], ["New users", v => `${decimal(v.weight / total * 100, 1)}%`, "number"],
			["Chance to be the best", v => chanceOf(found.find(f => f.key === v.key)?.chance_to_be_best), "number"]], variations, { kind: "small-table" }),
		h("p.note", at ? ["Last update ", moment(at), ` at ${plural(users, "user")}`, reason ? `; the weights stayed: ${reason}. ` : ". "] : "No weights have been computed yet. ",
			isWaiting ? "The weights are computed again once the experiment enrolls users. " : due ? ["Next update ", moment(due), `, then every ${bandit.every}. `] : "The next update is due now. ",
			`Each variation gets at least ${decimal(bandit.minimum_share)}%, and ${integer(bandit.minimum_users)} users before the weights move.`,
			results?.bandit?.weighted && " In the results each user counts with the inverse of the probability of what they got, so that moving weights mislead nobody.")),
	periods.length > 1 && card(lineChart({ title: "Share of new users since each update", labels: periods.map(p => time(p.since)), format: v => percent(v / 100),
		series: variations.slice(0, 10).map((v, color) => ({ name: v.key, color, values: periods.map(p => p.variations.find(t => t.variation_id === v.id)?.expected_share ?? null) })) })));
}

const chanceOf = value => value == null ? none : chance(value);

const metricsOf = ({ metrics }) => metrics ? [...new Set([...metrics.primary, ...metrics.guardrails.map(g => g.metric), ...metrics.secondary])] : [];

/// The goals that users of the experiment reached.
const knownGoals = async key => (await api.get(api.path("experiments", key, "goals"), null, { silent: true })).goals;

const noGoal = key => empty("Which goal?", "Add the name of a goal above. Apps report goals like this:",
	`curl ${here("v1/events")} -d '{"user_id":"ann","goal":"purchase","value":49.9}'`);

/// Downloads the report: one page to print and to send.
async function report(experiment, goal, { confidence, metric, ...options }) {
	const { data } = await api.call("GET", api.path("experiments", experiment.key, "report.html"), { query: { goal, ...options }, text: true });
	download(`${experiment.key}-report.html`, "text/html", data);
}

/// The form that restricts the results to some users, or to some of their events. `set` stores the choice in the address.
function narrowing(experiment, query, set) {
	const isNarrowed = () => filterNames.some(name => query.get(name)), breakdowns = experiment.metrics?.breakdowns ?? [];
	const form = () => pending(async () => {
		const { attributes, segments } = await vocabulary(), of = name => query.get(name) ?? "";
		const values = h("datalist", { id: newID("values") });
		const suggest = () => replace(values, (attributes.find(a => a.name === attribute.input.value)?.values ?? []).map(value => h("option", { value })));
		const attribute = field("Attribute", select([["", "any"], ...breakdowns], of("attribute"), { onchange: suggest }));
		const value = field("Its value at first", h("input", { value: of("value"), list: values.id }), { after: values });
		const segment = field("Segment", select([["", "any"], ...segments.map(s => s.name)], of("segment")));
		const days = field("First days of each user", h("input", { type: "number", min: 0.01, max: 3650, step: "any", value: of("days"), placeholder: "all" }));
		const day = (label, name) => field(label, h("input", { type: "date", value: of(name) }));
		const from = day("Enrolled from", "enrolled_from"), to = day("Enrolled to", "enrolled_to");
		const ended = h("input", { type: "checkbox", checked: of("window") === "ended" });
		suggest();
		const problem = h("div");
		const apply = async changes => {
			problem.replaceChildren();
			// Frozen results have no count of single users.
			if ((changes.segment || changes.days) && experiment.conclusion?.frozen_at) changes.live = "true";
			try { await set(changes); } catch (error) { if (error.name !== "AbortError") replace(problem, failure(error)); }
		};
		return h("form", { onsubmit: event => {
			event.preventDefault();
			const chosen = attribute.input.value;
			apply({ attribute: chosen, value: chosen && value.input.value, segment: segment.input.value, days: days.input.value, window: ended.checked ? "ended" : null, enrolled_from: from.input.value, enrolled_to: to.input.value });
		} }, h("div.fields", breakdowns.length > 0 && [attribute, value], segments.length > 0 && segment, days, from, to),
			h("label.check", ended, "Only users whose time is over: the window of the metric, or the first days"),
			h("p.note", "Who looks at many parts of the users finds one that differs: the verdict of some users stays “Continue”."), problem,
			h("div.buttons", button("All users", async () => { await apply(Object.fromEntries(filterNames.map(name => [name, null]))); element.open = false; }), submitButton("Show", "")));
	});
	const element = lazily("Only some users, or some of what they did", form);
	element.classList.add("narrowing");
	element.open = isNarrowed();
	return element;
}

/// Downloads the results of all goals and metrics that are shown.
async function exportAs(key, shown, { metric, ...options }, format) {
	for (const { kind, goal } of shown) {
		const path = format === "svg" ? api.path("experiments", key, "results.svg") : api.path("experiments", key, "results");
		const subject = kind === "metric" ? { metric: goal } : { goal, metric };
		const text = (await api.call("GET", path, { query: { ...subject, ...options, format: format === "csv" ? "csv" : null }, text: true })).data;
		download(`${key}-${goal}.${format}`, format === "svg" ? "image/svg+xml" : "text/csv", text);
	}
}

/// The number of users, the traffic and the split.
function summary(experiment, results) {
	const { counted, multiple_variations: several, forced } = results.users;
	const leftOut = [[several, "in several variations"], [forced, "forced"], ...results.removed_variations.map(v => [v.users, `of ${v.variation_key ?? v.variation_id}, which was removed`])].filter(([count]) => count > 0);
	return h("div.tiles",
		tile("Users counted", integer(counted), leftOut.length > 0 && `left out: ${leftOut.map(([count, why]) => `${integer(count)} ${why}`).join(", ")}`),
		tile("Traffic", `${decimal(experiment.traffic)}%`, "of users are enrolled"),
		tile("Split", shares(experiment), h("ul.legend", experiment.variations.slice(0, 10).map((v, i) => h("li", swatch(i), `${v.key} ${decimal(v.share)}%`)))),
	);
}

export const tile = (name, value, note) => h("div.tile", h("p.tile-name", name), h("div.tile-value", value), note && h("div.tile-note", note));

/// The banners about the validity of the results. `next` is the button below a wrong split.
function checks(results, next) {
	const shown = [];
	const ratio = results.sample_ratio;
	if (ratio.mismatch) shown.push(sampleRatio(ratio, next));
	if (results.control_check?.differs) shown.push(banner("bad", "The two controls differ", h("p", `control and control-check get the same, yet their results differ (conversion p ${pValue(results.control_check.conversion_p_value)}, value p ${pValue(results.control_check.value_p_value)}). Something is wrong with assignment or counting.`)));
	else if (results.control_check) shown.push(banner("good", "The two controls agree", h("p", `control and control-check do not differ (conversion p ${pValue(results.control_check.conversion_p_value)}).`)));
	const told = ratio.mismatch ? ["sample_ratio_mismatch", "control_check_differs"] : ["control_check_differs"];
	for (const warning of results.warnings) {
		if (!told.includes(warning.code) && !results.verdict.reasons.includes(warning.message)) shown.push(banner("warn", sentence(warning.message)));
	}
	return shown;
}

/// Observed and expected users, for each variation and each period with one allocation.
function sampleRatio({ p_value: p, periods }, next) {
	const observed = ({ variations }) => {
		// Rounded first, so that the columns of a row add up.
		const total = variations.reduce((sum, v) => sum + v.users, 0), expected = v => v.expected_share === null ? null : Math.round(v.expected_share * total / 10) / 10;
		return table("Observed and expected users", [["Variation", v => v.variation_key], ["Observed", v => integer(v.users), "number"],
			["Expected", v => decimal(expected(v), 1), "number"], ["Difference", v => expected(v) === null ? none : signedCount(v.users - expected(v)), "number"]], variations, { kind: "small-table" });
	};
	return banner("bad", "Invalid: the users are not split as configured",
		h("p", `Sample ratio mismatch, p ${pValue(p)}. Something loses or adds users of one variation. Do not trust any number below until the cause is found.`),
		periods.map(each => [periods.length > 1 && h("p.side-name", each.since ? `Since ${time(each.since)}` : "Before", h("span.faint", ` p ${pValue(each.p_value)}`)), observed(each)]), next);
}

const signedCount = value => `${value > 0 ? "+" : ""}${decimal(value, 1)}`;

/// The section of one goal or metric: its verdict, table and charts.
export function goalSection(goal, results, view, actions) {
	const hasValues = results.variations.some(v => v.value);
	const metric = results.metric ? "estimate" : view.metric === "value" && hasValues ? "value" : "conversion";
	const rows = results.variations.map((v, index) => rowOf(v, index, results, metric, view));
	const levels = scale(rows.flatMap(r => [r.low, r.high]), false);
	const lifts = scale(rows.flatMap(r => r.lift ? [r.lift.low, r.lift.high] : []), true);
	const number = results.metric ? formatOf(results.metric) : metric === "conversion" ? percent : inUnit();
	const columns = [
		["Variation", r => [swatch(r.index), r.name, r.isBaseline && badge("baseline")]],
		["Lift", r => r.isBaseline ? dash() : h("span", { class: `lift ${r.lift?.tone ?? ""}` }, signed(r.lift?.estimate)), "number"],
		["Always-valid interval", r => !r.lift && r.open ? unbounded(r.open) : r.lift && drawn("lift ", r.lift, signed, { scale: lifts, tone: r.lift.tone, inner: r.lift.fixed, zero: true }), "drawn", null, axis(lifts, v => signed(v, 0))],
		[number === percent ? "Rate" : "Mean", r => r.users ? number(r.estimate) : none, "number"],
		rows.some(r => r.sum !== undefined) && ["Sum", r => r.sum === undefined ? none : (results.metric?.kind === "ratio" || number === percent ? measure : number)(r.sum), "number"],
		["Interval", r => r.users > 0 && drawn("", r, number, { scale: levels, tone: "level" }), "drawn", null, axis(levels, number === percent ? v => percent(v, 0) : number.axis)],
		["Users", r => integer(r.users), "number"],
		["Converted", r => integer(r.converted), "number"],
	].filter(Boolean);
	return section(goal, { actions, isFolded: view.isPlanned, note: results.metric && `A ${results.metric.kind} metric${results.metric.direction === "decrease" ? "; less is better" : ""}.` },
		// Of two verdicts, the one over all metrics counts.
		!view.isPlanned && !(results.sample_ratio?.mismatch && results.verdict.decision === "invalid") && verdict(results.verdict),
		results.users.counted === 0 ? empty("No user counts yet", "A user counts from the first exposure:", `curl ${here("v1/exposures")} -d '{"user_id":"ann","experiment":${JSON.stringify(results.experiment_key)}}'`)
			: card(table(`Results for ${goal}`, columns, rows), disagreements(goalDisagreements(results, rows, metric)),
				oneLook(rows), view.cuped && h("p.note", cupedNote(rows)), view.metric === "value" && !hasValues && !results.metric && h("p.note", "No event of this goal has a value; this is its conversion.")),
		h("div.below-table", !view.isPlanned && power(results, metric, rows), overTime(results, metric, view.isDaily)));
}

/// Explains numbers of one goal or metric that seem to contradict each other.
function goalDisagreements({ verdict, sample_ratio: ratio, variations }, rows, metric) {
	const notes = [], base = rows.find(r => r.isBaseline);
	const compared = rows.filter(r => r.lift);
	const isCertain = r => r.lift.tone !== "";
	const early = compared.filter(r => !isCertain(r) && r.fixed?.p_value < 0.05);
	if (early.length) notes.push(`A single planned analysis would call ${early.map(r => r.name).join(", ")} different from ${base?.name} (p ${pValue(Math.min(...early.map(r => r.fixed.p_value)))}), and the always-valid interval does not: it allows for every interim look, and is wider.`);
	const overlapping = compared.filter(r => isCertain(r) && base && r.low < base.high && base.low < r.high);
	if (overlapping.length) notes.push(`The intervals of ${overlapping.map(r => r.name).join(", ")} and ${base.name} overlap although the lift is certain: each is about one variation alone, and the lift's is about the difference.`);
	for (const v of variations) {
		const one = v.conversion?.comparison?.lift, other = v.value?.comparison?.lift;
		if (one && other && Math.sign(one) !== Math.sign(other)) notes.push(one > 0 ? `More users of ${v.variation_key} convert (${signed(one)}), but all together bring less value (${signed(other)}): those who convert spend less.` : `Fewer users of ${v.variation_key} convert (${signed(one)}), but all together bring more value (${signed(other)}): those who convert spend more.`);
		const data = v[metric]?.comparison;
		if (data?.cuped?.lift && data.lift && Math.sign(data.cuped.lift) !== Math.sign(data.lift)) notes.push(`Adjusted by what users did before (CUPED), ${v.variation_key} has the other sign: the variations' users differed already before the experiment.`);
	}
	if (verdict.decision === "continue" && compared.some(isCertain) && !ratio?.mismatch) notes.push("An interval excludes 0, and the verdict still waits: it needs more users before it trusts the approximation, or corrects for several variations.");
	return notes;
}

/// The row of a variation in the table of a goal or metric.
function rowOf(v, index, results, metric, { cuped, metrics = [] }) {
	const data = v[metric] ?? { rate: 0, mean: 0, standard_deviation: 0 };
	const estimate = data.rate ?? data.mean ?? data.ratio ?? 0;
	const z = confidences[results.confidence] ?? 1.96;
	const isRate = data.rate !== undefined;
	const [low, high] = isRate && metric === "conversion" ? wilson(v.converted, v.users, z) : around(estimate, z * data.standard_deviation / Math.sqrt(Math.max(1, v.users)));
	const comparison = data.comparison, source = cuped && comparison?.cuped ? comparison.cuped : comparison;
	// The verdict's interval allows for the number of variations.
	const isDecided = results.metric ? results.verdict.metric === results.metric.key : results.verdict.metric === metric;
	const less = results.metric?.direction === "decrease";
	// A lift must not have two intervals: the one in the table of all metrics is shown here, too.
	const planned = source === comparison && results.metric && metrics.find(m => m.key === results.metric.key)?.variations.find(f => f.variation_id === v.variation_id && f.lift_interval);
	const found = planned || source === comparison && isDecided && results.verdict.variations.find(f => f.variation_id === v.variation_id);
	const sequential = found ? found.lift_interval : source?.sequential_lift_interval;
	const lift = source && source.lift !== null && sequential ? {
		estimate: source.lift, low: sequential[0], high: sequential[1], fixed: source.lift_interval,
		tone: sequential[0] > 0 ? less ? "bad" : "good" : sequential[1] < 0 ? less ? "good" : "bad" : "",
	} : null;
	return {
		index, name: v.variation_key, users: v.users, converted: v.converted, estimate, sum: data.sum, low, high, lift,
		isBaseline: results.baseline === v.variation_key, fixed: comparison,
		open: source && !lift ? { metric: results.metric, difference: source.difference, difference_interval: found ? found.difference_interval : source.sequential_difference_interval } : null,
		reduction: comparison?.cuped?.variance_reduction ?? null,
	};
}

/// The section of the plan: description, metrics, decision rule and schedule.
function intention(experiment, plan) {
	const decision = plan?.verdict.decision, units = new Map(plan?.metrics.map(m => [m.key, m.unit]));
	const { description, hypothesis, schedule, metrics, tags } = experiment;
	// A draft has a calculator of its own.
	const isDraft = ["draft", "not_started"].includes(experiment.status);
	const estimate = isDraft || ["ship", "stop"].includes(decision) ? null : needs(experiment), rule = ruleOf(experiment);
	if (![description, hypothesis, schedule, estimate, rule].some(Boolean) && !metrics) return null;
	const named = [["Primary", metrics?.primary], ["Guardrails", metrics?.guardrails.map(g => `${g.metric} (margin ${marginOf(g.margin, units.get(g.metric))})`)], ["Secondary", metrics?.secondary]].filter(([, list]) => list?.length);
	return section("Plan", { isFolded: true, actions: api.may("admin") && link(to("experiments", experiment.key, "edit"), "Edit") }, card(isPhone() && [hypothesis && h("p.note", hypothesis), tags?.length > 0 && h("p", tags.map(tag => badge(tag)))], description && h("p.note", description),
		named.map(([role, list]) => h("p", h("span.faint", `${role}: `), list.join(", "))), rule,
		schedule && h("p.note", schedule.started_at ? ["Started by its schedule ", moment(schedule.started_at), ". "] : schedule.start_at && ["Starts ", moment(schedule.start_at), ". "], schedule.ended_at ? ["Enrollment was closed ", moment(schedule.ended_at), "."] : schedule.end_at && ["Enrollment closes ", moment(schedule.end_at), "."]),
		estimate));
}

/// The checklist of an experiment without results: each line is done, or says what to do.
function checklist(experiment) {
	const { key, variations, traffic, metrics, plan, status: now, ramp, schedule } = experiment, isDraft = ["draft", "not_started"].includes(now);
	const line = (isDone, name, ...text) => h("li", { class: isDone ? "done" : "open" }, h("span.mark", { role: "img", label: isDone ? "done" : "open" }, icon(isDone ? "check" : "circle")), h("div", h("strong", name), h("p.note", text)));
	const form = text => api.may("admin") ? link(to("experiments", key, "edit"), text) : text;
	const split = variations.map(v => `${v.key} ${decimal(v.share / (traffic || 100) * 100, 1)}%`).join(", ");
	const curl = lazily("With curl", () => h("pre", { tabindex: "0" }, `curl ${here("v1/assign")} -d '${JSON.stringify({ user_id: "ann", experiment: key })}'\ncurl ${here("v1/exposures")} -d '${JSON.stringify({ user_id: "ann", experiment: key })}'`));
	const asked = line(false, "No app asks for it yet", "Results begin with the first exposure. ", !isDraft && "No exposure has been seen. ", curl);
	api.get(api.path("flags", key), null, { silent: true }).then(({ last_evaluated_on: day }) => { if (day) asked.replaceWith(line(true, "An app asks for it", `Last on ${utcDay(day)}. Results begin with the first exposure. `, curl)); }, () => { /* It is not known. */ });
	return section(isDraft ? "Before it starts" : "Nobody has been seen yet", { note: isDraft ? "A draft is served to nobody." : now === "paused" ? "It is paused: nobody gets a variation." : "Numbers appear with the first exposure." }, card(h("ul.checklist",
		line(variations.length > 1, "Split", variations.length > 1 ? `${split}, ${traffic === 100 ? "of all users" : `of the ${decimal(traffic)}% who are enrolled`}. ` : "With one variation there is nothing to compare. ", variations.length < 2 && form("Add another")),
		line(metrics?.primary.length > 0, metrics?.primary.length > 0 ? "Metrics" : "No primary metric", metrics?.primary.length > 0 ? [`Decided by ${metrics.primary.join(", ")}`, metrics.guardrails.length > 0 && `; ${metrics.guardrails.map(g => g.metric).join(", ")} must not suffer`, ". "] : ["Without one there is no verdict over all of them. ", form("Choose one")]),
		line(plan?.minimum_effect != null, plan?.minimum_effect != null ? "Decision rule" : "No smallest effect of interest", plan?.minimum_effect != null ? `Effects from ${percent(plan.minimum_effect)}, ${decimal(plan.alpha * 100)}% error, ${decimal(plan.power * 100)}% power. ` : ["Say it, and the plan says how long it takes. ", form("Write the plan")]),
		(ramp || schedule?.start_at) && line(true, "Start", schedule?.start_at && ["By itself ", moment(schedule.start_at), ". "], ramp && `The traffic grows: ${ramp.steps.map(s => `${decimal(s.traffic)}%`).join(", ")}.`),
		asked)), isDraft && metrics?.primary.length > 0 && durationSection(experiment));
}

/// The lift of the winner, which the verdict of a goal shows.
function carryingOf({ verdict: { winner, variations }, variations: all }) {
	const id = all.find(v => v.variation_key === winner)?.variation_id, found = variations.find(v => v.variation_id === id);
	return found && { lift: found.lift, interval: found.lift_interval, p: found.p_value };
}

/// The button for the next step by the verdict; nothing if the caller may not do it.
function nextStep(experiment, { decision, winner }, results, changed) {
	if (!["running", "paused"].includes(experiment.status)) return null;
	const step = {
		ship: [`Conclude with ${winner}…`, () => conclude(experiment, winner), "primary"],
		stop: ["Conclude without a winner…", () => conclude(experiment), "primary"],
		invalid: experiment.status === "running" && ["Pause…", () => setStatus(experiment, "paused"), "danger"],
		continue: experiment.status === "paused" && ["Resume…", () => setStatus(experiment, "running"), "primary"],
	}[decision];
	if (step) return doing(step[0], step[1], changed, step[2]);
	const rate = results?.power?.users_per_day;
	return decision === "continue" && h("p.note", "Nothing to do: let it run.", rate > 0 && ` ${many(rate)} users join each day.`);
}

/// The chart of the lift day by day, with its always-valid band.
function liftOverTime({ days, baseline }, name) {
	const keys = [...new Set(days.flatMap(d => d.variations.map(v => v.variation_key)))];
	const of = (day, key) => day.variations.find(v => v.variation_key === key) ?? {};
	const series = keys.slice(0, 10).map((key, color) => ({ name: key, color, values: days.map(d => of(d, key).lift ?? null), low: days.map(d => of(d, key).lift_low ?? null), high: days.map(d => of(d, key).lift_high ?? null) }))
		.filter(s => s.name !== baseline && s.low.some(Number.isFinite));
	if (days.length < 2 || series.length === 0) return null;
	// Early bands are very wide. They are cut off, so that they do not flatten the later ones.
	const last = list => list.findLast(Number.isFinite) ?? 0;
	const reach = Math.max(0.05, ...series.flatMap(s => [Math.abs(last(s.low)), Math.abs(last(s.high)), Math.abs(last(s.values))])) * 2.5;
	return card(lineChart({ title: `Lift of ${name} against ${baseline}, with the interval that is valid at every interim look`, labels: days.map(d => utcDay(d.day)), series, format: signed, fromZero: false, zero: true, limits: [-reach, reach], height: 220 }));
}

/// The charts of new users of each variation, which show whether the split is healthy.
function health({ days, variations }, isDaily) {
	if (days.length < 2) return null;
	const series = variations.slice(0, 10).map((v, color) => {
		let sum = 0;
		return { name: v.variation_key, color, values: days.map(d => { const users = d.variations.find(t => t.variation_id === v.variation_id)?.users ?? 0; return isDaily ? users : sum += users; }) };
	});
	const totals = new Map();
	let all = 0;
	const sofar = days.map(d => { for (const t of d.variations) { totals.set(t.variation_id, (totals.get(t.variation_id) ?? 0) + t.users); all += t.users; } return { all, ...Object.fromEntries(totals) }; });
	const shares = variations.slice(0, 10).map((v, color) => ({ name: v.variation_key, color, values: sofar.map(s => s.all ? (s[v.variation_id] ?? 0) / s.all : null) }));
	return section("New users", { isFolded: true, note: "By the day (UTC) of their first exposure. Lines that part without a change of the split show a fault of counting." },
		card(lineChart({ title: isDaily ? "New users each day" : "Users so far", labels: days.map(d => utcDay(d.day)), series, format: integer })),
		shares.length > 1 && card(lineChart({ title: "Share of the users so far", labels: days.map(d => utcDay(d.day)), series: shares, format: percent, fromZero: false, height: 160 })));
}

/// Every change of the experiment, the newest first; nothing if the caller may not read the audit log.
function timeline(key) {
	if (!api.mayAll("admin")) return null;
	return section("Timeline", { isFolded: true, note: "Every change, by people, the ramp and the bandit.", actions: link(`#/audit?target=${encodeURIComponent(key)}`, "In the audit log") }, older(async after => {
		const { entries, next } = await api.get("/v1/audit", { target: key, limit: 50, after });
		return { rows: entries.filter(e => e.action.startsWith("experiment.")), next };
	}, entries => entries.length ? entryList(entries) : empty("No change is recorded", "Changes over the API appear here.")));
}

/// The number of reasons of a verdict that are not folded.
const shownReasons = () => isPhone() ? 2 : 4;

/// The server's decision, with the lift of the winner, its reasons, and the next step.
export function verdict({ decision, winner, reasons }, carrying, next) {
	const [tone, title] = {
		ship: ["good", `Ship ${winner}`], stop: ["bad", "Stop: no variation is better"],
		continue: ["", "Continue: not certain enough to decide"], invalid: ["bad", "Invalid: do not decide by these numbers"],
	}[decision];
	const said = reasons.map(reason => h("li", sentence(reason))), count = shownReasons();
	const shown = banner(tone, title,
		carrying?.lift != null && h("p.carrying", h("span", { class: `lift ${tone}` }, signed(carrying.lift)), " lift", carrying.interval && `, between ${signed(carrying.interval[0])} and ${signed(carrying.interval[1])}`, carrying.p != null && h("span.faint", ` (p ${pValue(carrying.p)}, valid at any look)`)),
		h("ul", said.slice(0, count)), said.length > count && h("details", h("summary", plural(said.length - count, "more reason")), h("ul", said.slice(count))), next);
	shown.classList.add("verdict");
	// Screen readers must not announce it as an alarm.
	shown.setAttribute("role", "note");
	return shown;
}

/// The numbers that would hold for a single look, which people know from other tools.
function oneLook(rows) {
	const shown = rows.filter(r => r.fixed);
	if (shown.length === 0) return null;
	return h("details.numbers", h("summary", "If this were the only analysis"),
		h("p.note", "These numbers are valid for a single analysis that was planned before the experiment began. Read often, they promise a difference that is not there. The verdict allows for every interim look, and therefore needs more users."),
		table("Numbers for a single analysis", [["Variation", r => r.name], ["Lift", r => signed(r.fixed.lift), "number"],
			["Interval", r => r.fixed.lift_interval ? `${signed(r.fixed.lift_interval[0])} – ${signed(r.fixed.lift_interval[1])}` : none, "number"],
			["p", r => r.fixed.p_value === null ? none : pValue(r.fixed.p_value), "number"],
			["Chance to win", r => r.fixed.chance_to_win === null ? none : chance(r.fixed.chance_to_win), "number"]], shown));
}

const chance = value => value > 0.9999 ? "> 99.99%" : value < 0.0001 ? "< 0.01%" : percent(value, value > 0.999 || value < 0.001 ? 2 : 1);

function cupedNote(rows) {
	const found = rows.filter(r => r.reduction !== null);
	if (!found.length) return "CUPED has nothing to adjust by: no user did anything in the 14 days before the exposure.";
	return `Adjusted by what users did in the 14 days before their exposure; the verdict of a goal is by the numbers without adjustment. ${found.map(r => `${r.name}: ${percent(Math.max(0, r.reduction))} less variance`).join("; ")}.`;
}

/// The effect that can be found with the users so far, and the time until the wanted effect can be found.
function power(results, metric, rows) {
	const found = results.variations.map(v => v[metric]?.power).filter(Boolean);
	if (!results.power || found.length === 0 || rows.some(r => r.lift?.tone)) return null;
	const lifts = found.map(p => p.smallest_lift).filter(Number.isFinite), days = found.map(p => p.days_to_mde).filter(Number.isFinite);
	const { users_per_day: rate, mde } = results.power;
	const wait = days.length ? Math.ceil(Math.max(...days)) : null;
	const sees = lifts.length > 0 && `With the users so far, a lift of ${percent(Math.max(...lifts))} would be seen four times out of five.`;
	if (wait === null) return sees && h("p.note", sees);
	return wait > 0 ? banner("warn", `Not enough users yet for a lift of ${percent(mde)}: about ${plural(wait, "day")} at this rate.`, h("p", `${many(rate)} users a day. `, sees))
		: h("p.note", `Enough users for a lift of ${percent(mde)}. `, sees);
}

/// Numerator and denominator of a day's tally, by the kind of a metric. Other kinds cannot be computed from days.
const sums = {
	conversion: [t => t.converted, t => t.users], retention: [t => t.converted, t => t.users], funnel: [t => t.converted, t => t.users],
	count: [t => t.events, t => t.users], total: [t => t.value ?? 0, t => t.users], value: [t => t.value ?? 0, t => t.users], mean: [t => t.value ?? 0, t => t.events],
};

/// The chart of the rate or mean: of all users up to the end of each day, or of the users of each day.
function overTime(results, metric, isDaily) {
	const days = results.days, kind = results.metric?.kind ?? metric, parts = sums[kind];
	if (days.length < 2 || !parts) return null;
	const z = confidences[results.confidence] ?? 1.96, number = formatOf(results.metric ?? { kind }), isRate = number === percent;
	const series = results.variations.slice(0, 10).map((v, color) => {
		const line = { name: v.variation_key, color, values: [], low: [], high: [] };
		let above = 0, below = 0;
		for (const day of days) {
			const tally = day.variations.find(t => t.variation_id === v.variation_id);
			if (isDaily) above = below = 0;
			if (tally) { above += parts[0](tally); below += parts[1](tally); }
			line.values.push(below ? above / below : null);
			const [low, high] = isRate && !isDaily ? wilson(above, below, z) : [null, null];
			line.low.push(low); line.high.push(high);
		}
		return line;
	});
	const what = isRate ? "Rate" : "Mean", unit = number.note ?? "";
	return card(lineChart({ title: `${isDaily ? `${what} of the users of each day` : `${what} of all users so far`}${unit}`, labels: days.map(d => utcDay(d.day)), series, format: number, fromZero: false }));
}

/// Wilson's score interval of a rate.
function wilson(successes, count, z) {
	if (!count) return [NaN, NaN];
	const rate = successes / count, square = z * z, center = (rate + square / (2 * count)) / (1 + square / count);
	const reach = z / (1 + square / count) * Math.sqrt(rate * (1 - rate) / count + square / (4 * count * count));
	return [Math.max(0, center - reach), Math.min(1, center + reach)];
}

const around = (middle, reach) => [middle - reach, middle + reach];
