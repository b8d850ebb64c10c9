"""Signs in at a server with tokens of PyJWT, good ones and forged ones.

Usage: sign_in.py prepare DIRECTORY        writes keys.json and scopes, which the server reads
       sign_in.py check DIRECTORY URL      asks the server
       sign_in.py vectors                  prints keys and tokens that never change, for the tests of the server's parts
"""

import base64
import hashlib
import hmac
import json
import os
import sys
import time
import urllib.error
import urllib.request

import jwt
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

ISSUER = "https://id.example"
AUDIENCE = "holdfast"
SCOPES = """# scope value
admin holdfast-admins
admin shop-team projects=shop
read everyone
client app-users
"""


def encode(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def make_keys():
    return {
        "rsa": rsa.generate_private_key(public_exponent=65537, key_size=2048),
        "ec": ec.generate_private_key(ec.SECP256R1()),
        "ed": ed25519.Ed25519PrivateKey.generate(),
        "other": ec.generate_private_key(ec.SECP256R1()),
    }


ALGORITHMS = {"rsa": "RS256", "ec": "ES256", "ed": "EdDSA"}


def key_set(keys):
    makers = {
        "rsa": jwt.algorithms.RSAAlgorithm, "ec": jwt.algorithms.ECAlgorithm, "ed": jwt.algorithms.OKPAlgorithm,
    }
    shown = []
    for name, maker in makers.items():
        key = maker.to_jwk(keys[name].public_key(), as_dict=True)
        shown.append({**key, "kid": name, "use": "sig", "alg": ALGORITHMS[name]})
    shown.append({"kty": "oct", "k": "AAAA", "kid": "ignored"})
    return {"keys": shown}


def good_claims(now):
    return {
        "iss": ISSUER, "aud": ["other", AUDIENCE], "sub": "ann@example.com", "iat": now, "nbf": now,
        "exp": now + 3600, "realm": {"roles": ["something", "holdfast-admins"]},
    }


def assemble(header, claims, sign):
    """A token with any header and claims, texts or objects."""
    parts = [part if isinstance(part, str) else json.dumps(part) for part in (header, claims)]
    text = ".".join(encode(part.encode()) for part in parts)
    return text + "." + encode(sign(text.encode()))


def cases(keys, now):
    """Tokens with why each is refused; None for those that are accepted."""
    claims = good_claims(now)

    def made(name="ec", headers=None, without=(), **changes):
        body = {key: value for key, value in {**claims, **changes}.items() if key not in without}
        return jwt.encode(body, keys[name], ALGORITHMS[name], headers={"kid": name, **(headers or {})})

    good = made()
    head, body, signature = good.split(".")
    numbers = decode(signature)
    r, s = int.from_bytes(numbers[:32], "big"), int.from_bytes(numbers[32:], "big")
    public = keys["ec"].public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    def ec_signed(text):
        numbers = decode_dss_signature(
            keys["ec"].sign(text, ec.ECDSA(hashes.SHA256())))
        return b"".join(number.to_bytes(32, "big") for number in numbers)

    def hmac_signed(text):
        return hmac.new(public, text, hashlib.sha256).digest()

    yield "RS256", made("rsa"), None
    yield "ES256", good, None
    yield "EdDSA", made("ed"), None
    yield "one audience as a text", made(aud=AUDIENCE), None
    yield "an access token by its type", made(headers={"typ": "at+jwt"}), None
    yield "no kid, and one key for the algorithm", assemble({"alg": "ES256"}, claims, ec_signed), None
    yield "expired within the leeway", made(exp=now - 30), None
    yield "begins within the leeway", made(nbf=now + 30), None
    yield "alg none", assemble({"alg": "none", "kid": "ec"}, claims, lambda _: b""), "alg"
    yield "alg NONE", assemble({"alg": "NONE", "kid": "ec"}, claims, lambda _: b""), "alg"
    yield "the public key as the secret of HS256", assemble({"alg": "HS256", "kid": "ec"}, claims, hmac_signed), "alg"
    yield "RS512", jwt.encode(claims, keys["rsa"], "RS512", headers={"kid": "rsa"}), "alg"
    yield "PS256", jwt.encode(claims, keys["rsa"], "PS256", headers={"kid": "rsa"}), "alg"
    yield "another kind of key than alg says", assemble({"alg": "RS256", "kid": "ec"}, claims, ec_signed), "kid"
    yield "an unknown key", made(headers={"kid": "unknown"}), "kid"
    yield "a kid that is no text", assemble({"alg": "ES256", "kid": 1}, claims, ec_signed), "kid"
    yield "the key of somebody else", jwt.encode(claims, keys["other"], "ES256", headers={"kid": "ec"}), "signed by"
    yield "its own key in the header", jwt.encode(
        claims, keys["other"], "ES256",
        headers={"jwk": jwt.algorithms.ECAlgorithm.to_jwk(keys["other"].public_key(), as_dict=True), "kid": "ec"}
    ), "signed by"
    yield "crit", assemble({"alg": "ES256", "kid": "ec", "crit": ["x"], "x": 1}, claims, ec_signed), "crit"
    yield "an empty crit", assemble({"alg": "ES256", "kid": "ec", "crit": []}, claims, ec_signed), "crit"
    yield "another type", made(headers={"typ": "logout+jwt"}), "typ"
    yield "alg twice", assemble('{"alg":"none","alg":"ES256","kid":"ec"}', claims, ec_signed), "header"
    yield "a claim twice", assemble(
        {"alg": "ES256", "kid": "ec"}, json.dumps(claims)[:-1] + ',"iss":"x"}', ec_signed), "header"
    yield "no signature", f"{head}.{body}.", "signed by"
    yield "a shorter signature", f"{head}.{body}.{encode(numbers[:-1])}", "signed by"
    yield "a longer signature", f"{head}.{body}.{encode(numbers + bytes(1))}", "signed by"
    yield "the signature of X.509", f"{head}.{body}.{encode(encode_dss_signature(r, s))}", "signed by"
    yield "a signature of zeros", f"{head}.{body}.{encode(bytes(64))}", "signed by"
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    yield "r beyond the order", f"{head}.{body}.{encode(order.to_bytes(32, 'big') + numbers[32:])}", "signed by"
    yield "other claims", f"{head}.{encode(json.dumps({**claims, 'sub': 'eve'}).encode())}.{signature}", "signed by"
    yield "padding", f"{head}.{body}.{signature}==", "header"
    spare = signature[:-1] + ("B" if signature[-1] == "A" else chr(ord(signature[-1]) + 1))
    yield "spare bits in the last letter", f"{head}.{body}.{spare}", "header"
    yield "no object", assemble({"alg": "ES256", "kid": "ec"}, "[]", ec_signed), "header"
    yield "expired", made(exp=now - 61), "expired"
    yield "no expiry", made(without=["exp"]), "exp"
    yield "an expiry that is a text", assemble(
        {"alg": "ES256", "kid": "ec"}, {**claims, "exp": str(now + 3600)}, ec_signed), "exp"
    yield "an endless expiry", assemble(
        {"alg": "ES256", "kid": "ec"}, json.dumps(claims).replace(str(now + 3600), "1e300"), ec_signed), "exp"
    yield "not begun", made(nbf=now + 120), "nbf"
    yield "another issuer", made(iss=ISSUER + "/"), "iss"
    yield "no issuer", made(without=["iss"]), "iss"
    yield "another audience", made(aud=["other"]), "aud"
    yield "no audience", made(without=["aud"]), "aud"
    yield "no name", made(without=["sub"]), "sub"
    yield "the name of nobody", made(sub="anonymous"), "sub"
    yield "the name of an actor of the server", made(sub="user root"), "sub"
    yield "the name of a token", made(sub="on-call"), "sub"
    yield "no role that counts", made(realm={"roles": ["something"]}), "realm.roles"
    yield "no roles", made(without=["realm"]), "realm.roles"
    yield "too long", made(more="x" * 9000), "at most"


def ask(url, token, method="GET", path="/v1/experiments", body=None, sdk_key=None):
    headers = {"Authorization": f"Bearer {token}"}
    if sdk_key:
        headers["X-Optimizely-SDK-Key"] = sdk_key
    request = urllib.request.Request(url + path, method=method, headers=headers, data=body and body.encode())
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def expect(what, condition):
    if not condition:
        sys.exit(f"not so: {what}")


def check(directory, url):
    with open(f"{directory}/private.json") as file:
        keys = {
            name: serialization.load_pem_private_key(text.encode(), None) for name, text in json.load(file).items()
        }
    now = int(time.time())

    def signed(**changes):
        return jwt.encode({**good_claims(now), **changes}, keys["rsa"], "RS256", headers={"kid": "rsa"})

    expect("a project is made", ask(url, signed(), "PUT", "/v1/projects/shop", "{}")[0] < 300)
    for name, token, reason in cases(keys, now):
        for _ in range(2):
            status, answer = ask(url, token)
            expect(f"{name}: {status} {answer}", status == (401 if reason else 200))
            expect(f"{name}: {answer}", not reason or reason in answer["detail"])
    status, answer = ask(url, signed(realm={"roles": ["everyone"]}), "GET", "/v1/audit")
    expect(f"a reader is no admin: {status} {answer}", status == 403)
    team = signed(sub="bob", realm={"roles": ["everyone", "shop-team"]})
    body = '{"variations":["a","b"]}'
    expect("a team changes its project", ask(url, team, "PUT", "/v1/experiments/x", body, "shop")[0] == 201)
    expect("and no other", ask(url, team, "PUT", "/v1/experiments/x", body, "default")[0] == 403)
    entries = ask(url, signed(), "GET", "/v1/audit?action=experiment.put")[1]["entries"]
    expect(f"the person is the author: {entries}", [entry["author"] for entry in entries] == ["bob"])
    ada = signed(sub="ada", realm={"roles": ["app-users"]})
    profile = '{"user_id":"ada","experiment_bucket_map":{"7001":{"variation_id":"v"}}}'
    expect("a person of an app saves the own profile", ask(url, ada, "PATCH", "/v1/profiles/ada", profile)[0] == 200)
    status, answer = ask(url, ada, "GET", "/v1/profiles/ada")
    expect("and loads it", answer["experiment_bucket_map"] == {"7001": {"variation_id": "v"}})
    for method, path, body in [
        ("GET", "/v1/profiles/bob", None), ("PATCH", "/v1/profiles/bob", '{"experiment_bucket_map":{}}'),
        ("POST", "/ups/lookup", '{"user_id":"bob"}'), ("POST", "/v1/profiles/lookup", '{"user_ids":["ada","bob"]}'),
        ("GET", "/v1/profiles/ada?detail=true", None), ("DELETE", "/v1/profiles/ada", None),
        ("PUT", "/v1/profiles/ada/experiments/7001", '{"variation_id":"v"}'),
    ]:
        status, answer = ask(url, ada, method, path, body)
        expect(f"nobody else's, nor more: {method} {path} {status} {answer}", status == 403)
    expect("a token of the file works beside", ask(url, "on-call-secret-0123456789")[0] == 200)

    # The provider changes its keys: the server reads the file again, and refuses what the former key has signed.
    former = signed()
    expect("the former key", ask(url, former)[0] == 200)
    keys["rsa"] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    write(f"{directory}/keys.json", json.dumps(key_set(keys)))
    deadline = time.time() + 60
    while ask(url, signed())[0] != 200:
        expect("the new key is accepted", time.time() < deadline)
        time.sleep(0.1)
    expect("the former key is refused", ask(url, former)[0] == 401)


def write(path, text):
    with open(path + ".new", "w") as file:
        file.write(text)
    os.replace(path + ".new", path)


def prepare(directory):
    keys = make_keys()
    private = {
        name: key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
        for name, key in keys.items()
    }
    write(f"{directory}/private.json", json.dumps(private))
    write(f"{directory}/keys.json", json.dumps(key_set(keys)))
    write(f"{directory}/scopes", SCOPES)


def vectors():
    keys, now = make_keys(), 1_795_000_000
    tokens = [{"name": name, "token": token, "reason": reason} for name, token, reason in cases(keys, now)]
    print(json.dumps({"now": now, "keys": key_set(keys), "scopes": SCOPES, "tokens": tokens}, indent=1))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["prepare", directory]: prepare(directory)
        case ["check", directory, url]: check(directory, url)
        case ["vectors"]: vectors()
        case _: sys.exit(__doc__)
