"""Writes the reference values that the suite compares with, one JSON object a line, on random data.

    python3 -m venv /tmp/statistics && /tmp/statistics/bin/pip install scipy gbstats ssrm-test
    /tmp/statistics/bin/python Tests/StatisticsTests/vectors.py [SEED] > Tests/StatisticsTests/vectors.jsonl

With another seed, the same comparison on other data: `swift test --filter StatisticsTests`.
"""

import json
import sys

import numpy as np
from gbstats.bayesian.tests import EffectBayesianABTest, EffectBayesianConfig
from gbstats.models.statistics import SampleMeanStatistic
from scipy import integrate, special, stats
from ssrm_test.ssrm_test import sequential_posteriors

# ssrm-test was written for numpy 1.
np.Inf = np.inf

random = np.random.default_rng(int(sys.argv[1]) if len(sys.argv) > 1 else 20261121)


def write(function, arguments, expected):
    print(json.dumps({"function": function, "arguments": [float(x) for x in arguments],
                      "expected": [float(x) for x in expected]}))


def distributions():
    for p in [1e-300, 1e-12, 1e-6, 0.005, 0.025, 0.5, 0.8, 0.975, 0.9995, *random.random(20)]:
        write("normal quantile", [p], [stats.norm.ppf(p)])
    for x in [-30, -8, -1e-9, 0, 5, *random.normal(0, 3, 20)]:
        write("normal probability", [x], [stats.norm.cdf(x)])
    for _ in range(40):
        a, b = 10 ** random.uniform(0, 7), 10 ** random.uniform(0, 7)
        x = stats.beta.ppf(random.uniform(0.001, 0.999), a, b)
        write("beta", [a, b, x], [stats.beta.cdf(x, a, b)])


def proportions():
    for _ in range(25):
        n1, n0 = (int(10 ** random.uniform(1, 5)) for _ in range(2))
        rate = 10 ** random.uniform(-2.5, -0.1)
        s1, s0 = (random.binomial(n, rate * random.uniform(0.8, 1)) for n in (n1, n0))
        a, b = stats.beta(1 + s1, 1 + n1 - s1), stats.beta(1 + s0, 1 + n0 - s0)
        edges = np.linspace(*b.ppf([1e-15, 1 - 1e-15]), 60)
        chance = sum(integrate.quad(lambda x: b.pdf(x) * a.sf(x), low, high, epsabs=1e-14, epsrel=1e-11)[0]
                     for low, high in zip(edges, edges[1:]))
        # The loss by another way: E[max(B - A, 0)] is the integral of P(B > x) P(A < x).
        low, high = min(a.ppf(1e-15), b.ppf(1e-15)), max(a.isf(1e-15), b.isf(1e-15))
        edges = np.linspace(low, high, 120)
        loss = sum(integrate.quad(lambda x: b.sf(x) * a.cdf(x), low, high, epsabs=1e-14, epsrel=1e-11)[0]
                   for low, high in zip(edges, edges[1:]))
        write("rate posterior", [s1, n1, s0, n0], [chance, loss])


def moments(values):
    return [len(values), np.mean(values), np.var(values, ddof=1)]


def mean_statistic(values):
    return SampleMeanStatistic(n=len(values), sum=float(np.sum(values)), sum_squares=float(np.sum(values**2)))


def means():
    for _ in range(30):
        n1, n0 = (int(10 ** random.uniform(1, 4.5)) for _ in range(2))
        scale = 10 ** random.uniform(-2, 4)
        b = random.gamma(0.5, scale, n1)
        a = random.gamma(0.5, scale * random.uniform(0.7, 1.3), n0)
        sa, sb = mean_statistic(a), mean_statistic(b)
        config = EffectBayesianConfig(difference_type="absolute")
        result = EffectBayesianABTest(sa, sb, config).compute_result()
        write("mean posterior", moments(b) + moments(a), [result.chance_to_win, result.risk[1]])


def log_evidence(counts, shares):
    found = sequential_posteriors([counts], shares / shares.sum(), dirichlet_concentration=1000)
    return found[-1]["log_bayes_factor"]


def sample_ratio():
    for _ in range(20):
        k = int(random.integers(2, 6))
        shares = random.dirichlet(np.full(k, 5)) * 10000 + 100
        counts = random.multinomial(int(10 ** random.uniform(1, 5)), random.dirichlet(2000 * shares / shares.sum()))
        write("sample ratio", [*counts, *shares], [log_evidence(counts, shares)])


def sample_ratio_of_periods():
    for _ in range(20):
        k, periods = int(random.integers(2, 5)), int(random.integers(1, 6))
        arguments, logarithms = [k, periods], []
        for _ in range(periods):
            shares = random.dirichlet(np.full(k, 5)) * 10000 + 100
            counts = random.multinomial(int(10 ** random.uniform(2, 5)), random.dirichlet(2000 * shares / shares.sum()))
            logarithms.append(log_evidence(counts, shares))
            arguments += [*counts, *shares]
        mean = special.logsumexp(logarithms) - np.log(periods)
        evidence = np.logaddexp(sum(logarithms), mean) - np.log(2)
        write("sample ratio of periods", arguments, [min(1, np.exp(-evidence))])


distributions()
proportions()
means()
sample_ratio()
sample_ratio_of_periods()
