"""Signs people in with an identity provider that publishes its keys, the package oidc-provider-mock.

usage: identity_provider.py HOLDFAST DIRECTORY
"""
import base64
import contextlib
import hashlib
import http.client
import json
import logging
import os
import secrets
import subprocess
import sys
import threading
import time
import warnings
from datetime import timedelta
from urllib.parse import parse_qs, urlencode, urlsplit

os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"
# The package uses what its own library is going to remove.
warnings.simplefilter("ignore")
import flask
import oidc_provider_mock
from authlib import jose
from oidc_provider_mock import _app
from oidc_provider_mock._storage import User
from werkzeug.serving import WSGIRequestHandler, make_server

CLIENT = "holdfast-console"
# A page has no secret, which the package expects of clients.
for grant in (_app.AuthorizationCodeGrant, _app.RefreshTokenGrant):
    grant.TOKEN_ENDPOINT_AUTH_METHODS = ["none"]
# What a set may have beside keys for signatures, and what is wrong with some.
OTHER_KEYS = [
    {"kty": "AKP", "alg": "ML-DSA-65", "kid": "unknown-type", "pub": "AAAA"},
    {"kty": "RSA", "use": "enc", "alg": "RSA-OAEP", "kid": "encryption", "n": "AQAB", "e": "AQAB"},
    {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "short", "n": "AQAB", "e": "AQAB"},
    {"kty": "EC", "crv": "P-256", "kid": "beside-the-curve", "x": "A" * 43, "y": "A" * 43},
    {"kty": "EC", "crv": "P-521", "kid": "unknown-curve", "x": "AA", "y": "AA"}, "no object",
]


class Quiet(WSGIRequestHandler):
    def log(self, *arguments):
        pass


class Provider:
    """The provider on a thread. It checks PKCE, which the package does not, and lets pages of other origins ask for tokens."""

    def __init__(self, *people, lifetime=3600):
        logging.getLogger("oidc_provider_mock").setLevel(logging.CRITICAL)
        self.app = oidc_provider_mock.app(
            require_nonce=True, access_token_max_age=timedelta(seconds=lifetime),
            user_claims=[User(sub=name, claims={"groups": groups}) for name, groups in people])
        self.app.debug = False
        self.lifetime, self.others, self.challenges, self.forgeries, self.port, self.storage = lifetime, [], set(), [], 0, None
        self.app.before_request(self.before)
        self.app.after_request(self.after)
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        self.server = make_server("127.0.0.1", self.port, self.app.wsgi_app.app if hasattr(self.app.wsgi_app, "app") else self.app, threaded=True, request_handler=Quiet)
        self.port = self.server.server_port
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()
        ask(self.url, "GET", "/jwks")

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def before(self):
        self.storage = flask.g.oidc_provider_mock_storage
        request = flask.request
        if request.path == "/oauth2/authorize":
            if request.args.get("code_challenge_method") != "S256" or not request.args.get("state"):
                flask.abort(400, "S256 and a state are required")
            self.challenges.add(request.args["code_challenge"])
        if request.path == "/oauth2/token" and request.method == "POST" and request.form["grant_type"] == "authorization_code":
            challenge = encode(hashlib.sha256(request.form["code_verifier"].encode()).digest())
            if challenge not in self.challenges or "client_secret" in request.form:
                self.forgeries.append(dict(request.form))
                flask.abort(400, "the verifier is wrong")

    def after(self, response):
        if flask.request.path == "/jwks":
            keys = json.loads(response.get_data())
            response.set_data(json.dumps({"keys": self.others + keys["keys"]}))
        if flask.request.path == "/oauth2/token":
            response.headers["Access-Control-Allow-Origin"] = "*"
            if flask.request.form.get("grant_type") == "refresh_token" and response.status_code == 200:
                tokens = json.loads(response.get_data())
                user = self.storage.get_user(self.storage.get_access_token(tokens["access_token"]).user_id)
                response.set_data(json.dumps({**tokens, "id_token": self.token(user.sub, **user.claims)}))
        return response

    def rotate(self):
        """Replaces the key."""
        self.storage.jwk = jose.RSAKey.generate_key(is_private=True)

    def token(self, name, key=None, **claims):
        """An ID token without a sign-in."""
        key = key or self.storage.jwk
        now = int(time.time())
        body = {"iss": self.url, "aud": CLIENT, "sub": name, "iat": now, "exp": now + self.lifetime, **claims}
        return jose.jwt.encode({"alg": "RS256", "kid": key.as_dict()["kid"]}, body, key.as_dict(is_private=True)).decode()

    def sign_in(self, name):
        """The ID token of a person who signs in, by the requests that a browser sends."""
        verifier = secrets.token_urlsafe(32)
        query = {
            "response_type": "code", "client_id": CLIENT, "redirect_uri": "http://127.0.0.1/console/", "scope": "openid", "state": "s",
            "nonce": secrets.token_urlsafe(8), "code_challenge": encode(hashlib.sha256(verifier.encode()).digest()), "code_challenge_method": "S256"}
        status, fields, body = ask(self.url, "POST", "/oauth2/authorize?" + urlencode(query), form={"sub": name})
        expect(f"a code: {status} {body}", status == 302)
        code = parse_qs(urlsplit(fields["Location"]).query)["code"][0]
        status, _, body = ask(self.url, "POST", "/oauth2/token", form={
            "grant_type": "authorization_code", "code": code, "client_id": CLIENT, "redirect_uri": query["redirect_uri"], "code_verifier": verifier})
        expect(f"tokens: {status} {body}", status == 200)
        return json.loads(body)["id_token"]


class Server:
    def __init__(self, holdfast, directory, name, *options):
        self.log = open(f"{directory}/{name}.log", "w+")
        self.process = subprocess.Popen(
            [holdfast, "serve", "--listen", "127.0.0.1:0", "--database", f"{directory}/{name}.db", "--log-format", "json", "--access-log", *options],
            stderr=self.log, stdout=subprocess.DEVNULL)
        self.port = wait("the server listens", self.listening)

    def listening(self):
        expect(f"the server starts: {self.text()}", self.process.poll() is None)
        lines = [json.loads(line) for line in self.text().splitlines() if '"listening"' in line]
        return lines and int(lines[0]["address"].rsplit(":", 1)[1])

    def text(self):
        with open(self.log.name) as log:
            return log.read()

    def __call__(self, method, path, token=None):
        status, _, body = ask(f"http://127.0.0.1:{self.port}", method, path, token=token)
        with contextlib.suppress(ValueError):
            return status, json.loads(body)
        return status, body

    def metric(self, name, token):
        return float(next(line.split()[1] for line in self("GET", "/metrics", token)[1].splitlines() if line.startswith(name + " ")))

    def stop(self):
        self.process.terminate()
        expect("a clean end", self.process.wait() == 0)


def encode(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def ask(url, method, path, form=None, token=None):
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if form:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    connection.request(method, path, form and urlencode(form), headers)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, response.headers, body


def expect(what, condition):
    if not condition:
        sys.exit(f"not so: {what}")


def wait(what, condition):
    deadline = time.monotonic() + 120
    while not (value := condition()):
        expect(what, time.monotonic() < deadline)
        time.sleep(0.05)
    return value


def write(path, text):
    with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    return path


def main(holdfast, directory):
    secret = "operator-secret-0123456789"
    tokens, scopes = write(f"{directory}/tokens", f"admin operator {secret}\n"), write(f"{directory}/scopes", "admin owners\nread everyone\n")
    provider = Provider(("ann", ["owners"]), ("bob", ["others", "everyone"]))
    provider.others = OTHER_KEYS
    options = ["--tokens-file", tokens, "--jwt-scopes", scopes, "--jwt-scopes-claim", "groups", "--jwt-issuer"]
    server = Server(holdfast, directory, "discovered", *options, provider.url, "--oidc-client-id", CLIENT)

    status, me = server("GET", "/v1/whoami", provider.sign_in("ann"))
    expect(f"who signs in is let in by the keys that the issuer names: {me}", status == 200 and me["name"] == "ann" and me["scope"] == "admin")
    bob = provider.sign_in("bob")
    expect("a claim says what a person may do", server("GET", "/v1/audit", bob)[0] == 403)
    _, settings = server("GET", "/console/sign-in.json")
    expect(f"the console is told: {settings}", settings == {
        "issuer": provider.url, "authorization_endpoint": f"{provider.url}/oauth2/authorize", "token_endpoint": f"{provider.url}/oauth2/token",
        "client_id": CLIENT, "scope": "openid profile email", "audience": CLIENT})
    policy = ask(f"http://127.0.0.1:{server.port}", "GET", "/console/")[1]["Content-Security-Policy"]
    expect(policy, f"connect-src 'self' {provider.url};" in policy)

    # A key that is not known is fetched, and until then nobody is told that the token is wrong.
    provider.rotate()
    rotated = provider.sign_in("bob")
    statuses = set()
    wait("the new key is accepted", lambda: statuses.add(server("GET", "/v1/whoami", rotated)[0]) or 200 in statuses)
    expect(f"{statuses}", statuses <= {200, 503, 401})
    expect("the former key is refused", server("GET", "/v1/whoami", bob)[0] == 401)
    # Callers do not decide how often the keys are fetched: the key of nobody is asked for once in 5 s.
    stranger = jose.RSAKey.generate_key(is_private=True)
    fetched = []
    provider.app.before_request_funcs[None].append(lambda: fetched.append(flask.request.path) if flask.request.path == "/jwks" else None)
    started = time.monotonic()
    for _ in range(200):
        expect("a forged token", server("GET", "/v1/whoami", provider.token("eve", stranger))[0] in (401, 503))
    expect(f"{len(fetched)} fetches", len(fetched) <= 1 + (time.monotonic() - started) / 5)
    wait("and refused at last", lambda: server("GET", "/v1/whoami", provider.token("eve", stranger))[0] == 401)

    # While the provider is away, its last keys let people in, and it shows.
    provider.stop()
    strange = lambda: server("GET", "/v1/whoami", provider.token("eve", stranger))
    wait("it shows", lambda: strange() and "could not be fetched since" in server("GET", "/readyz")[1].get("detail", ""))
    expect("the server is ready", server("GET", "/readyz")[0] == 200)
    expect("people are let in", server("GET", "/v1/whoami", rotated)[0] == 200)
    expect("a metric", server.metric("holdfast_identity_keys_failures_total", secret) >= 1)
    expect("a metric", server.metric("holdfast_identity_keys_age_seconds", secret) >= 0)
    late = Server(holdfast, directory, "late", *options, provider.url, "--jwt-audience", CLIENT)
    expect("a server starts without its provider", "could not be fetched yet" in late("GET", "/readyz")[1]["detail"])
    expect("the tokens file counts", late("GET", "/v1/whoami", secret)[0] == 200)
    expect("nobody is told that the token is wrong", late("GET", "/v1/whoami", rotated)[0] == 503)
    expect("without a client there is no sign-in", late("GET", "/console/sign-in.json")[0] == 204)
    provider.start()
    wait("it is noticed", lambda: strange() and "detail" not in server("GET", "/readyz")[1])
    wait("and so it is by the other", lambda: late("GET", "/v1/whoami", rotated)[0] == 200)
    expect("nothing is left of it", "detail" not in late("GET", "/readyz")[1])
    late.stop()

    # Keys from an address, of an issuer without metadata.
    direct = Server(holdfast, directory, "direct", *options, provider.url, "--jwt-audience", CLIENT, "--jwt-keys", f"{provider.url}/jwks")
    expect("the keys of an address", direct("GET", "/v1/whoami", rotated)[0] == 200)
    direct.stop()

    # Metadata that names another issuer is not used.
    other = Server(holdfast, directory, "other", *options, provider.url + "/", "--jwt-audience", CLIENT)
    expect(other.text(), "must be '" + provider.url + "/'" in other.text().replace("\\/", "/"))
    expect("nobody signs in", other("GET", "/v1/whoami", rotated)[0] == 401)
    other.stop()

    for address in ("http://id.example", "https://user@id.example", "id.example", "https://id.example/#a"):
        for wrong in ([address, "--jwt-audience", CLIENT], ["https://id.example", "--jwt-audience", CLIENT, "--jwt-keys", address]):
            if wrong[-1] == "id.example":
                continue
            end = subprocess.run([holdfast, "serve", *options, *wrong], capture_output=True, text=True)
            expect(f"{wrong} {end}", end.returncode == 78 and "must be an https URL" in end.stderr)

    # No token and no code is logged, whatever it is called and whether it is known here.
    for path in (f"/v1/whoami?token={bob}", "/v1/experiments?access_token=somebody-elses-secret", "/console/?code=somebody-elses-secret&state=s",
                 "/v1/experiments?limit=1&Api%2DKey=somebody-elses-secret", f"/v1/profiles/{secret}"):
        server("GET", path)
    server.stop()
    log = server.text()
    expect("hidden", "?token=(hidden)" in log.replace("\\/", "/") and "limit=1&Api%2DKey=(hidden)" in log and "?code=(hidden)&state=s" in log)
    for text in ("somebody-elses-secret", secret, "eyJ", bob.split(".")[2]):
        expect(f"{text} is not in the log", text not in log)
    provider.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
