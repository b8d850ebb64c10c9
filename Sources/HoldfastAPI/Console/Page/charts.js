// Charts as SVG, with their numbers as text for screen readers and to copy.

import { h, replace } from "./dom.js";
import { lazily, table } from "./parts.js";
import { decimal } from "./format.js";

/// The colour of the variation or series with this number.
export const tint = index => ({ "--c": `var(--c${index % 10})` });
export const swatch = index => h("span.key.fill", { style: tint(index) });

/// A small line without an axis, for a cell of a table.
export function sparkline(values) {
	const width = 96, height = 24, top = Math.max(...values, 1);
	const x = index => 2 + index * (width - 4) / Math.max(1, values.length - 1), y = value => height - 3 - value / top * (height - 6);
	const points = values.map((v, index) => `${round(x(index))},${round(y(v))}`).join(" ");
	return h("svg", { viewBox: `0 0 ${width} ${height}`, class: "sparkline", role: "img", label: `each day: ${values.slice(-14).join(", ")}` },
		h("polyline", { points }));
}

/// A scale that all intervals of a column share, with the marks of its axis.
export function scale(values, includeZero) {
	const finite = values.filter(Number.isFinite);
	let low = Math.min(...finite, includeZero ? 0 : Infinity), high = Math.max(...finite, includeZero ? 0 : -Infinity);
	if (!Number.isFinite(low) || !Number.isFinite(high)) { low = 0; high = 1; }
	if (low === high) { low -= Math.abs(low) * 0.1 || 0.5; high += Math.abs(high) * 0.1 || 0.5; }
	const room = (high - low) * 0.04;
	return { low: low - room, high: high + room };
}

/// The axis of a column of intervals: its ticks, and where 0 is.
export function axis(scale, format) {
	const width = 160, x = value => round(3.2 + (value - scale.low) / (scale.high - scale.low) * (width - 6.4));
	const ticks = marks(scale.low, scale.high, 3);
	// Where labels would touch, the label of 0 stays.
	const named = ticks.filter(tick => tick === 0 || (!ticks.includes(0) || Math.abs(x(tick) - x(0)) > 40));
	const isNamed = tick => named.every(other => other === 0 || Math.abs(other) >= Math.abs(tick) || Math.abs(x(other) - x(tick)) > 60) && named.includes(tick);
	return h("svg", { viewBox: `0 0 ${width} 22`, class: "axis", "aria-hidden": "true", width, height: 22 },
		h("line.grid", { x1: 0, x2: width, y1: 18, y2: 18 }),
		ticks.map(tick => [h("line.grid", { x1: x(tick), x2: x(tick), y1: 14, y2: 22 }), isNamed(tick) && h("text.tick", { x: x(tick), y: 10, "text-anchor": x(tick) < 16 ? "start" : x(tick) > width - 16 ? "end" : "middle" }, format(tick))]));
}

/// An interval with its estimate, `middle`. `inner` is a second interval, `margin` draws the margin of a guardrail, `zero` draws
/// the line of no difference, and `tone` is a CSS class.
export function interval({ low, high, middle, inner, scale, tone, zero, margin, label }) {
	const width = 200, height = 24, center = height / 2;
	const x = value => round(4 + (Math.min(Math.max(value, scale.low), scale.high) - scale.low) / (scale.high - scale.low) * (width - 8));
	const isDrawn = [low, high, middle].every(Number.isFinite);
	return h("svg", { viewBox: `0 0 ${width} ${height}`, class: `interval ${tone ?? ""}`, role: "img", label, preserveAspectRatio: "none" },
		zero && h("line.zero", { x1: x(0), x2: x(0), y1: 0, y2: height }),
		Number.isFinite(margin) && h("line.margin", { x1: x(margin), x2: x(margin), y1: 0, y2: height }),
		isDrawn && [
			h("path", { d: `M${x(low)} ${center}H${x(high)}M${x(low)} 8v8M${x(high)} 8v8` }),
			inner?.every(Number.isFinite) && h("path.inner", { d: `M${x(inner[0])} ${center}H${x(inner[1])}` }),
			h("rect.middle", { x: round(x(middle) - 2), y: center - 5, width: 4, height: 10, rx: 2 }),
		]);
}

/// An interval, drawn and as text below it.
export const drawn = (what, { low, high, estimate }, format, options) => [interval({ low, high, middle: estimate, label: `${what}from ${format(low)} to ${format(high)}`, ...options }),
	h("span.small.faint.range", `${format(low)} – ${format(high)}`)];

/// Round numbers that divide a range into a few parts.
function marks(low, high, count = 4) {
	if (!(high > low)) return [low];
	const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
	const step = [1, 2, 5, 10].map(f => f * power).find(s => (high - low) / s <= count + 0.5) ?? power * 10;
	const found = [];
	for (let mark = Math.ceil(low / step) * step; mark <= high + step * 1e-6; mark += step) found.push(Math.abs(mark) < step * 1e-6 ? 0 : mark);
	return found;
}

/// A line chart with a common axis, drawn for its present width.
///
/// `series` have a `name`, a `color`, and in `values` (and in `low` and `high`, for a band) a number or `null` for each
/// of `labels`. `limits` are the least and the greatest value to draw, where early bands would hide the rest; `zero` draws the
/// line of no difference.
export function lineChart({ title, labels, series, format = decimal, mark = format.axis ?? format, height = 200, fromZero = true, hasNumbers = true, limits, zero }) {
	const place = h("div.chart-place");
	// Shows the values at an index in the legend. The chart may be drawn in the place of an earlier one (`adopt`), which then has
	// the legend.
	const read = index => {
		const [moment, ...readings] = legend().children;
		moment.textContent = index === null ? "" : labels[index];
		series.forEach((s, i) => { readings[i].lastChild.textContent = index === null ? "" : reading(s, index); });
	};
	const reading = (s, index) => format(s.values[index]) + (Number.isFinite(s.low?.[index]) && Number.isFinite(s.high?.[index]) ? ` (${format(s.low[index])} – ${format(s.high[index])})` : "");
	let shown = place;
	const legend = () => shown.parentElement.querySelector(".legend");
	place.show = (element, width) => { shown = element; replace(element, draw(width)); };
	let drawn = 0;
	place.adopt = successor => { place.show = successor.show; if (drawn > 0) place.show(place, drawn); };
	new ResizeObserver(entries => {
		const width = Math.round(entries[0].contentRect.width);
		if (width > 0 && Math.abs(width - drawn) > 1) { drawn = width; place.show(place, width); }
	}).observe(place);

	function draw(width) {
		const values = series.flatMap(s => [...s.values, ...(s.low ?? []), ...(s.high ?? [])]).filter(Number.isFinite);
		let low = fromZero ? 0 : Math.min(...values), high = Math.max(...values) || 1;
		if (!Number.isFinite(low) || !Number.isFinite(high)) { low = 0; high = 1; }
		if (limits) [low, high] = [Math.max(low, limits[0]), Math.min(high, limits[1])];
		if (zero) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
		if (low === high) high = low + (Math.abs(low) || 1);
		if (!fromZero) { const room = (high - low) * 0.08; low -= room; high += room; }
		const rows = marks(low, high);
		const left = Math.max(...rows.map(r => mark(r).length)) * 6.6 + 14, right = 8, top = 8, bottom = 22;
		const x = index => round(left + (labels.length < 2 ? 0.5 : index / (labels.length - 1)) * (width - left - right));
		const y = value => round(top + (1 - (Math.min(Math.max(value, low), high) - low) / (high - low)) * (height - top - bottom));
		const line = list => {
			let text = "", isOpen = false;
			list.forEach((value, index) => {
				if (Number.isFinite(value)) { text += `${isOpen ? "L" : "M"}${x(index)} ${y(value)}`; isOpen = true; } else isOpen = false;
			});
			return text;
		};
		const area = (upper, lower) => {
			const shown = upper.map((v, index) => index).filter(index => Number.isFinite(upper[index]) && Number.isFinite(lower[index]));
			if (shown.length < 2) return "";
			return `M${shown.map(i => `${x(i)} ${y(upper[i])}`).join("L")}L${[...shown].reverse().map(i => `${x(i)} ${y(lower[i])}`).join("L")}Z`;
		};
		const steps = Math.max(1, Math.ceil(labels.length / Math.max(2, Math.floor((width - left) / 84))));
		const cursor = h("line.cursor", { y1: top, y2: height - bottom, x1: -9, x2: -9 });
		let at = null;
		const point = index => {
			at = index;
			const where = index === null ? -9 : x(index);
			cursor.setAttribute("x1", where); cursor.setAttribute("x2", where);
			read(index);
		};
		const within = index => Math.min(Math.max(0, index), labels.length - 1);
		return h("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", label: title, width, height, tabindex: "0",
			onpointermove: event => point(within(Math.round((event.offsetX - left) / (width - left - right) * (labels.length - 1)))),
			onpointerleave: () => point(null), onblur: () => point(null),
			onkeydown: event => {
				const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
				if (step === undefined) return;
				event.preventDefault();
				point(at === null ? step < 0 ? labels.length - 1 : 0 : within(at + step));
			} },
			rows.map(r => [h("line.grid", { x1: left, x2: width - right, y1: y(r), y2: y(r) }), h("text.tick", { x: left - 8, y: y(r) + 4, "text-anchor": "end" }, mark(r))]),
			zero && h("line.zero", { x1: left, x2: width - right, y1: y(0), y2: y(0) }),
			labels.map((label, index) => index % steps === 0 && (index === 0 || label !== labels[index - steps]) && h("text.tick", { x: x(index), y: height - 5, "text-anchor": labels.length > 1 && index === 0 ? "start" : index > labels.length - 1 - steps / 2 ? "end" : "middle" }, label)),
			series.map(s => s.low && h("path.band.fill", { style: tint(s.color), d: area(s.high, s.low) })),
			series.map(s => h("path.line", { style: tint(s.color), d: line(s.values) })),
			labels.length < 2 && series.map(s => Number.isFinite(s.values[0]) && h("circle.fill", { style: tint(s.color), cx: x(0), cy: y(s.values[0]), r: 3 })),
			cursor);
	}

	return h("figure", h("figcaption", title, h("ul.legend", { "aria-live": "polite" }, h("li"), series.map(s => h("li", swatch(s.color), s.name, " ", h("b"))))), place,
		hasNumbers && lazily("Numbers", () => table(title, [["Time", i => labels[i]], ...series.map(s => [s.name, i => reading(s, i), "number"])], labels.map((_, i) => i)), "details.numbers"));
}

const round = value => Math.round(value * 100) / 100;
