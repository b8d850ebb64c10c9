"""Writes the reference values of plans, one JSON object a line, on random data: verdicts by an implementation of the rule that
shares no code with the server's, and the power of always-valid tests.

    python3 -m venv /tmp/statistics && /tmp/statistics/bin/pip install scipy statsmodels gbstats
    /tmp/statistics/bin/python Tests/HoldfastCoreTests/plan_vectors.py [SEED] > Tests/HoldfastCoreTests/plan-vectors.jsonl

With another seed, the same comparison on other data: `swift test --filter PlanVectorTests`.
"""

import json
import math
import sys

import numpy as np
from gbstats.frequentist.tests import SequentialConfig, SequentialTwoSidedTTest
from gbstats.models.statistics import SampleMeanStatistic
from scipy import optimize, stats
from statsmodels.stats.multitest import multipletests

random = np.random.default_rng(int(sys.argv[1]) if len(sys.argv) > 1 else 20261123)
TUNING = 5000


def lift(variation, baseline):
    """The lift and its standard error by the delta method."""
    (n1, m1, v1), (n0, m0, v0) = variation, baseline
    return (m1 - m0) / m0, math.sqrt(v1 / n1 / m0**2 + (m1 / m0**2) ** 2 * v0 / n0)


def reach(count, level, alpha):
    """Half the width of the confidence sequence in standard errors: arXiv 2103.06476, equation 9, with rho by its equation 24."""
    rho2 = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha) + 1)) / TUNING
    scale = count * rho2 + 1
    return math.sqrt(2 * scale / (count * rho2) * math.log(math.sqrt(scale) / level))


def p_value(distance, count, alpha):
    """The smallest level whose interval does not reach so far."""
    if abs(distance) <= reach(count, 1, alpha):
        return 1.0
    low = math.log(1e-300)
    if abs(distance) >= reach(count, 1e-300, alpha):
        return 0.0
    return math.exp(optimize.brentq(lambda level: reach(count, math.exp(level), alpha) - abs(distance), low, 0, xtol=1e-14))


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
            estimate, error = lift(metric["samples"][v], metric["samples"][0])
            found.append({"metric": metric, "variation": v, "lift": estimate, "error": error, "count": counts[v] + counts[0]})
    gain = lambda f: -f["lift"] if f["metric"]["decrease"] else f["lift"]

    def together(role, method):
        group = [f for f in found if f["metric"]["role"] == role]
        if not group:
            return
        rejected, corrected, _, _ = multipletests([p_value(f["lift"] / f["error"], f["count"], alpha) for f in group], alpha, method)
        for f, is_rejected, p in zip(group, rejected, corrected):
            f["p"] = min(1, p)
            f["outcome"] = ("better" if gain(f) > 0 else "worse") if is_rejected else "uncertain"

    together("primary", "holm")
    together("secondary", "fdr_bh")
    guardrails = [f for f in found if f["metric"]["role"] == "guardrail"]
    for f in guardrails:
        margin = f["metric"]["margin"]
        p = p_value((gain(f) + margin) / f["error"], f["count"], alpha)
        within = gain(f) > -margin
        f["p"] = p if within else min(1, p * len(guardrails))
        f["outcome"] = ("within_margin" if within else "beyond_margin") if f["p"] <= alpha else "uncertain"
        low = gain(f) - reach(f["count"], alpha, alpha) * f["error"]
        high = gain(f) + reach(f["count"], alpha / len(guardrails), alpha) * f["error"]
        f["interval"] = [-high, -low] if f["metric"]["decrease"] else [low, high]

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
    other = mean * (1 + real)
    if is_rate and other > 1:
        return
    variance = other * (1 - other) if is_rate else deviation**2
    _, error = lift((n1, other, variance), (n0, mean, deviation**2))
    # The half width does not depend on the values.
    any_values = [SampleMeanStatistic(n=n, sum=2 * n, sum_squares=5 * n) for n in (n0, n1)]
    config = SequentialConfig(alpha=alpha, difference_type="relative", sequential_tuning_parameter=TUNING)
    result = SequentialTwoSidedTTest(*any_values, config).compute_result()
    half = (result.ci[1] - result.ci[0]) / 2 / result.uplift.stddev
    tails = [stats.norm.cdf(abs(effect) / error - half), stats.norm.cdf(-abs(effect) / error - half)]
    print(json.dumps({"rate": is_rate, "mean": mean, "deviation": deviation, "alpha": alpha, "effect": effect, "margin": margin,
                      "users": [n1, n0], "power": tails[0] if margin else sum(tails)}))


for _ in range(300):
    verdict()
for _ in range(60):
    power()
