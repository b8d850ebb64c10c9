// Numbers and times in the language of the browser and the local time zone.

const locale = undefined;
const whole = new Intl.NumberFormat(locale, { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat(locale, { notation: "compact", maximumFractionDigits: 1 });
const thisYear = new Intl.DateTimeFormat(locale, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" }), anyYear = new Intl.DateTimeFormat(locale, { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });
const minus = text => text.replace("-", "−");
const exact = new Intl.DateTimeFormat(locale, {
	year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
	fractionalSecondDigits: 3, timeZoneName: "short",
});
const day = new Intl.DateTimeFormat(locale, { month: "short", day: "numeric", timeZone: "UTC" });
const relative = new Intl.RelativeTimeFormat(locale, { numeric: "auto" });

export const none = "–";
const missing = value => value == null || Number.isNaN(value);

export const integer = value => missing(value) ? none : minus(whole.format(value));
export const short = value => missing(value) ? none : Math.abs(value) < 10_000 ? decimal(value, 1) : minus(compact.format(value));
/// A number that is estimated, rounded if it is large.
export const many = value => missing(value) ? none : Math.abs(value) < 10_000 ? integer(value) : short(value);
export const percent = (value, digits = 1) => missing(value) ? none : `${decimal(value * 100, digits)}%`;
export const signed = (value, digits = 1) => missing(value) ? none : `${value > 0 ? "+" : ""}${percent(value, digits)}`;

const decimals = [];
export function decimal(value, digits = 2) {
	if (missing(value)) return none;
	decimals[digits] ??= new Intl.NumberFormat(locale, { maximumFractionDigits: digits });
	return minus(decimals[digits].format(value));
}

/// A number with three significant digits, or five if it is large.
export const measure = value => missing(value) ? none
	: minus(new Intl.NumberFormat(locale, { maximumSignificantDigits: Math.abs(value) >= 1000 ? 5 : 3 }).format(value));

const currencies = new Set(Intl.supportedValuesOf?.("currency"));
const isShort = unit => unit.length <= 3;

/// Returns the function that writes numbers in the unit of a metric: amounts of money in the browser's language, others with the
/// unit after them. Its `axis` writes the marks of an axis, and its `note` is for the title of a chart whose axis lacks the unit.
export function inUnit(unit) {
	if (!unit) return Object.assign(value => measure(value), { axis: short, note: "" });
	const isMoney = currencies.has(unit), styles = {};
	const money = (value, kind, options) => minus((styles[kind] ??= new Intl.NumberFormat(locale, { style: "currency", currency: unit, trailingZeroDisplay: "stripIfInteger", ...options })).format(value));
	const write = value => {
		if (missing(value)) return none;
		if (!isMoney) return `${measure(value)}${unit === "%" ? "" : "\u00a0"}${unit}`;
		const size = Math.abs(value);
		return size > 0 && size < 1 ? money(value, "small", { maximumSignificantDigits: 3 }) : size >= 10_000 ? money(value, "great", { maximumFractionDigits: 0 }) : money(value, "plain");
	};
	const axis = value => missing(value) || !isMoney && !isShort(unit) ? short(value) : Math.abs(value) < 10_000 ? write(Number(value.toPrecision(6))) : isMoney ? money(value, "axis", { notation: "compact", maximumFractionDigits: 1 }) : `${short(value)}\u00a0${unit}`;
	return Object.assign(write, { axis, note: isMoney || isShort(unit) ? "" : `, in ${unit}` });
}

export const pValue = value => missing(value) ? none : value < 0.0001 ? "< 0.0001" : decimal(value, 4);

export function bytes(value) {
	if (missing(value)) return none;
	const units = ["B", "KiB", "MiB", "GiB", "TiB"];
	let index = 0;
	while (value >= 1024 && index < units.length - 1) { value /= 1024; index += 1; }
	return `${decimal(value, value < 10 && index > 0 ? 1 : 0)} ${units[index]}`;
}

export function time(text) {
	if (!text) return none;
	const date = new Date(text);
	return (date.getFullYear() === new Date().getFullYear() ? thisYear : anyYear).format(date);
}
export const exactTime = text => text ? exact.format(new Date(text)) : none;
/// A day of the server's statistics, which are in UTC.
export const utcDay = text => day.format(new Date(text.length === 10 ? `${text}T00:00:00Z` : text));

/// A time relative to now, such as "3 hours ago".
export function ago(text, now = Date.now()) {
	if (!text) return none;
	const seconds = (new Date(text).getTime() - now) / 1000;
	for (const [unit, size] of [["year", 31_536_000], ["month", 2_592_000], ["day", 86_400], ["hour", 3_600], ["minute", 60]]) {
		if (Math.abs(seconds) >= size) return relative.format(Math.round(seconds / size), unit);
	}
	return Math.abs(seconds) < 10 ? "just now" : relative.format(Math.round(seconds), "second");
}

/// The status of a ramp in words. A ramp that a person has stopped is "ended" in the API.
export const rampStatus = status => status === "ended" ? "stopped by hand" : status;

/// The server's text with a capital letter and a full stop.
export const sentence = text => (text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".")).replace(/(^|[\s(])-(?=\d)/g, "$1−");
export const plural = (count, one, many = `${one}s`) => `${integer(count)} ${count === 1 ? one : many}`;
