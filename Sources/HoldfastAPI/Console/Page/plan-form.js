// The parts of the experiment's form that say what is measured, by which rule it is decided, and how the traffic grows.

import { h, replace } from "./dom.js";
import { button, choose, field, iconButton, picker, select } from "./parts.js";
import { marginOf } from "./sentences.js";

/// Makes a group of inputs a field, so that errors of the server are shown at it.
const asField = (element, pointer, read) => Object.assign(h("div.field", element, h("p.error", { hidden: true })), { pointer, isField: true, input: element, read });

/// The metrics of an experiment, each with its role. `read()` returns them as the API has them, or `null` for none.
export function metricsForm(initial, known, attributes) {
	const rows = initial ? [...initial.primary.map(metric => ({ role: "primary", metric })), ...initial.guardrails.map(g => ({ role: "guardrail", metric: g.metric, ...(typeof g.margin === "object" ? { absolute: g.margin } : { margin: g.margin * 100 }) })), ...initial.secondary.map(metric => ({ role: "secondary", metric }))] : [];
	const list = h("ul.rows"), names = known.map(m => m.key);
	const groups = picker("Results by group", initial?.breakdowns ?? [], attributes.map(a => a.name), { isOpen: true, hint: attributes.length ? "Up to five attributes, by whose values results are divided." : "Define attributes to divide results by their values.", pointer: "/metrics/breakdowns" });

	function draw() {
		replace(list, rows.map((row, index) => h("li",
			choose(`Role of metric ${index + 1}`, [["primary", "Primary"], ["guardrail", "Guardrail"], ["secondary", "Secondary"]], row.role, value => { row.role = value; row.margin ??= 10; draw(); }),
			choose(`Metric ${index + 1}`, names.includes(row.metric) ? names : [row.metric, ...names], row.metric, value => { row.metric = value; }),
			row.role === "guardrail" && row.absolute && h("span.small", `margin ${marginOf(row.absolute, known.find(m => m.key === row.metric)?.unit)}`),
			row.role === "guardrail" && !row.absolute && h("label.number-unit", "margin", h("input", { type: "number", min: 0.1, max: 100, step: 0.1, required: true, value: row.margin, label: `Margin of metric ${index + 1} in percent`, oninput: e => { row.margin = Number(e.target.value); } }), h("span.unit", "%")),
			iconButton("close", `Remove metric ${index + 1}`, () => { rows.splice(index, 1); draw(); }))));
	}

	const add = () => {
		const unused = names.find(name => !rows.some(r => r.metric === name)) ?? names[0];
		rows.push({ role: rows.some(r => r.role === "primary") ? "secondary" : "primary", metric: unused });
		draw();
		list.lastChild.querySelector("select").focus();
	};
	draw();
	const element = asField(h("div", { tabindex: "-1" }, list, names.length > 0 ? h("div.adders", button("Add a metric", add, "quiet"))
		: h("p.note", "No metric is defined yet. ", h("a", { href: "#/metrics" }, "Define one"), " to have a verdict over all of them."), groups), "/metrics", () => {
		const split = groups.read();
		if (rows.length === 0 && split.length === 0) return null;
		const of = role => rows.filter(r => r.role === role);
		return { primary: of("primary").map(r => r.metric), secondary: of("secondary").map(r => r.metric), guardrails: of("guardrail").map(r => ({ metric: r.metric, margin: r.absolute ?? Math.round(r.margin * 1e4) / 1e6 })), breakdowns: split };
	});
	element.pick = pointer => {
		const [, role, index] = /^\/metrics\/(primary|guardrails|secondary)\/(\d+)/.exec(pointer) ?? [];
		const own = rows.filter(r => r.role === (role === "guardrails" ? "guardrail" : role)), row = list.children[rows.indexOf(own[index])];
		return row?.querySelector(pointer.endsWith("margin") ? "input" : "select + select");
	};
	return element;
}

/// The decision rule. `read()` returns `null` if the experiment has none and the form still has the defaults.
export function ruleForm(initial) {
	const number = (label, value, hint, pointer, limits) => field(label, h("input", { type: "number", value, ...limits }), { hint, pointer: `/plan/${pointer}`, after: h("span.unit", "%") });
	const percentOf = value => value == null ? "" : Math.round(value * 1e6) / 1e4;
	const effect = number("Smallest effect of interest", percentOf(initial?.minimum_effect), "Optional. With it the console says how long it takes.", "minimum_effect", { min: 0.01, max: 1000, step: "any" });
	const alpha = number("Error", percentOf(initial?.alpha ?? 0.05), "How often a difference may be found that is none.", "alpha", { min: 0.01, max: 50, step: "any", required: true });
	const power = number("Power", percentOf(initial?.power ?? 0.8), "How often the smallest effect is to be found.", "power", { min: 50, max: 99.99, step: "any", required: true });
	const share = ({ input }) => input.value === "" ? null : Math.round(Number(input.value) * 1e4) / 1e6;
	return Object.assign(h("div.fields", effect, alpha, power), { isField: false, read: () => {
		const plan = { alpha: share(alpha), power: share(power), minimum_effect: share(effect) };
		return initial === null && plan.alpha === 0.05 && plan.power === 0.8 && plan.minimum_effect === null ? null : plan;
	} });
}

const unit = { d: "days", h: "hours", m: "minutes", s: "seconds" };

/// Whether the weights follow the results. `read()` returns the bandit, with the members that the form does not show, or `null`.
export function banditForm(initial) {
	const isOn = initial !== null, every = initial?.every ?? "1d";
	const count = h("input", { type: "number", min: 1, step: 1, required: true, value: Number(every.slice(0, -1)), label: "Interval of the updates" });
	const units = select(Object.entries(unit).filter(([u]) => u !== "s"), every.at(-1), { label: "Unit of the interval" });
	const share = field("At least for each variation", h("input", { type: "number", min: 0, max: 50, step: "any", value: initial?.minimum_share ?? 5 }), { pointer: "/bandit/minimum_share", after: h("span.unit", "%") });
	const looks = field("Updates every", count, { pointer: "/bandit/every", after: units });
	const more = h("div.fields", { hidden: !isOn }, looks, share);
	const set = on => { more.hidden = !on; for (const input of more.querySelectorAll("input, select")) input.disabled = !on; };
	const kind = select([["", "stay as they are"], ["bandit", "follow the results (a bandit)"]], isOn ? "bandit" : "", { onchange: () => set(kind.value !== "") });
	set(isOn);
	const choice = field("Weights of the variations", kind, { pointer: "/bandit", hint: "A bandit gives new users what does best in the first primary metric. Enrolled users keep their variation." });
	return Object.assign(h("div.field", choice, more), { read: () => kind.value === "" ? null : { ...initial, every: `${count.value}${units.value}`, minimum_share: Number(share.input.value) } });
}

/// How long users keep a variation. `read()` returns "forever", a time such as "30d", or `null` for the choice `otherwise`.
export function lifetimeField(value, otherwise, hint) {
	const isTime = value !== null && value !== "forever";
	const count = h("input", { type: "number", min: 1, step: 1, required: true, value: isTime ? Number(value.slice(0, -1)) : 30, label: "Length of the time" });
	const units = select(Object.entries(unit), isTime ? value.at(-1) : "d", { label: "Unit of the time" });
	const time = h("span.number-unit", { hidden: !isTime }, count, units);
	const kind = select([["", otherwise], ["forever", "for ever"], ["time", "for a time"]], value === null ? "" : isTime ? "time" : value, { onchange: () => { time.hidden = count.disabled = kind.value !== "time"; } });
	count.disabled = !isTime;
	return Object.assign(field("Users keep their variation", kind, { hint, pointer: "/assignment_ttl", after: time }), { read: () => kind.value === "time" ? `${count.value}${units.value}` : kind.value || null });
}

/// The steps of a ramp. `read()` returns the ramp, or `null` without steps. `changed` is called with whether there are steps.
export function rampForm(initial, changed) {
	const rows = (initial?.steps ?? []).map(s => ({ traffic: s.traffic, until: s.users ? "users" : s.for?.at(-1) ?? "d", count: s.users ?? (s.for ? Number(s.for.slice(0, -1)) : 1) }));
	const list = h("ol.rows");
	const alarm = field("An alarm", select([["pause", "pauses the experiment"], ["hold", "keeps the traffic as it is"], ["back", "sets the traffic to 0"]], initial?.on_alarm ?? "pause"), { hint: "A wrong split, or a guardrail beyond its margin.", pointer: "/ramp/on_alarm" });
	const options = h("div", alarm);

	function draw() {
		changed(rows.length > 0);
		options.hidden = rows.length === 0;
		replace(list, rows.map((row, index) => {
			const isLast = index === rows.length - 1;
			return h("li", h("span.number-unit", h("input", { type: "number", min: 0, max: 100, step: 0.01, required: true, value: row.traffic, label: `Traffic of step ${index + 1} in percent`, oninput: e => { row.traffic = Number(e.target.value); } }), h("span.unit", "%")),
				isLast ? h("span.faint", "to the end") : h("span.number-unit", h("span.faint", row.until === "users" ? "until" : "for"), h("input", { type: "number", min: 1, step: 1, required: true, value: row.count, label: `Length of step ${index + 1}`, oninput: e => { row.count = Number(e.target.value); } }),
					choose(`Unit of step ${index + 1}`, [...Object.entries(unit), ["users", "users"]], row.until, value => { row.until = value; draw(); })),
				iconButton("close", `Remove step ${index + 1}`, () => { rows.splice(index, 1); draw(); }));
		}));
	}

	const add = () => {
		if (rows.length === 0) rows.push({ traffic: 5, until: "d", count: 1 }, { traffic: 50, until: "d", count: 2 }, { traffic: 100, until: "d", count: 1 });
		else {
			// Between the last two, so that the traffic grows.
			const last = rows.at(-1), former = rows.at(-2)?.traffic ?? 0;
			if (last.traffic < 100) rows.push({ traffic: Math.min(100, Math.max(last.traffic * 2, last.traffic + 1)), until: "d", count: 1 });
			else rows.splice(-1, 0, { traffic: Math.round((former + last.traffic) / 2), until: "d", count: 1 });
		}
		draw();
		list.children[Math.max(0, rows.length - 2)].querySelector("input").focus();
	};
	draw();
	const element = asField(h("div", { tabindex: "-1" }, list, h("div.adders", button("Add a step", add, "quiet"), h("span.note", "The traffic grows by itself, unless an alarm stops it.")), options), "/ramp", () => rows.length === 0 ? null : {
		steps: rows.map((row, index) => index === rows.length - 1 ? { traffic: row.traffic } : { traffic: row.traffic, ...(row.until === "users" ? { users: row.count } : { for: `${row.count}${row.until}` }) }),
		on_alarm: alarm.input.value, keep: initial?.keep ?? true,
	});
	element.pick = pointer => list.children[/^\/ramp\/steps\/(\d+)/.exec(pointer)?.[1]]?.querySelector(pointer.endsWith("/traffic") ? "input" : "input:not([step='0.01'])");
	return element;
}
