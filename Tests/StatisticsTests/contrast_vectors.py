"""Writes reference values of contrasts, one JSON object a line: squared z, p-values, intervals, on random totals.

    python3 -m venv /tmp/statistics && /tmp/statistics/bin/pip install numpy scipy
    /tmp/statistics/bin/python Tests/StatisticsTests/contrast_vectors.py [SEED] > Tests/StatisticsTests/contrast-vectors.jsonl

Likelihoods are maximised numerically here, and intervals are found as the zeros of squared z minus its bound.
"""

import json
import sys

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import xlogy
from scipy.stats import norm

random = np.random.default_rng(int(sys.argv[1]) if len(sys.argv) > 1 else 20261127)
logarithm = -2 * np.log(0.05)
RHO_SQUARED = (logarithm + np.log(logarithm + 1)) / 5000


def information(n1, n0):
    return RHO_SQUARED * sum(4 * a * b / (a + b) for a, b in zip(n1, n0))


def p_value(z2, r):
    return min(1.0, float(np.sqrt(1 + r) * np.exp(-z2 / 2 * r / (1 + r))))


def bound(alpha, r):
    return 2 * (1 + 1 / r) * (np.log(1 / alpha) + np.log1p(r) / 2)


# Rates

def likelihood(k, n, p):
    return xlogy(k, p) + xlogy(n - k, 1 - p)


def peak(function, low, high):
    """The zero of a derivative that falls from positive to negative, or the end towards which the likelihood grows."""
    low, high = low + 1e-15, high - 1e-15
    if function(low) <= 0:
        return low
    if function(high) >= 0:
        return high
    return brentq(function, low, high, xtol=1e-300, rtol=1e-15)


def base_rate(period, ratio):
    n1, n0, k1, k0 = period
    return peak(lambda p: (k1 + k0) / p - ratio * (n1 - k1) / max(1 - ratio * p, 1e-300) - (n0 - k0) / (1 - p),
                0, min(1, 1 / ratio))


def at_ratio(period, ratio):
    n1, n0, k1, k0 = period
    if k1 + k0 == 0:
        return 0.0
    p = base_rate(period, ratio)
    return likelihood(k1, n1, ratio * p) + likelihood(k0, n0, p)


def at_difference(period, difference):
    n1, n0, k1, k0 = period
    p = peak(lambda p: k1 / (p + difference) - (n1 - k1) / (1 - p - difference) + k0 / p - (n0 - k0) / (1 - p),
             max(0, -difference), min(1, 1 - difference))
    return likelihood(k1, n1, p + difference) + likelihood(k0, n0, p)


def highest(function, low, high):
    """Where a function with one peak has it, and its maximum there: a grid, then golden section."""
    grid = np.linspace(low, high, 200)
    values = [function(x) for x in grid]
    best = int(np.argmax(values))
    found = minimize_scalar(lambda x: -function(x), bounds=(grid[max(0, best - 1)], grid[min(199, best + 1)]),
                            method="bounded", options={"xatol": 1e-13})
    return found.x, -found.fun


class Rates:
    def __init__(self, periods):
        self.periods = periods
        n1, n0, k1, k0 = np.array(periods).T
        self.r = information(n1, n0)
        if len(periods) == 1:
            free = likelihood(k1[0], n1[0], k1[0] / n1[0]) + likelihood(k0[0], n0[0], k0[0] / n0[0])
            self.logarithm, self.best_ratio = np.log(k1[0] / n1[0] / (k0[0] / n0[0])), free
        else:
            self.logarithm, self.best_ratio = highest(lambda u: sum(at_ratio(p, np.exp(u)) for p in periods), -4, 4)
        self.free = free if len(periods) == 1 else None

    def ratio(self, k):
        return max(0, 2 * (self.best_ratio - sum(at_ratio(p, k) for p in self.periods)))

    def difference(self, d):
        """Of one period the likelihood of the difference; of several that of the ratio which makes it."""
        if self.free is not None:
            return max(0, 2 * (self.free - at_difference(self.periods[0], d)))
        return self.ratio(np.exp(brentq(lambda u: self.mean_difference(np.exp(u)) - d, -30, 30, xtol=1e-15)))

    def mean_difference(self, k):
        users = [p[0] + p[1] for p in self.periods]
        return sum(n * (k - 1) * base_rate(p, k) for n, p in zip(users, self.periods)) / sum(users)


def zero(function, inside, outside):
    return brentq(function, inside, outside, xtol=1e-15, rtol=1e-14)


def rates(periods):
    contrast = Rates(periods)
    q, u = bound(0.05, contrast.r), contrast.logarithm
    d = contrast.mean_difference(np.exp(u))
    low = zero(lambda u: contrast.ratio(np.exp(u)) - q, u, u - 30)
    high = zero(lambda u: contrast.ratio(np.exp(u)) - q, u, u + 30)
    if len(periods) == 1:
        differences = [zero(lambda x: contrast.difference(x) - q, d, end) for end in (-1 + 1e-9, 1 - 1e-9)]
    else:
        differences = [contrast.mean_difference(np.exp(end)) for end in (low, high)]
    z2 = contrast.ratio(1)
    write("rates", sum(([*p] for p in periods), []),
          [z2, contrast.ratio(0.9), contrast.ratio(1.1), contrast.difference(0.01), p_value(z2, contrast.r),
           2 * norm.sf(np.sqrt(z2)), np.exp(low) - 1, np.exp(high) - 1, *differences])


# Means: contrasts of numbers of which all moments of second order are known.

class Means:
    """Sides are (n, mean, mean before, variance, variance before, covariance)."""

    def __init__(self, periods, adjusts):
        weights = np.array([4 * v[0] * b[0] / (v[0] + b[0]) for v, b in periods])
        self.periods, self.weights = periods, weights / weights.sum()
        self.r = RHO_SQUARED * weights.sum()
        self.users = 1 / sum(w * w / (v[0] + b[0]) for w, (v, b) in zip(self.weights, periods))
        self.slope = 0
        if adjusts:
            self.slope = (sum(w * w * (v[5] / v[0] + b[5] / b[0]) for w, (v, b) in zip(weights, periods))
                          / sum(w * w * (v[4] / v[0] + b[4] / b[0]) for w, (v, b) in zip(weights, periods)))
        self.base = sum(w * b[1] for w, (v, b) in zip(self.weights, periods))

    def z2(self, k, d=0):
        s, c, unpooled, pooled = self.slope, -d, 0, 0
        for w, (v, b) in zip(self.weights, self.periods):
            c += w * ((v[1] - k * b[1]) - s * (v[2] - b[2]))
            g1 = v[3] - 2 * s * v[5] + s * s * v[4]
            g0 = k * k * b[3] - 2 * k * s * b[5] + s * s * b[4]
            unpooled += w * w * (g1 / v[0] + g0 / b[0])
            pooled += w * w * (g1 / b[0] + g0 / v[0])
        return c * c / max(unpooled, pooled + c * c / self.users)

    def estimate(self):
        return sum(w * ((v[1] - b[1]) - self.slope * (v[2] - b[2])) for w, (v, b) in zip(self.weights, self.periods))


def means(adjusts, count):
    periods = []
    for _ in range(count):
        sides = []
        for _ in range(2):
            n = int(10 ** random.uniform(2.5, 5))
            deviation, before = np.exp(random.normal(0, 0.5, 2))
            sides.append((n, random.normal(1, 0.3) * random.choice([1, -1]) if count == 1 and not sides else
                          (sides[0][1] * random.uniform(0.8, 1.2) if sides else random.normal(1, 0.3)),
                          random.normal(1, 0.02), deviation ** 2, before ** 2,
                          deviation * before * random.uniform(-0.2, 0.9)))
        periods.append(tuple(sides))
    contrast = Means(periods, adjusts)
    sign = 1 if contrast.base > 0 else -1
    q, z2, d = bound(0.05, contrast.r), contrast.z2(1), contrast.estimate()
    wide = 40 * abs(d) / np.sqrt(z2) + abs(d)
    expected = [z2, contrast.z2(1 - sign * 0.1), contrast.z2(1 + sign * 0.1), contrast.z2(1, 0.05), p_value(z2, contrast.r),
                2 * norm.sf(np.sqrt(z2)), zero(lambda x: contrast.z2(1, x) - q, d, d - wide),
                zero(lambda x: contrast.z2(1, x) - q, d, d + wide)]
    k = 1 + d / contrast.base
    grid = k + np.linspace(-4, 4, 4001)
    inside = grid[[contrast.z2(x) <= q for x in grid]]
    if len(inside) and inside.min() > grid[0] + 0.1 and inside.max() < grid[-1] - 0.1:
        low = zero(lambda x: contrast.z2(x) - q, inside.min(), inside.min() - 0.002)
        high = zero(lambda x: contrast.z2(x) - q, inside.max(), inside.max() + 0.002)
        expected += sorted([sign * (low - 1), sign * (high - 1)])
    write("adjusted means" if adjusts else "means", [x for pair in periods for side in pair for x in side], expected)


def write(function, arguments, expected):
    print(json.dumps({"function": function, "arguments": [float(x) for x in arguments],
                      "expected": [float(x) for x in expected]}))


rates([(5000, 5000, 100, 50)])
for count in [1] * 40 + [2] * 8 + [5] * 4:
    rate, periods = 10 ** random.uniform(-2.5, -0.3), []
    for _ in range(count):
        n1, n0 = (int(10 ** random.uniform(2.5, 5)) for _ in range(2))
        period_rate = rate * random.uniform(0.5, 1)
        periods.append((n1, n0, max(3, random.binomial(n1, period_rate * random.uniform(0.8, 1.2))),
                        max(3, random.binomial(n0, period_rate))))
    rates(periods)
for count in [1] * 40 + [2] * 5 + [5] * 3:
    means(False, count)
    means(True, count)
