// Signs people in at the server's identity provider: a public client with authorization code and PKCE (RFC 7636).

import * as api from "./api.js";

const startedKey = "holdfast.sign-in";
/// The URL to which the provider sends the browser back: this page.
const home = new URL("./", document.baseURI).href;

const encode = bytes => btoa(String.fromCharCode(...new Uint8Array(bytes))).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
const random = () => encode(crypto.getRandomValues(new Uint8Array(32)));

/// The settings of the server's identity provider; `null` if it has none.
export async function settings() {
	const response = await fetch(new URL("sign-in.json", home), { cache: "no-store", credentials: "omit" });
	return response.status === 200 ? response.json() : null;
}

/// Sends the browser to the provider.
export async function start(provider) {
	if (!crypto.subtle) throw new Error("To sign in, open the console by HTTPS: browsers offer what is needed nowhere else.");
	const [state, nonce, verifier] = [random(), random(), random()];
	const challenge = encode(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier)));
	sessionStorage.setItem(startedKey, JSON.stringify({ state, nonce, verifier, hash: location.hash }));
	const url = new URL(provider.authorization_endpoint);
	const query = { response_type: "code", client_id: provider.client_id, redirect_uri: home, scope: provider.scope, state, nonce, code_challenge: challenge, code_challenge_method: "S256" };
	for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
	location.assign(url.href);
}

/// Exchanges the code, with which the provider has sent the browser back, for a token.
export async function finish() {
	const query = new URLSearchParams(location.search), started = JSON.parse(sessionStorage.getItem(startedKey));
	sessionStorage.removeItem(startedKey);
	history.replaceState(null, "", home + (started?.hash ?? ""));
	if (!started || query.get("state") !== started.state) throw new Error("This sign-in was not begun in this tab. Sign in again.");
	const provider = await settings();
	// Another provider's code must not be sent to this one (RFC 9207).
	if (!provider || (query.get("iss") ?? provider.issuer) !== provider.issuer) throw new Error("Another identity provider than the server’s has sent you here. Sign in again.");
	if (query.has("error")) throw new Error(`The identity provider says: ${query.get("error_description") ?? query.get("error")}`);
	const tokens = await ask(provider, { grant_type: "authorization_code", code: query.get("code"), redirect_uri: home, code_verifier: started.verifier });
	if (claims(tokens.id_token)?.nonce !== started.nonce) throw new Error("The identity provider’s token is not for this sign-in. Sign in again.");
	api.token.set(chosen(tokens, provider));
	noteRenewal(tokens);
}

/// Sends a request to the provider's token endpoint.
async function ask(provider, fields) {
	let response;
	try {
		response = await fetch(provider.token_endpoint, { method: "POST", body: new URLSearchParams({ ...fields, client_id: provider.client_id }), cache: "no-store", credentials: "omit" });
	} catch { throw new Error("The identity provider does not respond, or does not accept requests of this page (CORS)."); }
	const body = await response.json().catch(() => ({}));
	if (!response.ok) throw Object.assign(new Error(`The identity provider says: ${body.error_description ?? body.error ?? response.status}`), { status: response.status });
	return body;
}

/// The claims of a token; `null` if it cannot be read. Only the server verifies tokens.
function claims(token) {
	try {
		const part = token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/");
		return JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(part), letter => letter.charCodeAt(0))));
	} catch { return null; }
}

/// The access token if it is one for this server, else the ID token.
function chosen(tokens, provider) {
	const isForServer = [claims(tokens.access_token)?.aud].flat().includes(provider.audience);
	return isForServer ? tokens.access_token : tokens.id_token;
}

/// Stores the refresh token in this tab, because providers issue tokens for minutes only.
function noteRenewal(tokens, former) {
	const token = tokens.refresh_token ?? former, expiry = claims(api.token.get())?.exp;
	if (token && expiry) api.renewal.set({ token, expires_at: expiry * 1_000 });
}

let timer;

/// Renews the token before it expires.
export function keepSignedIn() {
	clearTimeout(timer);
	const renewal = api.renewal.get();
	if (!renewal) return;
	const left = renewal.expires_at - Date.now();
	timer = setTimeout(renew, Math.min(Math.max(left - 60_000, left / 2, 1_000), 86_400_000));
}

async function renew() {
	const renewal = api.renewal.get();
	if (!renewal) return;
	try {
		const provider = await settings();
		const tokens = await ask(provider, { grant_type: "refresh_token", refresh_token: renewal.token });
		const renewed = chosen(tokens, provider);
		// The token stays until it expires; then its user signs in again.
		if (!renewed) return;
		api.renewToken(renewed);
		noteRenewal(tokens, renewal.token);
	} catch (error) {
		if (error.status >= 400 && error.status < 500 || renewal.expires_at < Date.now()) return;
	}
	keepSignedIn();
}
