// The form of an experiment. Before it can be saved, it shows the changes and how they would affect users.

import { h, replace } from "./dom.js";
import * as api from "./api.js";
import { banner, button, create, empty, field, iconButton, link, message, page, proposed, restored, saveUnlessChanged, section, select, showProblem, submitButton, to } from "./parts.js";
import { decimal, integer, sentence } from "./format.js";
import { swatch } from "./charts.js";
import { conditionsForm, vocabulary } from "./conditions.js";
import { differences, effectsInWords, listed } from "./sentences.js";
import { load } from "./experiments.js";
import { banditForm, lifetimeField, metricsForm, rampForm, ruleForm } from "./plan-form.js";

const defaults = { variations: [{ key: "control", weight: 50 }, { key: "new", weight: 50 }], traffic: 100, audience: null, enrollment: "open", status: "draft", group: null, name: "", description: "", hypothesis: "", owner: "", tags: [], metrics: null, plan: null, schedule: null, ramp: null, assignment_ttl: null, bandit: null };
const wide = matchMedia("(min-width: 1250px)");

/// The screen of the form; `key` is `null` for a new experiment.
export async function show(context, key) {
	const stored = key === null ? null : await load(key);
	const experiment = stored?.data;
	const [words, metrics] = await Promise.all([vocabulary(), api.list("/v1/metrics", "metrics", { silent: true }).catch(() => [])]);
	const original = experiment ? definition(experiment) : null;
	const draft = context.draft.get();
	const start = { ...defaults, ...original, ...draft?.definition };

	const keyField = field("Key", h("input", { value: key ?? draft?.key ?? "", required: true, maxlength: 255, oninput: () => { isOwnKey = true; } }), { hint: "Apps ask for the experiment by its key. It cannot be changed later.", pointer: "/key" });
	const variations = variationsEditor(start.variations);
	const traffic = percentField("Traffic", start.traffic, { hint: "The part of all users who are enrolled. The others get no variation.", pointer: "/traffic" });
	const conditions = conditionsForm(start.audience, words);
	const audienceField = Object.assign(h("div.field", conditions, h("p.error", { hidden: true })), { input: conditions, pointer: "/audience", isField: true });
	conditions.setAttribute("tabindex", "-1");
	const enrollment = field("Enrollment", select([["open", "Open"], ["closed", "Closed"]], start.enrollment), { hint: "While it is closed, nobody new is enrolled; enrolled users stay.", pointer: "/enrollment" });
	const status = field("Status", select([...new Set([start.status, original?.status ?? "draft", "running", "paused"])], start.status), { hint: "A draft is served to nobody, and so is a paused experiment.", pointer: "/status" });
	const text = (label, name, hint, rows) => field(label, h(rows ? "textarea" : "input", { value: start[name], rows }), { hint, pointer: `/${name}` });
	const name = text("Name", "name", "For people. Apps use the key."), hypothesis = text("Hypothesis", "hypothesis", "What you expect to happen, and why. It stands beside the results.", 2);
	const description = text("Description", "description", "What is tested.", 2);
	const owner = text("Owner", "owner"), tags = field("Tags", h("input", { value: start.tags.join(", ") }), { hint: "Separated by commas.", pointer: "/tags" });
	const group = field("Group", h("input", { value: start.group ?? "" }), { hint: "Optional. Of experiments with the same group, a user is enrolled in one at most.", pointer: "/group" });
	const moment = (label, name, hint) => field(label, h("input", { type: "datetime-local", value: local(start.schedule?.[name]) }), { hint, pointer: `/schedule/${name}` });
	const begin = moment("Starts", "start_at", "A draft runs from then on."), end = moment("Enrollment closes", "end_at", "Enrolled users stay.");
	const measured = metricsForm(start.metrics, metrics, words.attributes), rule = ruleForm(start.plan);
	const ramp = rampForm(start.ramp, isOn => { for (const input of traffic.querySelectorAll("input")) input.disabled = isOn; });
	const lifetime = lifetimeField(start.assignment_ttl, "as long as the project says", "Counted from when it was last saved; it holds for what is saved from now on. Whoever comes back later is decided anew, so let it outlive the experiment.");
	// The key follows the name until somebody writes one.
	let isOwnKey = keyField.input.value !== "";
	if (key === null) {
		name.input.setAttribute("data-focus", "");
		name.input.addEventListener("input", () => { if (!isOwnKey) keyField.input.value = derivedKey(name.input.value); });
	}
	const bandit = banditForm(start.bandit);
	const fields = [name, hypothesis, description, owner, tags, keyField, variations, traffic, audienceField, enrollment, status, group, begin, end, lifetime, bandit, measured, rule, ramp];

	const review = h("div.review.form");
	const problems = h("div");

	function read() {
		const instant = ({ input }, former) => input.value === local(former) ? former ?? null : new Date(input.value).toISOString();
		const startAt = begin.input.value ? instant(begin, start.schedule?.start_at) : null, endAt = end.input.value ? instant(end, start.schedule?.end_at) : null;
		return {
			variations: variations.read(), traffic: traffic.read(), audience: conditions.read() ?? null, enrollment: enrollment.input.value, status: status.input.value,
			group: group.input.value.trim() || null, name: name.input.value.trim(), hypothesis: hypothesis.input.value.trim(), description: description.input.value.trim(), owner: owner.input.value.trim(),
			tags: tags.input.value.split(",").map(tag => tag.trim()).filter(Boolean),
			metrics: measured.read(), plan: rule.read(), schedule: startAt || endAt ? { start_at: startAt, end_at: endAt } : null, ramp: ramp.read(), assignment_ttl: lifetime.read(), bandit: bandit.read(),
		};
	}

	/// The members that differ from the stored ones; for a new experiment, from the defaults.
	function changes() {
		const now = read(), body = {};
		const former = original ?? { ...defaults, variations: null, status: "running" };
		for (const name of Object.keys(now)) if (JSON.stringify(now[name]) !== JSON.stringify(former[name])) body[name] = now[name];
		// The ramp sets the traffic.
		if (now.ramp) delete body.traffic;
		return body;
	}

	let reviewed = 0, timer, last = "";

	/// Shows the changes with their effects. A live review, while somebody types, does not complain about missing fields.
	async function openReview(isLive) {
		clearTimeout(timer);
		const number = reviewed += 1;
		const name = key ?? keyField.input.value.trim();
		if (!isLive) {
			problems.replaceChildren();
			const fault = conditions.check();
			if (fault) return replace(problems, banner("bad", fault));
			if (!name) return showProblem({ errors: [{ pointer: "/key", detail: "A key is required." }] }, fields, problems);
		}
		const body = changes();
		if (original && Object.keys(body).length === 0) return replace(review, isLive ? null : empty("Nothing was changed"));
		if (isLive && !name) return;
		const foreseen = h("div", h("p.loading", "Working out who is affected…"));
		const save = h("button", { class: "button primary", disabled: true, onclick: () => submit(name, body, save) }, original ? "Save the changes" : "Make the experiment");
		const content = section(original ? "Review the changes" : "Review the experiment", {},
			h("div.card", described(body, original), foreseen, h("div.buttons", save)));
		if (!isLive) {
			replace(review, content);
			const heading = review.querySelector("h2");
			heading.tabIndex = -1;
			heading.focus();
		}
		try {
			const path = api.path("experiments", name, "preview");
			const preview = original ? await api.call("POST", path, { body, silent: isLive }) : await create("POST", "experiment", path, body, { silent: isLive });
			if (number !== reviewed) return;
			replace(foreseen, effects(preview.data));
		} catch (error) {
			if (number !== reviewed || error.name === "AbortError") return;
			if (isLive) return replace(review, section("Review", {}, h("div.card", h("p.note", sentence(error.message)))));
			review.replaceChildren();
			return showProblem(error, fields, problems);
		}
		save.disabled = false;
		if (isLive) replace(review, content);
	}

	/// Keeps the draft. On a wide screen, a live review stands beside the form and follows it.
	function typed() {
		const draft = { key: keyField.input.value, definition: read() }, text = JSON.stringify(draft);
		// Leaving a field fires an event without a change. The button that is being pressed must stay enabled.
		if (text === last) return;
		last = text;
		context.draft.set(draft);
		reviewed += 1;
		clearTimeout(timer);
		if (!wide.matches) return review.replaceChildren();
		for (const save of review.querySelectorAll("button")) save.disabled = true;
		timer = setTimeout(() => { if (!context.signal.aborted && context.isChanged()) openReview(true); else review.replaceChildren(); }, 500);
	}

	/// Saves the experiment.
	async function submit(name, body, pressed) {
		pressed.disabled = true;
		try {
			const path = api.path("experiments", name);
			const done = original ? await saveUnlessChanged("experiment", path, body, { etag: stored.etag, original, load: () => load(name), define: definition })
				: await create("PUT", "experiment", path, { ...body, key: name });
			if (!done) return;
			context.isChanged = () => false;
			context.draft.forget();
			if (done === "theirs") return context.reload();
			message("good", original ? `Saved ${name}.` : `Made ${name}.`, done.request);
			location.hash = to("experiments", name);
		} catch (error) {
			if (error.status === 202) {
				context.isChanged = () => false;
				context.draft.forget();
				proposed(error.request);
				location.hash = to("experiments", name);
				return;
			}
			review.replaceChildren();
			showProblem(error, fields, problems);
			problems.scrollIntoView({ block: "center" });
		} finally { pressed.disabled = false; }
	}

	const untouched = JSON.stringify(draft ? Object.fromEntries(Object.keys(read()).map(name => [name, { ...defaults, ...original }[name]])) : read());
	context.isChanged = () => JSON.stringify(read()) !== untouched || key === null && keyField.input.value !== "";

	return page(key === null ? "New experiment" : experiment.name || key, { above: [link(to("experiments"), "Experiments"), key && [" / ", link(to("experiments", key), key)]] },
		draft && restored(context),
		h("div.beside", h("form.form", { onsubmit: event => { event.preventDefault(); openReview(); }, oninput: typed, onchange: typed, onclick: event => { if (event.target.closest("button[type=button]")) typed(); } },
			section("Experiment", {}, h("div.card", name, key === null && keyField, hypothesis)),
			section("Variations", { note: "The first one is the baseline, unless one is called control." }, h("div.card", variations)),
			section("Who is enrolled", {}, h("div.card", traffic, h("h3", "Audience"), audienceField, group)),
			section("Plan", { note: "What decides, written down before it starts." }, h("div.card", h("h3", "Metrics"), measured, h("h3", "Decision rule"), rule, description, h("div.fields", owner, tags))),
			section("Start and growth", {}, h("div.card", h("div.fields", status, enrollment), h("div.fields", begin, end), h("h3", "Ramp"), ramp, h("h3", "Later"), bandit, lifetime)),
			problems, h("div.buttons", h("a.button", { href: key ? to("experiments", key) : to("experiments") }, "Cancel"), submitButton("Review"))),
		review));
}

/// A key for a name: "Shorter checkout!" becomes "shorter-checkout".
const derivedKey = name => name.normalize("NFKD").replace(/\p{Diacritic}/gu, "").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 100);

/// A time of the API for a field of local time.
function local(text) {
	if (!text) return "";
	const date = new Date(text);
	return new Date(date - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/// The members that the form edits, in a fixed order, so that definitions can be compared.
function definition(experiment) {
	const total = experiment.variations.reduce((sum, v) => sum + v.weight, 0) || 1;
	const { metrics, plan, schedule, ramp } = experiment;
	return {
		variations: experiment.variations.map(v => ({ key: v.key, weight: hundredth(v.weight / total * 100) })), traffic: experiment.traffic, audience: experiment.audience,
		enrollment: experiment.enrollment, status: experiment.status, group: experiment.group ?? null,
		name: experiment.name ?? "", hypothesis: experiment.hypothesis ?? "", description: experiment.description ?? "", owner: experiment.owner ?? "", tags: experiment.tags ?? [],
		metrics: metrics ? { primary: metrics.primary, secondary: metrics.secondary, guardrails: metrics.guardrails.map(({ metric, margin }) => ({ metric, margin })), breakdowns: metrics.breakdowns } : null,
		plan: plan ? { alpha: plan.alpha, power: plan.power, minimum_effect: plan.minimum_effect } : null,
		schedule: schedule ? { start_at: schedule.start_at, end_at: schedule.end_at } : null,
		ramp: ramp ? { steps: ramp.steps, on_alarm: ramp.on_alarm, keep: ramp.keep } : null,
		assignment_ttl: experiment.assignment_ttl ?? null,
		bandit: banditOf(experiment.bandit),
	};
}

/// A bandit without the findings of its looks.
function banditOf(bandit) {
	if (!bandit) return null;
	const { state, ...said } = bandit;
	return said;
}

const hundredth = value => Math.round(value * 100) / 100;

/// The changes as sentences; for a new experiment, its members.
function described(body, original) {
	const former = original && Object.fromEntries(Object.keys(body).map(name => [name, original[name]]));
	return listed(differences(former ?? {}, body), !original);
}

/// The effects of the changes, from the server's preview.
function effects(preview) {
	const { moves, warnings } = preview;
	return [warnings.map(w => banner("warn", sentence(w.message))),
		moves.users + moves.other_experiment > 0 && banner("warn", `${integer(moves.users)} enrolled users would get another variation, and ${integer(moves.other_experiment)} the same one from another experiment.`),
		h("ul.changes", effectsInWords(preview).map(text => h("li", text)))];
}

/// A field for a percentage, with a slider.
function percentField(label, value, options) {
	const number = h("input", { type: "number", min: 0, max: 100, step: 0.01, value, required: true, oninput: () => { range.value = number.value; } });
	const range = h("input", { type: "range", min: 0, max: 100, step: 1, value, label: `${label}, slider`, oninput: () => { number.value = range.value; } });
	return Object.assign(field(label, number, { ...options, after: [h("span.unit", "%"), range] }), { read: () => Number(number.value) });
}

/// The variations: keys, and sliders whose shares always add up to 100.
function variationsEditor(initial) {
	let rows = initial.map(v => ({ ...v }));
	const list = h("ol.variations");
	const total = h("p.note");
	const element = Object.assign(h("div.field", list,
		h("div.adders", button("Add a variation", () => { rows.push({ key: "", weight: 0 }); even(); draw(); list.lastChild.querySelector("input").focus(); }, "quiet"),
			button("Split evenly", () => { even(); draw(); }, "quiet"), total), h("p.error", { hidden: true })), { pointer: "/variations", isField: true });

	/// Gives some rows shares in a proportion that add up to `total` hundredths of a percent, without a rest for any one of them.
	function divide(some, weights, total) {
		const sum = weights.reduce((a, b) => a + b, 0);
		let due = 0, given = 0;
		some.forEach((row, index) => {
			due += sum > 0 ? total * weights[index] / sum : total / some.length;
			row.weight = (Math.round(due) - given) / 100;
			given = Math.round(due);
		});
	}

	const even = () => divide(rows, rows.map(() => 1), 10_000);

	/// Sets the share of one variation; the others split the rest in their present proportion.
	function give(row, share) {
		share = hundredth(Math.min(100, Math.max(0, share || 0)));
		const others = rows.filter(r => r !== row);
		row.weight = others.length ? share : 100;
		divide(others, others.map(r => r.weight), Math.round((100 - row.weight) * 100));
		rows.forEach(r => r.update(r === row));
	}

	function draw() {
		replace(list, rows.map((row, index) => {
			const label = () => row.key || `variation ${index + 1}`;
			const key = h("input", { value: row.key, required: true, maxlength: 255, placeholder: "key", label: `Key of variation ${index + 1}`, oninput: e => { row.key = e.target.value.trim(); } });
			const range = h("input", { type: "range", min: 0, max: 100, step: 1, value: row.weight, label: `Share of ${label()}, slider`, oninput: e => give(row, Number(e.target.value)) });
			const number = h("input", { type: "number", min: 0, max: 100, step: 0.01, value: row.weight, label: `Share of ${label()} in percent`, onchange: e => give(row, Number(e.target.value)) });
			row.update = () => { range.value = row.weight; number.value = row.weight; sum(); };
			return h("li", swatch(index), key, range, h("span.number-unit", number, h("span.unit", "%")),
				Object.assign(iconButton("close", `Remove ${label()}`, () => { rows = rows.filter(r => r !== row); divide(rows, rows.map(r => r.weight), 10_000); draw(); }), { disabled: rows.length === 1 }));
		}));
		element.input = list.querySelector("input");
		sum();
	}

	const sum = () => { total.textContent = `Together ${decimal(rows.reduce((sum, r) => sum + r.weight, 0))}%`; };
	for (const row of rows) row.update = () => {};
	draw();
	element.pick = pointer => list.children[pointer.split("/")[2]]?.querySelector("input");
	element.read = () => rows.map(({ key, weight }) => ({ key, weight }));
	return element;
}
