// The verdict over all metrics of an experiment, with the numbers that carry it.

import { h } from "./dom.js";
import * as api from "./api.js";
import { badge, banner, dash, section, table } from "./parts.js";
import { none, pValue, percent, sentence, signed } from "./format.js";

/// The results of all metrics; null if the experiment measures none.
export async function planOf({ key, metrics }, { baseline, live }) {
	if (!metrics || [metrics.primary, metrics.secondary, metrics.guardrails].every(list => list.length === 0)) return null;
	return api.get(api.path("experiments", key, "results"), { baseline, live });
}

const outcomes = { better: ["better", "good"], worse: ["worse", "bad"], uncertain: ["not certain yet", ""], within_margin: ["within its margin", "good"], beyond_margin: ["beyond its margin", "bad"] };

/// `verdict` draws the server's decision, with the lift that carries it.
export function planSection({ plan, verdict: decision, metrics, warnings }, verdict) {
	const carrying = metrics.find(m => m.role === "primary")?.variations.find(v => v.variation_key === decision.winner);
	const rows = metrics.flatMap(m => m.variations.filter(v => v.outcome).map(v => ({ ...v, metric: m })));
	const interval = r => r.lift_interval ? `${signed(r.lift_interval[0])} – ${signed(r.lift_interval[1])}` : none;
	return section("Verdict", { note: "By all metrics. You may look whenever you like." },
		verdict(decision, carrying && { lift: carrying.lift, interval: carrying.lift_interval, p: carrying.p_value }),
		plan.changed_since_start.length > 0 && banner("warn", "The plan was changed after the start", h("p", plan.changed_since_start.join(", "))),
		warnings.filter(w => !decision.reasons.includes(w.message)).map(w => banner("warn", sentence(w.message))),
		table("Metrics", [
			["Metric", r => [r.metric.key, " ", h("span.faint", r.metric.role + (r.metric.margin ? `, margin ${percent(r.metric.margin)}` : ""))]],
			["Variation", r => r.variation_key], ["Lift", r => r.lift === null ? dash() : h("strong", signed(r.lift)), "number"], ["Interval", interval, "number"],
			["p", r => r.p_value === null ? none : pValue(r.p_value), "number"], ["Outcome", r => badge(...outcomes[r.outcome])],
		], rows));
}
