// The form of an experiment. Before it can be saved, it shows the changes and how they would affect users.

import { h, replace } from "./dom.js";
import * as api from "./api.js";
import { banner, button, create, empty, field, iconButton, link, message, page, saveUnlessChanged, section, select, showProblem, submitButton, to } from "./parts.js";
import { decimal, integer, percent, sentence } from "./format.js";
import { swatch } from "./charts.js";
import { conditionsForm, inWords, vocabulary } from "./conditions.js";
import { load } from "./experiments.js";

/// `key` is `null` for a new experiment.
export async function show(context, key) {
	const stored = key === null ? null : await load(key);
	const experiment = stored?.data;
	const words = await vocabulary();
	const original = experiment ? definition(experiment) : null;

	const keyField = field("Key", h("input", { value: key ?? "", required: true, maxlength: 255, "data-focus": key === null }), { hint: "Apps ask for the experiment by its key. It cannot be changed later.", pointer: "/key" });
	const variations = variationsEditor(original?.variations ?? [{ key: "control", weight: 50 }, { key: "new", weight: 50 }]);
	const traffic = percentField("Traffic", original?.traffic ?? 100, { hint: "The part of all users who take part. The others get no variation.", pointer: "/traffic" });
	const conditions = conditionsForm(original?.audience ?? null, words);
	const audienceField = Object.assign(h("div.field", conditions, h("p.error", { hidden: true })), { input: conditions, pointer: "/audience", isField: true });
	conditions.setAttribute("tabindex", "-1");
	const enrollment = field("Enrollment", select([["open", "Open"], ["closed", "Closed"]], original?.enrollment ?? "open"), { hint: "While it is closed, nobody new is enrolled; enrolled users stay.", pointer: "/enrollment" });
	const status = field("Status", select([...new Set([original?.status ?? "draft", "running", "paused"])], original?.status ?? "draft"), { hint: "A draft is served to nobody, and so is a paused experiment.", pointer: "/status" });
	const text = (label, name, hint) => field(label, h(name === "hypothesis" ? "textarea" : "input", { value: original?.[name] ?? "", rows: name === "hypothesis" ? 2 : null }), { hint, pointer: `/${name}` });
	const hypothesis = text("Hypothesis", "hypothesis", "What you expect to happen, and why. It stands beside the results.");
	const owner = text("Owner", "owner"), tags = field("Tags", h("input", { value: (original?.tags ?? []).join(", ") }), { hint: "Separated by commas.", pointer: "/tags" });
	const group = field("Group", h("input", { value: original?.group ?? "" }), { hint: "Optional. Of experiments with the same group, a user takes part in one at most.", pointer: "/group" });
	const fields = [hypothesis, owner, tags, keyField, variations, traffic, audienceField, enrollment, status, group];

	const review = h("div.form");
	const problems = h("div");

	function read() {
		return {
			variations: variations.read(), traffic: traffic.read(), audience: conditions.read() ?? null, enrollment: enrollment.input.value, status: status.input.value,
			group: group.input.value.trim() || null, hypothesis: hypothesis.input.value.trim(), owner: owner.input.value.trim(),
			tags: tags.input.value.split(",").map(tag => tag.trim()).filter(Boolean),
		};
	}

	/// The members that differ from the stored ones; for a new experiment, from the defaults.
	function changes() {
		const now = read(), body = {};
		const former = original ?? { traffic: 100, audience: null, enrollment: "open", status: "running", group: null, hypothesis: "", owner: "", tags: [] };
		for (const name of Object.keys(now)) if (JSON.stringify(now[name]) !== JSON.stringify(former[name])) body[name] = now[name];
		return body;
	}

	async function openReview() {
		problems.replaceChildren();
		const name = key ?? keyField.input.value.trim();
		const fault = conditions.check();
		if (fault) return replace(problems, banner("bad", fault));
		if (!name) return showProblem({ errors: [{ pointer: "/key", detail: "A key is required." }] }, fields, problems);
		const body = changes();
		if (original && Object.keys(body).length === 0) return replace(review, empty("Nothing was changed"));
		const foreseen = h("div", h("p.loading", "Working out who is affected…"));
		const save = h("button", { class: "button primary", disabled: true }, original ? "Save the changes" : "Make the experiment");
		replace(review, section(original ? "Review the changes" : "Review the experiment", {},
			h("div.card", h("ul.changes", describe(body, original)), foreseen, h("div.buttons", save))));
		const heading = review.querySelector("h2");
		heading.tabIndex = -1;
		heading.focus();
		try {
			const path = api.path("experiments", name, "preview");
			const preview = original ? await api.call("POST", path, { body }) : await create("POST", "experiment", path, body);
			replace(foreseen, effects(preview.data));
		} catch (error) {
			if (error.name === "AbortError") return;
			review.replaceChildren();
			return showProblem(error, fields, problems);
		}
		save.disabled = false;
		save.addEventListener("click", () => submit(name, body, save));
	}

	async function submit(name, body, pressed) {
		pressed.disabled = true;
		try {
			const path = api.path("experiments", name);
			const done = original ? await saveUnlessChanged("experiment", path, body, { etag: stored.etag, original, load: () => load(name), define: definition })
				: await create("PUT", "experiment", path, { ...body, key: name });
			if (!done) return;
			context.isChanged = () => false;
			if (done === "theirs") return context.reload();
			message("good", original ? `Saved ${name}.` : `Made ${name}.`, done.request);
			location.hash = to("experiments", name);
		} catch (error) {
			review.replaceChildren();
			showProblem(error, fields, problems);
			problems.scrollIntoView({ block: "center" });
		} finally { pressed.disabled = false; }
	}

	const untouched = JSON.stringify(read());
	context.isChanged = () => JSON.stringify(read()) !== untouched || key === null && keyField.input.value !== "";

	return page(key ?? "New experiment", { above: [link(to("experiments"), "Experiments"), key && [" / ", link(to("experiments", key), key)]] },
		h("form.form", { onsubmit: event => { event.preventDefault(); openReview(); }, oninput: () => review.replaceChildren() },
			key === null && section("Name", {}, h("div.card", keyField)),
			section("Variations", { note: "The first one is the baseline, unless one is called control." }, h("div.card", variations)),
			section("Who takes part", {}, h("div.card", traffic, h("h3", "Audience"), audienceField, group)),
			section("Plan", {}, h("div.card", hypothesis, h("div.columns", owner, tags))),
			section("State", {}, h("div.card.two", status, enrollment)),
			problems, h("div.buttons", h("a.button", { href: key ? to("experiments", key) : to("experiments") }, "Cancel"), submitButton("Review"))),
		review);
}

/// The members that the form edits, in a fixed order, so that definitions can be compared.
function definition(experiment) {
	const total = experiment.variations.reduce((sum, v) => sum + v.weight, 0) || 1;
	return {
		variations: experiment.variations.map(v => ({ key: v.key, weight: hundredth(v.weight / total * 100) })), traffic: experiment.traffic, audience: experiment.audience,
		enrollment: experiment.enrollment, status: experiment.status, group: experiment.group ?? null,
		hypothesis: experiment.hypothesis ?? "", owner: experiment.owner ?? "", tags: experiment.tags ?? [],
	};
}

const hundredth = value => Math.round(value * 100) / 100;

function describe(body, original) {
	const split = list => list.map(v => `${v.key} ${decimal(v.weight)}%`).join(", ");
	const write = {
		variations: split, traffic: value => `${decimal(value)}%`, audience: value => inWords(value), tags: list => list.join(", "),
	};
	const text = (name, value) => (write[name] ?? String)(value ?? (name === "group" ? "none" : null));
	return Object.keys(body).map(name => h("li", h("strong", name.charAt(0).toUpperCase() + name.slice(1)), " ",
		original && [h("del", text(name, original[name])), " → "], h("ins", text(name, body[name]))));
}

/// The server's preview of the changes.
function effects({ creates, new_users: newUsers, enrolled, moves, warnings }) {
	const share = value => `${decimal(value)}%`;
	return [warnings.map(w => banner("warn", sentence(w.message))),
		moves.users + moves.other_experiment > 0 && banner("warn", `${integer(moves.users)} users who take part would get another variation, and ${integer(moves.other_experiment)} the same one from another experiment.`),
		creates ? h("p.note", "It is new, so nothing changes for any user.") : h("ul.changes",
			h("li", h("strong", "New users "), newUsers.changed > 0 ? `${share(newUsers.changed)} would get something else than now: ${newUsers.moves.map(m => `${share(m.share)} ${m.to ?? "nothing"} instead of ${m.from ?? "nothing"}`).join(", ")}.` : "get the same as now."),
			h("li", h("strong", "Enrolled users "), `${integer(enrolled.keep)} of ${integer(enrolled.users)} keep their variation, ${integer(enrolled.change)} get another, ${integer(enrolled.lose)} lose it${enrolled.gain ? `, ${integer(enrolled.gain)} get it back` : ""}.`))];
}

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

	const even = () => {
		const share = Math.floor(10_000 / rows.length) / 100;
		rows.forEach((row, index) => { row.weight = index === 0 ? hundredth(100 - share * (rows.length - 1)) : share; });
	};

	/// Sets the share of one variation; the others split the rest in their present proportion.
	function give(row, share) {
		share = hundredth(Math.min(100, Math.max(0, share || 0)));
		const others = rows.filter(r => r !== row), sum = others.reduce((total, r) => total + r.weight, 0);
		row.weight = others.length ? share : 100;
		let left = hundredth(100 - row.weight);
		others.forEach((other, index) => {
			other.weight = index === others.length - 1 ? hundredth(left) : hundredth(sum > 0 ? (100 - row.weight) * other.weight / sum : (100 - row.weight) / others.length);
			left -= other.weight;
		});
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
				Object.assign(iconButton("close", `Remove ${label()}`, () => { rows = rows.filter(r => r !== row); give(rows[0], hundredth(rows[0].weight + row.weight)); draw(); }), { disabled: rows.length === 1 }));
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
