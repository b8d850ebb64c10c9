// The verdict over all metrics of an experiment, its plan, and results by the values of an attribute.

import { h, update } from "./dom.js";
import * as api from "./api.js";
import { badge, banner, choose, dash, empty, failure, field, isPhone, pending, section, table } from "./parts.js";
import { decimal, inUnit, integer, many, none, pValue, percent, plural, sentence, signed } from "./format.js";
import { axis, drawn, scale } from "./charts.js";
import { marginOf } from "./sentences.js";

const isMeasured = ({ metrics }) => Boolean(metrics) && [metrics.primary, metrics.secondary, metrics.guardrails].some(list => list.length > 0);

/// The results of all metrics; null if the experiment measures none.
export const planOf = async (experiment, { metric, confidence, ...options }) => isMeasured(experiment) ? api.get(api.path("experiments", experiment.key, "results"), options) : null;

/// Returns the function that writes numbers of a metric.
export const formatOf = metric => ["conversion", "retention", "funnel"].includes(metric?.kind) ? percent : inUnit(metric?.unit);

const outcomes = { better: ["better", "good"], worse: ["worse", "bad"], uncertain: ["not certain yet", ""], within_margin: ["within its margin", "good"], beyond_margin: ["beyond its margin", "bad"] };

/// The CSS class of a lift. A lift within its margin is neutral, because it shows no gain.
const toneOf = ({ outcome }) => outcome === "within_margin" ? "" : outcomes[outcome]?.[1] ?? "";

/// The columns of results: the lift with its interval, then the variation's number beside the baseline's.
const columnsOf = (lifts, first) => [
	...first,
	["Lift", r => r.lift === null || !r.lift_interval?.every(Number.isFinite) ? dash() : h("span", { class: `lift ${toneOf(r)}` }, signed(r.lift)), "number"],
	["Always-valid interval", r => r.lift_interval?.every(Number.isFinite) ? drawn("lift ", { low: r.lift_interval[0], high: r.lift_interval[1], estimate: r.lift }, signed, { scale: lifts, tone: toneOf(r), zero: true, margin: marginLine(r) }) : unbounded(r), "drawn", null, axis(lifts, v => signed(v, 0))],
	["Outcome", r => r.outcome ? badge(...outcomes[r.outcome]) : dash()],
	["p", r => r.p_value == null ? none : pValue(r.p_value), "number"],
	["Value", r => [r.format(r.mean), h("div.small.faint", `${r.baseline.variation_key} ${r.format(r.baseline.mean)}`)], "number"],
	["Users", r => integer(r.users), "number"],
];

/// The margin of a guardrail on the axis of lifts; undefined for other metrics and absolute margins.
const marginLine = ({ metric }) => typeof metric?.margin === "number" ? metric.direction === "decrease" ? metric.margin : -metric.margin : undefined;

/// Replaces the interval of a lift that is not bounded.
export const unbounded = ({ difference, difference_interval: interval, metric }) => {
	const write = inUnit(metric?.unit);
	return difference == null ? dash() : h("span.small", `lift not bounded; difference ${write(difference)}`, interval && ` (${write(interval[0])} – ${write(interval[1])})`);
};

/// The rows of the variations that are compared, each with the baseline.
const rowsOf = (variations, baseline, format, more) => {
	const base = variations.find(v => v.variation_key === baseline) ?? variations[0];
	return variations.filter(v => v.outcome).map(v => ({ ...v, baseline: base, format, ...more }));
};

const scaleOf = rows => scale(rows.flatMap(r => [...r.lift_interval ?? [], marginLine(r)]).filter(Number.isFinite), true);

/// The section of the verdict. `verdict` is the function that draws the server's decision, with the lift of the winner.
export function planSection({ plan, verdict: decision, metrics, warnings, baseline }, verdict) {
	const carrying = metrics.find(m => m.role === "primary")?.variations.find(v => v.variation_key === decision.winner);
	const rows = metrics.flatMap(m => rowsOf(m.variations, baseline, formatOf(m), { metric: m }));
	const lifts = scaleOf(rows);
	const several = new Set(rows.map(r => r.variation_key)).size > 1;
	const columns = columnsOf(lifts, [["Metric", r => [h("span.name", r.metric.key), several && h("span", ` ${r.variation_key}`), r.metric.margin != null && h("div.small.faint", `margin ${marginOf(r.metric.margin, r.metric.unit)}`)]]]);
	return section("Verdict", { note: "By all metrics. It may be read at any time." },
		verdict(decision, carrying && { lift: carrying.lift, interval: carrying.lift_interval, p: carrying.p_value }),
		plan?.changed_since_start?.length > 0 && banner("warn", "The plan was changed after the start", h("p", plan.changed_since_start.join(", "))),
		warnings.filter(w => !decision.reasons.includes(w.message)).map(w => banner("warn", sentence(w.message))),
		disagreements(planDisagreements(metrics, decision)),
		h("div.block", table("Metrics", columns, [], { groups: Object.entries({ primary: "Primary metrics: these decide", guardrail: "Guardrails: these must not suffer", secondary: "Secondary metrics: these explain" })
			.map(([role, name]) => [name, rows.filter(r => r.metric.role === role)]).filter(([, some]) => some.length > 0) })),
		h("details.numbers", h("summary", "If this were the only analysis"),
			h("p.note", "These numbers are valid for a single analysis that was planned before the experiment began. The verdict allows for every interim look, and therefore needs more users."),
			table("Numbers for a single analysis, by metric", [["Metric", r => r.metric.key], ["Variation", r => r.variation_key],
				["Interval", r => r.one_look?.lift_interval?.every(Number.isFinite) ? `${signed(r.one_look.lift_interval[0])} – ${signed(r.one_look.lift_interval[1])}` : none, "number"], ["p", r => r.one_look ? pValue(r.one_look.p_value) : none, "number"],
				["Chance to win", r => r.one_look ? percent(r.one_look.chance_to_win) : none, "number"]], rows)));
}

/// Explains numbers that seem to contradict each other, where they stand.
export const disagreements = notes => notes.length > 0 && h("details.disagree", { open: !isPhone() }, h("summary", "Why some numbers seem to disagree"), h("ul.reasons", notes.map(note => h("li", note))));

/// Explains metrics that seem to contradict each other, or the decision.
function planDisagreements(metrics, { decision, winner }) {
	const notes = [];
	const found = metrics.flatMap(m => m.variations.filter(v => v.outcome).map(v => ({ ...v, metric: m })));
	const keys = [...new Set(found.map(f => f.variation_key))];
	for (const key of keys) {
		const own = found.filter(f => f.variation_key === key), primary = own.filter(f => f.metric.role === "primary");
		const better = primary.filter(f => f.outcome === "better"), worse = primary.filter(f => f.outcome === "worse");
		const open = own.filter(f => f.metric.role === "guardrail" && f.outcome !== "within_margin");
		if (better.length && worse.length) notes.push(`${key} is better in ${better.map(f => f.metric.key).join(", ")} and worse in ${worse.map(f => f.metric.key).join(", ")}: what worsens a primary metric is not shipped.`);
		else if (better.length && open.length && winner !== key) notes.push(`${key} is better in ${better.map(f => f.metric.key).join(", ")}, but is not shipped: ${open.map(f => `${f.metric.key} is ${outcomes[f.outcome][0] === "not certain yet" ? "not shown to stay within its margin yet" : "beyond its margin"}`).join("; ")}.`);
		for (const f of own.filter(f => f.metric.role === "guardrail" && f.outcome === "within_margin" && (f.metric.direction === "decrease" ? f.lift > 0 : f.lift < 0))) {
			notes.push(`${f.metric.key} of ${key} looks worse (${signed(f.lift)}) and still passes: it is certain that it is not worse by as much as its margin of ${marginOf(f.metric.margin, f.metric.unit)}.`);
		}
	}
	const early = found.filter(f => f.outcome === "uncertain" && f.metric.role !== "secondary" && f.one_look?.p_value < 0.05 && f.metric.role === "primary");
	if (early.length) notes.push(`${early.map(f => `${f.metric.key} of ${f.variation_key}`).join(", ")} would be certain if this were the only analysis (p ${pValue(Math.min(...early.map(f => f.one_look.p_value)))}), and is not yet, because every interim look counts.`);
	const certain = found.filter(f => f.metric.role === "secondary" && ["better", "worse"].includes(f.outcome));
	if (decision === "continue" && certain.length) notes.push(`${certain.map(f => `${f.metric.key} of ${f.variation_key}`).join(", ")} is certain, but only primary metrics and guardrails decide.`);
	return notes;
}

/// Results for each value of an attribute, `name`. `choice` is the metric or goal, `choosing` is called with another attribute.
export function breakdownSection(experiment, name, choice, choosing, options) {
	const attributes = experiment.metrics?.breakdowns ?? [];
	if (attributes.length === 0) return null;
	const chosen = attributes.includes(name) ? name : attributes[0];
	const primary = experiment.metrics.primary[0];
	const [kind, subject] = choice ?? ["metric", primary];
	if (!subject) return null;
	return section("By group", { note: `${subject}, by the value at the first exposure. This explores: the verdict does not depend on it.`,
		actions: choose("Attribute", attributes, chosen, choosing), isFolded: true }, pending(async () => {
		const results = await api.get(api.path("experiments", experiment.key, "results"), { [kind]: subject, breakdown: chosen, baseline: options.baseline, live: options.live });
		const { groups, users_without_group: without } = results.breakdown, format = kind === "metric" ? formatOf(results.metric) : percent;
		const rows = groups.flatMap(g => rowsOf(g.variations, results.baseline, format, { group: g }));
		if (rows.length === 0) return empty("No group has users yet", "Values are captured at the first exposure.");
		const nameOf = g => g.group === "value" ? g.value : g.group === "none" ? "no value" : "other values";
		const total = results.verdict.variations?.find(v => v.lift !== undefined)?.lift;
		const notes = [];
		for (const key of new Set(rows.map(r => r.variation_key))) {
			const own = rows.filter(r => r.variation_key === key && r.lift !== null);
			const up = own.filter(r => r.outcome === "better"), down = own.filter(r => r.outcome === "worse");
			if (up.length && down.length) notes.push(`${key} is better for ${up.map(r => nameOf(r.group)).join(", ")} and worse for ${down.map(r => nameOf(r.group)).join(", ")}: the total is their mixture, and says little about either.`);
			else if (Number.isFinite(total) && own.length > 1 && own.every(r => Math.sign(r.lift) === -Math.sign(total))) notes.push(`${key} has the other sign in the total than in every group: the groups are of different size in the variations. Trust the groups, and look for what changed the mixture.`);
		}
		if (!rows.some(r => ["better", "worse"].includes(r.outcome)) && results.verdict.decision === "ship") notes.push("No group is certain alone, also where the total is: each has fewer users, and many comparisons are corrected for their number.");
		return [disagreements(notes), table(`Results by ${chosen}`, columnsOf(scaleOf(rows), [["Group", r => [h("span.name", nameOf(r.group)), h("span", ` ${r.variation_key}`)]]]), rows),
			without > 0 && h("p.note", `${plural(without, "user")} were exposed before this breakdown was declared, and have no group.`)];
	}));
}

/// How many users and days the decision takes, by the plan.
export function needs(experiment) {
	if (!isMeasured(experiment) || !["draft", "running", "paused", "not_started"].includes(experiment.status)) return null;
	return pending(async () => {
		let estimate;
		try {
			estimate = (await api.call("POST", api.path("experiments", experiment.key, "plan"), { body: {}, silent: true })).data;
		} catch (error) {
			if (error.name === "AbortError" || !(error instanceof api.Problem)) throw error;
			return error.status !== 422 ? failure(error) : h("p.note", "How long it takes is not known yet: ", error.message.includes("minimum_effect") ? "say in the plan which effect is the smallest of interest." : sentence(error.message));
		}
		const { all, metrics = [], enrolled, traffic } = estimate;
		const needed = all?.any_time ?? estimate.any_time;
		const missing = metrics.filter(m => m.missing);
		return h("div.note", needed?.users ? h("p", h("strong", `About ${many(needed.users)} users`), needed.days != null ? `, ${plural(Math.ceil(needed.days), "more day")} at ${many(traffic?.users_per_day ?? 0)} users a day, ` : " ", `until the smallest effect of interest is found; ${integer(enrolled ?? 0)} are enrolled already.`)
			: h("p", "How long it takes is not known yet", missing.length ? `: ${missing.map(m => `${m.metric}: ${m.missing}`).join("; ")}.` : ". Say the smallest effect of interest in the plan."),
			metrics.some(m => m.any_time?.users) && metrics.length > 1 && h("p", metrics.filter(m => m.any_time?.users).map(m => `${m.metric} ${many(m.any_time.users)} users`).join(", ")));
	}, "Working out how long it takes…");
}

/// The rule by which an experiment is decided.
export const ruleOf = ({ plan, metrics }) => plan && isMeasured({ metrics }) && h("p.note", `Decided at ${decimal(plan.alpha * 100)}% error, ${decimal(plan.power * 100)}% power`, plan.minimum_effect != null && `, for effects from ${percent(plan.minimum_effect)}`, ".");

/// A calculator for a draft: how long it takes at several shares of the traffic, and which effect it finds in a time. It is
/// filled with what is known of this experiment, or of the one with most users.
export function durationSection(experiment) {
	const metric = experiment.metrics.primary[0], path = api.path("experiments", experiment.key, "plan");
	const ask = async body => {
		try { return (await api.call("POST", path, { body: { metric, ...body }, silent: true })).data; } catch (error) {
			if (error instanceof api.Problem && [404, 422].includes(error.status)) return { missing: error };
			throw error;
		}
	};
	return section("How long it takes", { note: `By ${metric}, the first primary metric.` }, pending(async () => {
		const definition = await api.get(api.path("metrics", metric), null, { silent: true }).catch(() => ({}));
		const effect = experiment.plan?.minimum_effect ?? definition.minimum_effect ?? 0.1;
		let known = await ask({ minimum_effect: effect }), source = "this experiment";
		if (known.missing) {
			const { experiments } = await api.get("/v1/overview", { sort: "users", status: "running,concluded", limit: 2 }, { silent: true });
			const other = experiments.find(e => e.key !== experiment.key && e.users > 0);
			if (other) known = await ask({ minimum_effect: effect, from: other.key });
			source = other?.name ?? other?.key;
		}
		const isKnown = !known.missing, isRate = formatOf({ kind: known.kind ?? definition.kind ?? "conversion" }) === percent;
		// A ramp ends with its last step.
		const traffic = experiment.ramp?.steps.at(-1).traffic || experiment.traffic || 100;
		// The server's number is that of the users whom the experiment's own traffic would enroll.
		const rate = isKnown && experiment.traffic > 0 ? known.traffic.users_per_day / (experiment.traffic / 100) : null;
		const round = (value, digits) => value == null ? "" : Number(value.toPrecision(digits));
		const number = (label, value, unit, hint, limits) => field(label, h("input", { type: "number", step: "any", value, ...limits }), { hint, after: unit && h("span.unit", unit) });
		const base = number(isRate ? "Users who do it today" : "Mean today", isKnown ? round(known.baseline.mean * (isRate ? 100 : 1), 3) : "", isRate ? "%" : definition.unit, isKnown && `As in ${known.baseline.from ?? source}.`, isRate ? { min: 0.001, max: 99.9 } : {});
		const spread = !isRate && number("Standard deviation", isKnown ? round(known.baseline.standard_deviation, 3) : "", definition.unit, null, { min: 0 });
		const users = number("Users a day", rate ? Math.round(rate) : "", null, rate ? `All who could be enrolled, as in ${known.traffic.from ?? source}.` : "All who could be enrolled.", { min: 1 });
		const wanted = number("Smallest effect of interest", round(effect * 100, 4), "%", "Of today’s number.", { min: 0.01 });
		const answer = h("div", { role: "status" });
		let asked = 0, timer;

		async function estimate() {
			const count = asked += 1, value = f => f && f.input.value !== "" ? Number(f.input.value) : null;
			const body = { baseline: value(base) === null ? null : value(base) / (isRate ? 100 : 1), users_per_day: value(users) };
			if (!body.baseline || !body.users_per_day || !value(wanted)) return update(answer, h("p.note", "Fill in what happens today, and how many users come a day."));
			if (spread) body.standard_deviation = value(spread);
			const takes = traffic / 100;
			const [need, ...finds] = await Promise.all([ask({ ...body, minimum_effect: value(wanted) / 100 }), ...[7, 14, 28].map(days => ask({ ...body, users_per_day: body.users_per_day * takes, minimum_effect: value(wanted) / 100, days }))]);
			if (count !== asked) return;
			if (need.missing) return update(answer, h("p.note", sentence(need.missing.message)));
			const needed = need.any_time.users, shares = [...new Set([5, 10, 50, 100, traffic])].sort((a, b) => a - b);
			const days = part => Math.ceil(needed / (body.users_per_day * part / 100));
			update(answer, h("p", h("strong", `${plural(days(traffic), "day")} at ${decimal(traffic)}% of the traffic`), `, for ${many(needed)} users in all, if you look whenever you like.`),
				h("div.columns", table("Days by traffic", [["Traffic", s => `${decimal(s)}%`], ["Days", s => integer(days(s)), "number"]], shares, { kind: "small-table" }),
					table("Effect by days", [["After", f => plural(f.days, "day")], ["It finds effects from", f => f.any_time?.detectable_effect == null ? none : percent(f.any_time.detectable_effect), "number"]], finds.filter(f => !f.missing), { kind: "small-table" })));
		}

		const form = h("form", { onsubmit: event => event.preventDefault(), oninput: () => { clearTimeout(timer); timer = setTimeout(() => estimate().catch(() => {}), 250); } }, h("div.fields", base, spread, users, wanted));
		await estimate();
		return h("div.card.duration", form, answer);
	}, "Working out how long it takes…"));
}
