// The activity of the server: its metrics, read every two seconds, as rates over the last minutes.

import { h, update } from "./dom.js";
import * as api from "./api.js";
import { banner, card, failure, page } from "./parts.js";
import { bytes, decimal, integer, percent, short } from "./format.js";
import { lineChart } from "./charts.js";
import { tile } from "./results.js";

const seconds = 2, kept = 150;
/// The samples, which the tab keeps so that the charts survive a visit to another screen.
const samples = [];

/// The protocols, with the routes of each. The last one that fits a route counts.
const protocols = [["Native API", route => true], ["User Profile Service", route => route.startsWith("/ups/")],
	["Optimizely Agent", route => /^\/v1\/(decide|activate|track|override|lookup|save|batch|config|datafile)$/.test(route)],
	["Optimizely SDKs", route => route.startsWith("/datafiles/") || route.startsWith("/sdk/")], ["OFREP", route => route.startsWith("/ofrep/")],
	["Bucketeer", route => /^\/(get_evaluations?|register_events|ping)$/.test(route)], ["Console", route => route.startsWith("/console")],
	["Operations", route => /^\/(livez|readyz|readyz\/reads|health|metrics|info|openapi.json|)$/.test(route)]];
const protocolOf = route => [...protocols].reverse().find(([, fits]) => fits(route))[0];

export async function show(context) {
	const body = h("div");
	let error = null;
	const sample = async () => {
		if (document.hidden) return;
		try {
			const text = (await api.call("GET", "/metrics", { text: true })).data;
			samples.push(summarize(parse(text)));
			if (samples.length > kept) samples.shift();
			error = null;
		} catch (failed) {
			if (failed.name === "AbortError") return;
			error = failed;
		}
		draw();
	};
	const draw = () => update(body, error ? failure(error) : samples.length > 0 && charts());
	await sample();
	context.every(seconds * 1000, sample);
	return page("Live", { below: `What this server process does, read every ${seconds} seconds.` }, body);
}

/// Parses Prometheus' text format without the buckets of histograms.
function parse(text) {
	const metrics = [];
	for (const line of text.split("\n")) {
		if (line === "" || line.startsWith("#") || line.includes("_bucket{")) continue;
		const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
		if (!match) continue;
		const labels = {};
		for (const [, name, value] of (match[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value;
		metrics.push({ name: match[1], labels, value: Number(match[3]) });
	}
	return metrics;
}

/// Adds up the metrics that the charts show: counters by group, and all values without labels.
function summarize(metrics) {
	const result = { at: performance.timeOrigin + performance.now(), protocols: {}, decisions: {}, events: {}, errors: {}, values: {} };
	const add = (group, key, value) => { result[group][key] = (result[group][key] ?? 0) + value; };
	for (const { name, labels, value } of metrics) {
		if (name === "holdfast_http_requests_total") {
			add("protocols", protocolOf(labels.route), value);
			if (labels.status >= "500") add("errors", "5xx", value); else if (labels.status >= "400") add("errors", "4xx", value);
		} else if (name === "holdfast_decisions_total") add("decisions", labels.reason ?? labels.source, value);
		else if (name === "holdfast_events_stored_total") add("events", labels.kind, value);
		else if (Object.keys(labels).length === 0) result.values[name.replace(/^holdfast_/, "")] = value;
	}
	return result;
}

/// The rate of a counter between two consecutive samples; `null` after a restart of the server.
const rate = (now, before, read, per = 1) => {
	const difference = (read(now) ?? 0) - (read(before) ?? 0);
	return difference < 0 ? null : difference / ((now.at - before.at) / 1000) * per;
};
const rates = (read, per) => samples.slice(1).map((s, index) => rate(s, samples[index], read, per));
const value = name => sample => sample.values[name];

function charts() {
	const now = samples.at(-1);
	const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
	const labels = samples.slice(1).map(s => clock.format(s.at));
	const by = (group, per) => {
		const names = [...new Set(samples.flatMap(s => Object.keys(s[group])))];
		const list = names.map(name => ({ name, values: rates(s => s[group][name], per) }));
		const moving = list.filter(s => s.values.some(v => v > 0));
		return (moving.length ? moving : list.slice(0, 1)).map((s, index) => ({ ...s, color: index % 10 }));
	};
	const chart = options => card(labels.length > 0 ? lineChart({ labels, hasNumbers: false, height: 180, ...options }) : h("p.loading", `${options.title}: the first rate comes in ${seconds} seconds.`));
	const last = list => list.length ? list.at(-1) : null;
	const requests = last(rates(s => Object.values(s.protocols).reduce((a, b) => a + b, 0)));
	const hits = now.values.cache_hits_total, misses = now.values.cache_misses_total;
	const commits = samples.slice(1).map((s, index) => {
		const count = s.values.store_commit_seconds_count - samples[index].values.store_commit_seconds_count;
		return count > 0 ? (s.values.store_commit_seconds_sum - samples[index].values.store_commit_seconds_sum) / count * 1000 : null;
	});
	const problems = ["connections_refused", "http_overload_refusals", "store_refused_changes", "store_failed_checkpoints", "events_dropped", "events_failed"].filter(name => now.values[`${name}_total`] > 0);
	return h("div", problems.length > 0 && banner("warn", "Since the start of the server", h("ul", problems.map(name => h("li", `${name.replaceAll("_", " ")}: ${integer(now.values[`${name}_total`])}`)))),
		h("div.tiles",
			tile("Requests", requests === null ? "…" : short(requests), "a second"),
			tile("Profiles", short(now.values.profiles), `${short(now.values.assignments)} assignments`),
			tile("Cache", hits + misses > 0 ? percent(hits / (hits + misses)) : "–", "of lookups from memory"),
			tile("Waiting", integer((now.values.store_waiting_changes ?? 0) + (now.values.events_waiting ?? 0)), "changes and events"),
			tile("Memory", bytes(now.values.process_resident_memory_bytes), `database ${bytes(now.values.store_database_bytes)}`),
			tile("Connections", integer(now.values.connections), "open")),
		h("div.charts",
			chart({ title: "Requests a second, by protocol", series: by("protocols"), format: short }),
			chart({ title: "Decisions a second, by reason", series: by("decisions"), format: short }),
			chart({ title: "Exposures and goals a minute", series: by("events", 60), format: short }),
			chart({ title: "Errors a minute", series: by("errors", 60), format: short }),
			chart({ title: "Duration of a commit in milliseconds", series: [{ name: "commit", values: commits, color: 0 }], format: v => decimal(v, 1) }),
			chart({ title: "Waiting for a commit", series: [{ name: "changes", values: samples.slice(1).map(value("store_waiting_changes")), color: 0 }, { name: "events", values: samples.slice(1).map(value("events_waiting")), color: 1 }], format: short })));
}
