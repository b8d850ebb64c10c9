// Changes of definitions as sentences: "Traffic 60% → 20%".

import { h } from "./dom.js";
import { lazily, sideBySide } from "./parts.js";
import { decimal, integer, inUnit, percent, plural, rampStatus, time } from "./format.js";
import { inWords } from "./conditions.js";

export const marginOf = (margin, unit) => typeof margin === "object" ? inUnit(unit)(margin.absolute) : percent(margin);

/// The members that are not shown: the server adds them, or another member has the same content.
const left = new Set(["id", "key", "revision", "version", "sdk_key", "traffic_allocation", "audience_conditions", "defined_by", "last_evaluated_on", "last_exposed_on", "experiments", "proposals", "assigned_at", "updated_at", "experiment_id", "beneath", "user_id"]);
const titles = { share: "Held out", assignment_ttl: "Users keep their variation", minimum_effect: "Smallest effect of interest", variation_id: "Variation", expires_at: "Until", otherwise: "Everybody else gets", enabled: "Turned on", sticky: "Sticky" };
const title = name => titles[name] ?? name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " ");

const named = list => list?.length ? list.join(", ") : null;
const split = list => {
	const total = list.reduce((sum, v) => sum + (v.weight ?? 1), 0) || 1;
	return list.map(v => `${v.key} ${decimal((v.weight ?? 1) / total * 100, 1)}%`).join(", ");
};
const value = v => typeof v === "string" ? v : JSON.stringify(v);
const steps = r => r.steps.map(s => `${decimal(s.traffic)}%${s.for ? ` for ${s.for}` : s.users ? ` until ${integer(s.users)} users` : ""}`).join(", then ");

/// A rule as a sentence: "If country is "de", serve on to 20%".
export function ruleInWords({ audience, variation, traffic, experiment }) {
	const who = audience == null || Array.isArray(audience) && audience.length === 0 ? "For everybody, " : `If ${inWords(audience)}, `;
	if (!experiment) return `${who}serve ${variation}${(traffic ?? 100) < 100 ? ` to ${decimal(traffic)}%` : ""}.`;
	const total = Object.values(experiment.weights ?? {}).reduce((sum, w) => sum + w, 0) || 1;
	const parts = Object.entries(experiment.weights ?? {}).filter(([, w]) => w > 0).map(([key, w]) => `${key} ${decimal(w / total * 100, 1)}%`).join(", ");
	return `${who}test ${parts || "nothing"}${(experiment.traffic ?? 100) < 100 ? ` on ${decimal(experiment.traffic)}% of them` : ""}${experiment.status && experiment.status !== "running" ? ` (${experiment.status.replaceAll("_", " ")})` : ""}.`;
}

/// The values of members in words.
const words = {
	variations: list => list.some(v => "value" in v) ? list.map(v => `${v.key} = ${value(v.value)}`).join(", ") : split(list),
	traffic: v => `${decimal(v)}%`, share: v => `${decimal(v)}%`, audience: v => inWords(v), conditions: v => inWords(v), tags: list => named(list),
	minimum_effect: v => percent(v), expires_at: time,
	metrics: m => [named(m.primary), named((m.guardrails ?? []).map(g => `${g.metric} within ${marginOf(g.margin)}`)), m.secondary?.length && `also ${named(m.secondary)}`, m.breakdowns?.length && `by ${named(m.breakdowns)}`].filter(Boolean).join("; ") || null,
	plan: p => `${decimal(p.alpha * 100)}% error, ${decimal(p.power * 100)}% power${p.minimum_effect ? `, effects from ${percent(p.minimum_effect)}` : ""}`,
	schedule: s => [s.start_at && `from ${time(s.start_at)}`, s.end_at && `until ${time(s.end_at)}`].filter(Boolean).join(" ") || null,
	ramp: r => r.steps ? steps(r) : null, rules: list => list.length ? list.map(ruleInWords).join(" ") : null,
	bandit: b => `updates its weights every ${b.every}, at least ${decimal(b.minimum_share)}% each`,
	conclusion: c => c.winner === null ? "without a winner" : `everybody gets ${c.winner}`,
	enabled: v => v ? "yes" : "no", assignment_ttl: v => v === "forever" ? "for ever" : v,
	adjustment: a => a === "none" ? "nothing" : a.attribute ? `by ${a.attribute}` : `by ${plural(a.days, "day")} before`,
	numerator: n => `${n.goal} (${n.by ?? "value"})`, denominator: n => `${n.goal} (${n.by ?? "value"})`,
};

/// A member's value in words; `null` for none.
function inText(name, v) {
	if (v == null || v === "" || Array.isArray(v) && v.length === 0 && !["audience", "conditions"].includes(name)) return ["audience", "conditions"].includes(name) ? "everybody" : null;
	return words[name] ? words[name](v) : typeof v === "object" ? Array.isArray(v) && v.every(e => typeof e !== "object") ? v.join(", ") : JSON.stringify(v) : String(v).replaceAll("_", " ");
}

/// The element in an entry of the audit log or in a proposal, which has it in a member such as `experiment`.
export const elementOf = side => side == null ? null : ["experiment", "flag", "metric", "holdout", "segment", "attribute", "project"].map(name => side[name]).find(e => e && typeof e === "object") ?? side;

/// The differing members of two elements, each with its title and both values in words.
export function differences(before, after) {
	const [former, latter] = [elementOf(before) ?? {}, elementOf(after) ?? {}], found = [];
	for (const name of new Set([...Object.keys(former), ...Object.keys(latter)])) {
		if (left.has(name) || JSON.stringify(former[name]) === JSON.stringify(latter[name])) continue;
		const [one, other] = [former[name], latter[name]].map(v => inText(name, v));
		if (name === "ramp" && former.ramp && latter.ramp && JSON.stringify(former.ramp.state) !== JSON.stringify(latter.ramp.state)) {
			const state = ({ state: s }) => s ? `step ${s.step}, ${rampStatus(s.status)}` : null;
			found.push({ name, title: "Ramp", from: state(former.ramp), to: state(latter.ramp) });
		}
		if (name === "bandit" && latter.bandit?.state?.looked_at && former.bandit?.state?.looked_at !== latter.bandit.state.looked_at) {
			const { users, reason } = latter.bandit.state;
			found.push({ name, title: "Looked at", from: null, to: `${plural(users, "user")}${reason ? ` (${reason})` : ""}` });
		}
		if (one !== other) found.push({ name, title: title(name), from: one, to: other });
	}
	return found;
}

/// One difference: "Traffic 60% → 20%".
export const said = ({ title, from, to }, isNew) => [h("strong", title), " ", !isNew && from !== null && [h("del", from), " → "], h("ins", to ?? "none")];

export const listed = (differences, isNew) => h("ul.changes", differences.map(d => h("li", said(d, isNew))));

/// The differences in one line of text.
export const inLine = differences => differences.map(({ title, from, to }) => `${title} ${from === null ? "" : `${from} → `}${to ?? "none"}`).join("; ");

/// A proposed change in one line. For an experiment it has the differences only, for other elements also the name.
export function proposed({ action, target, before, after }) {
	const [noun, verb] = action.split("."), name = `${noun.charAt(0).toUpperCase()}${noun.slice(1)} ${target}`;
	if (!after) return `${name}: ${verb}`;
	const found = differences(before, after), text = inLine(found.slice(0, 3)) + (found.length > 3 ? ` and ${found.length - 3} more` : "");
	return noun === "experiment" && before ? text || `${verb.replace("put", "save")} ${target}` : `${name}${before ? "" : " (new)"}: ${text || "no difference"}`;
}

/// The differences as sentences, and both sides as folded JSON.
export const compared = (before, after, names) => [listed(differences(before, after)), lazily("As JSON", () => sideBySide(before, after, names))];

const share = v => `${decimal(v)}%`;

/// The server's preview of a change of an experiment as sentences about users.
export function effectsInWords({ creates, new_users: newUsers, enrolled }) {
	if (creates) return ["It is new, so nothing changes for any user."];
	const told = [];
	if (enrolled.lose) told.push(`${plural(enrolled.lose, "user")} ${enrolled.lose === 1 ? "loses" : "lose"} their variation.`);
	if (enrolled.change) told.push(`${plural(enrolled.change, "user")} ${enrolled.change === 1 ? "gets" : "get"} another variation.`);
	if (enrolled.gain) told.push(`${plural(enrolled.gain, "user")} ${enrolled.gain === 1 ? "gets" : "get"} theirs back.`);
	if (told.length === 0) told.push(enrolled.users > 0 ? `All ${plural(enrolled.users, "user")} who are enrolled keep their variation.` : "Nobody is enrolled yet.");
	told.push(newUsers.changed > 0 ? `Of new users, ${newUsers.moves.map(m => `${share(m.share)} would get ${m.to ?? "nothing"} instead of ${m.from ?? "nothing"}`).join(", ")}.` : "New users get the same as now.");
	return told;
}
