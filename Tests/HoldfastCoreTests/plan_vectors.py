"""Writes the reference values of plans, one JSON object a line, on random data: verdicts by an implementation of the rule that
shares no code with the server's, and the power of always-valid tests.

    python3 -m venv /tmp/statistics && /tmp/statistics/bin/pip install scipy statsmodels
    /tmp/statistics/bin/python Tests/HoldfastCoreTests/plan_vectors.py [SEED] > Tests/HoldfastCoreTests/plan-vectors.jsonl

With another seed, the same comparison on other data: `swift test --filter PlanVectorTests`.
"""

import json
import math
import sys

import numpy as np
from scipy import optimize, stats
from scipy.special import xlogy
from statsmodels.stats.multitest import multipletests

random = np.random.default_rng(int(sys.argv[1]) if len(sys.argv) > 1 else 20261123)
TUNING = 5000


RHO_SQUARED = (-2 * math.log(0.05) + math.log(-2 * math.log(0.05) + 1)) / TUNING


def information(n1, n0):
    return RHO_SQUARED * 4 * n1 * n0 / (n1 + n0)


def bound(alpha, r):
    """The squared z whose p-value is alpha: the mixture of normal likelihood ratios."""
    return 2 * (1 + 1 / r) * (math.log(1 / alpha) + math.log1p(r) / 2)


def p_value(z2, r):
    return min(1.0, math.sqrt(1 + r) * math.exp(-z2 / 2 * r / (1 + r)))


def squared_z(variation, baseline, k):
    """Of the hypothesis that the variation's mean is k times the baseline's."""
    (n1, m1, v1), (n0, m0, v0) = variation, baseline
    c = m1 - k * m0
    return c * c / max(v1 / n1 + k * k * v0 / n0, v1 / n0 + k * k * v0 / n1 + c * c / (n1 + n0))


def interval(variation, baseline, q):
    """The lifts that are not rejected; None if they are not bounded."""
    estimate = variation[1] / baseline[1]
    ends = []
    for side in (-1, 1):
        far = estimate + side * 1e-6
        while squared_z(variation, baseline, far) <= q:
            far = estimate + 2 * (far - estimate)
            if abs(far) > 1e6:
                return None
        ends.append(optimize.brentq(lambda k: squared_z(variation, baseline, k) - q, estimate, far, xtol=1e-15) - 1)
    return ends


def sample(count, mean, deviation):
    return [count, mean + random.normal(0, deviation / math.sqrt(count)), deviation**2]


def verdict():
    alpha = float(random.choice([0.1, 0.05, 0.01]))
    variations = int(random.integers(2, 5))
    counts = [int(10 ** random.uniform(3.5, 5)) for _ in range(variations)]
    # In a third of the experiments nothing has an effect, in a third all guardrails are harmless.
    scale, harm = random.choice([0, 0.1, 0.3]), random.choice([0, 0.05, 0.2])
    direction = random.normal(0, 1, variations)
    roles = ["primary"] * int(random.integers(1, 4)) + ["secondary"] * int(random.integers(0, 4)) + ["guardrail"] * int(random.integers(0, 3))
    metrics = []
    for role in roles:
        mean, deviation = 10 ** random.uniform(-1, 2), 10 ** random.uniform(-1, 2)
        deviation = min(deviation, 3 * mean)
        decrease = bool(random.random() < 0.3)
        effects = [0] + [scale * abs(direction[v]) + random.normal(0, 0.02) if role != "guardrail" else -harm * abs(random.normal()) for v in range(1, variations)]
        sign = random.choice([1, 1, 1, -1]) * (-1 if decrease else 1) if role != "guardrail" else (-1 if decrease else 1)
        samples = [sample(n, mean * (1 + sign * e), deviation) for n, e in zip(counts, effects)]
        metrics.append({"role": role, "decrease": decrease, "margin": float(random.choice([0.02, 0.05, 0.1])), "samples": samples})

    found = []  # One for each metric and variation, in this order.
    for metric in metrics:
        for v in range(1, variations):
            pair = (metric["samples"][v], metric["samples"][0])
            found.append({"metric": metric, "variation": v, "pair": pair, "lift": pair[0][1] / pair[1][1] - 1,
                          "r": information(counts[v], counts[0])})
    gain = lambda f: -f["lift"] if f["metric"]["decrease"] else f["lift"]

    def together(role, method):
        group = [f for f in found if f["metric"]["role"] == role]
        if not group:
            return
        rejected, corrected, _, _ = multipletests([p_value(squared_z(*f["pair"], 1), f["r"]) for f in group], alpha, method)
        for f, is_rejected, p in zip(group, rejected, corrected):
            f["p"] = min(1, p)
            f["outcome"] = ("better" if gain(f) > 0 else "worse") if is_rejected else "uncertain"

    together("primary", "holm")
    together("secondary", "fdr_bh")
    guardrails = [f for f in found if f["metric"]["role"] == "guardrail"]
    for f in guardrails:
        margin = f["metric"]["margin"]
        p = p_value(squared_z(*f["pair"], 1 + margin if f["metric"]["decrease"] else 1 - margin), f["r"])
        within = gain(f) > -margin
        f["p"] = p if within else min(1, p * len(guardrails))
        f["outcome"] = ("within_margin" if within else "beyond_margin") if f["p"] <= alpha else "uncertain"
        safe = interval(*f["pair"], bound(alpha, f["r"]))
        corrected = interval(*f["pair"], bound(alpha / len(guardrails), f["r"]))
        if safe and corrected:
            f["interval"] = [corrected[0], safe[1]] if f["metric"]["decrease"] else [safe[0], corrected[1]]

    ships, out = [], []
    for v in range(1, variations):
        own = [f for f in found if f["variation"] == v]
        primary = [f["outcome"] for f in own if f["metric"]["role"] == "primary"]
        guarded = [f["outcome"] for f in own if f["metric"]["role"] == "guardrail"]
        if "better" in primary and "worse" not in primary and all(o == "within_margin" for o in guarded):
            ships.append((v, [gain(f) if f["outcome"] == "better" else 0 for f in own if f["metric"]["role"] == "primary"]))
        if "worse" in primary or "beyond_margin" in guarded:
            out.append(v)
    decision = "ship" if ships else "stop" if len(out) == variations - 1 else "continue"
    print(json.dumps({
        "alpha": alpha, "variations": variations, "metrics": metrics, "decision": decision,
        "winner": max(ships, key=lambda s: s[1])[0] if ships else None,
        "findings": [{"outcome": f["outcome"], "p": f["p"], "lift": f["lift"], "interval": f.get("interval")} for f in found]}))


def power():
    n1, n0 = (int(10 ** random.uniform(3, 6)) for _ in range(2))
    alpha, is_rate = float(random.choice([0.1, 0.05, 0.01])), bool(random.random() < 0.5)
    mean = 10 ** random.uniform(-2, -0.3) if is_rate else 10 ** random.uniform(-2, 3)
    deviation = math.sqrt(mean * (1 - mean)) if is_rate else mean * 10 ** random.uniform(-1, 1)
    margin = bool(random.random() < 0.3)
    effect = float(random.choice([1, -1])) * min(0.9, random.uniform(1, 6) * deviation / mean * math.sqrt(1 / n1 + 1 / n0))
    real = 0 if margin else effect
    other, k = mean * (1 + real), 1 + effect if margin else 1
    if is_rate and not 0 <= other <= 1 or is_rate and k * mean >= 1:
        return
    if is_rate:
        def likelihood(p, q):
            return n1 * (xlogy(other, q) + xlogy(1 - other, 1 - q)) + n0 * (xlogy(mean, p) + xlogy(1 - mean, 1 - p))

        slope = lambda p: (n1 * other + n0 * mean) / p - k * n1 * (1 - other) / (1 - k * p) - n0 * (1 - mean) / (1 - p)
        p = optimize.brentq(slope, 1e-12, min(1, 1 / k) - 1e-12, xtol=1e-300, rtol=1e-15)
        z = math.sqrt(max(0, 2 * (likelihood(mean, other) - likelihood(p, k * p))))
    else:
        z = math.sqrt(squared_z((n1, other, deviation**2), (n0, mean, deviation**2), k))
    # Looking on the way is worth 0.26 standard deviations.
    found = stats.norm.cdf(z - math.sqrt(bound(alpha, information(n1, n0))) + 0.26)
    print(json.dumps({"rate": is_rate, "mean": mean, "deviation": deviation, "alpha": alpha, "effect": effect, "margin": margin,
                      "users": [n1, n0], "power": found}))


for _ in range(300):
    verdict()
for _ in range(60):
    power()
