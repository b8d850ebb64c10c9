"""Writes the reference values that the suite compares with, one JSON object a line, on random data.

    python3 -m venv /tmp/statistics && /tmp/statistics/bin/pip install scipy statsmodels gbstats ssrm-test
    /tmp/statistics/bin/python Tests/StatisticsTests/vectors.py [SEED] > Tests/StatisticsTests/vectors.jsonl

With another seed, the same comparison on other data: `swift test --filter StatisticsTests`.
"""

import json
import sys

import numpy as np
from gbstats.bayesian.tests import EffectBayesianABTest, EffectBayesianConfig
from gbstats.frequentist.tests import FrequentistConfig, SequentialConfig, SequentialTwoSidedTTest, TwoSidedTTest
from gbstats.models.statistics import (
    ProportionStatistic, RatioStatistic, RegressionAdjustedStatistic, SampleMeanStatistic, compute_theta)
from scipy import integrate, optimize, special, stats
from ssrm_test.ssrm_test import sequential_posteriors
from statsmodels.stats.power import NormalIndPower
from statsmodels.stats.proportion import confint_proportions_2indep, power_proportions_2indep, proportions_ztest

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
        df, x = 10 ** random.uniform(0, 7), abs(random.normal(0, 3))
        write("t beyond", [df, x], [2 * stats.t.sf(x, df)])
        p = 10 ** random.uniform(-6, -0.01)
        write("t distance", [df, p], [stats.t.isf(p / 2, df)])
        a, b = 10 ** random.uniform(0, 7), 10 ** random.uniform(0, 7)
        x = stats.beta.ppf(random.uniform(0.001, 0.999), a, b)
        write("beta", [a, b, x], [stats.beta.cdf(x, a, b)])


def proportions():
    for _ in range(40):
        n1, n0 = (int(10 ** random.uniform(2, 6.5)) for _ in range(2))
        rate = 10 ** random.uniform(-2, -0.1)
        s1, s0 = (max(1, random.binomial(n, rate * random.uniform(0.9, 1))) for n in (n1, n0))
        _, p = proportions_ztest([s1, s0], [n1, n0])
        low, high = confint_proportions_2indep(s1, n1, s0, n0, method="wald", compare="diff", alpha=0.05)
        write("two proportions", [s1, n1, s0, n0], [p, low, high])
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
        welch = stats.ttest_ind(b, a, equal_var=False)
        interval = welch.confidence_interval(0.95)
        write("welch", moments(b) + moments(a), [welch.pvalue, welch.df, interval.low, interval.high])
        sa, sb = mean_statistic(a), mean_statistic(b)
        alpha = random.choice([0.1, 0.05, 0.01])
        relative = FrequentistConfig(alpha=alpha, difference_type="relative")
        result = TwoSidedTTest(sa, sb, relative).compute_result()
        write("lift", moments(b) + moments(a) + [alpha],
              [result.expected, result.uplift.stddev, result.ci[0], result.ci[1]])
        tuning = 10 ** random.uniform(2, 5)
        config = SequentialConfig(alpha=alpha, difference_type="relative", sequential_tuning_parameter=tuning)
        result = SequentialTwoSidedTTest(sa, sb, config).compute_result()
        write("sequential", moments(b) + moments(a) + [alpha, tuning],
              [result.ci[0], result.ci[1], result.p_value])
        config = EffectBayesianConfig(difference_type="absolute")
        result = EffectBayesianABTest(sa, sb, config).compute_result()
        write("mean posterior", moments(b) + moments(a), [result.chance_to_win, result.risk[1]])


def paired_moments(y, x):
    return [len(y), np.mean(y), np.mean(x), np.sum((y - y.mean()) ** 2), np.sum((x - x.mean()) ** 2),
            np.sum((y - y.mean()) * (x - x.mean()))]


def cuped():
    for _ in range(30):
        n1, n0 = (int(10 ** random.uniform(1.3, 4)) for _ in range(2))
        strength, sides = random.uniform(0, 1), []
        for n, factor in ((n1, random.uniform(0.8, 1.2)), (n0, 1)):
            x = random.gamma(1, 20, n) * (random.random(n) < 0.6)
            sides.append((factor * (strength * x + random.gamma(1, 20, n)), x))
        statistics = []
        for y, x in sides:
            statistics.append(RegressionAdjustedStatistic(
                n=len(y), post_statistic=mean_statistic(y), pre_statistic=mean_statistic(x),
                post_pre_sum_of_products=float(np.sum(y * x)), theta=0))
        theta = compute_theta(statistics[1], statistics[0])
        for statistic in statistics:
            statistic.theta = theta
        b, a = statistics
        relative = TwoSidedTTest(a, b, FrequentistConfig(alpha=0.05, difference_type="relative")).compute_result()
        absolute = TwoSidedTTest(a, b, FrequentistConfig(alpha=0.05, difference_type="absolute")).compute_result()
        write("cuped", paired_moments(*sides[0]) + paired_moments(*sides[1]),
              [theta, relative.expected, relative.uplift.stddev, absolute.expected, absolute.p_value])


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


def power():
    for _ in range(40):
        n1, n0 = (int(10 ** random.uniform(2.5, 6)) for _ in range(2))
        alpha, rate = random.choice([0.1, 0.05, 0.01]), 10 ** random.uniform(-2, -0.3)

        def of_rates(effect):
            return power_proportions_2indep(effect * rate, rate, n1, n0 / n1, alpha, return_results=False)

        smallest = optimize.brentq(lambda effect: of_rates(effect) - 0.8, 1e-6, (1 - rate) / rate, xtol=1e-15)
        effect = smallest * random.uniform(0.2, 1.2)
        write("power of rates", [rate, alpha, effect, n1, n0], [of_rates(effect), smallest])
        mean, deviation = 10 ** random.uniform(-2, 3), 10 ** random.uniform(-2, 3)
        size = optimize.brentq(lambda size: NormalIndPower().power(size, n1, alpha, n0 / n1) - 0.8, 1e-6, 10, xtol=1e-15)
        effect = size * random.uniform(0.2, 1.2)
        write("power of means", [mean, deviation, alpha, effect * deviation / mean, n1, n0],
              [NormalIndPower().power(effect, n1, alpha, n0 / n1), size * deviation / mean])


def user_events(n, rate):
    """For each user, times in days and values of the events of two goals."""
    return [[sorted((random.uniform(0, 20), random.gamma(2, 10)) for _ in range(random.poisson(r)))
             for r in random.gamma(1, rate, 2)] for _ in range(n)]


def metric_kinds():
    """What a user contributes to each kind of metric, from events, and how gbstats compares it."""
    for _ in range(12):
        sides = [user_events(int(10 ** random.uniform(1.5, 3)), rate) for rate in (1.2, 1)]
        window, cap = random.uniform(2, 15), random.uniform(10, 60)

        def inside(events):
            return [value for time, value in events if time < window]

        means = {
            "count": lambda user: len(inside(user[0])),
            "total": lambda user: min(sum(inside(user[0])), cap),
        }
        rates = {
            "conversion": lambda user: bool(inside(user[0])),
            "retention": lambda user: any(3 <= time < 9 for time, _ in user[0]),
            "funnel": lambda user: bool(user[0]) and any(time >= user[0][0][0] for time, _ in user[1]),
        }
        ratios = {
            "mean": lambda user: (sum(inside(user[0])), len(inside(user[0]))),
            "ratio": lambda user: (sum(value for _, value in user[0]), len(user[1])),
        }
        for contribution in means.values():
            b, a = (np.array([contribution(user) for user in side], float) for side in sides)
            compare_samples("mean kind", moments(b) + moments(a), mean_statistic(a), mean_statistic(b))
        for contribution in rates.values():
            b, a = (np.array([contribution(user) for user in side], float) for side in sides)
            # gbstats divides the variance of a share by n, not n - 1.
            compare_samples("rate kind", [b.sum(), len(b), a.sum(), len(a)], proportion(a), proportion(b))
        for contribution in ratios.values():
            b, a = (np.array([contribution(user) for user in side], float) for side in sides)
            compare_samples(
                "ratio kind", paired_moments(*b.T) + paired_moments(*a.T), ratio_statistic(a), ratio_statistic(b))


def proportion(values):
    return ProportionStatistic(n=len(values), sum=int(values.sum()))


def ratio_statistic(pairs):
    y, x = pairs.T
    return RatioStatistic(
        n=len(y), m_statistic=mean_statistic(y), d_statistic=mean_statistic(x), m_d_sum_of_products=float(np.sum(y * x)))


def compare_samples(name, arguments, a, b):
    """Writes the estimates of both, the lift with its error, and the interval that is always valid."""
    relative = TwoSidedTTest(a, b, FrequentistConfig(alpha=0.05, difference_type="relative")).compute_result()
    absolute = TwoSidedTTest(a, b, FrequentistConfig(alpha=0.05, difference_type="absolute")).compute_result()
    config = SequentialConfig(alpha=0.05, difference_type="relative", sequential_tuning_parameter=5000)
    sequential = SequentialTwoSidedTTest(a, b, config).compute_result()
    write(name, arguments, [b.mean, a.mean, relative.expected, relative.uplift.stddev, sequential.ci[0], sequential.ci[1]]
          + ([] if name == "rate kind" else [absolute.p_value]))


distributions()
proportions()
means()
cuped()
sample_ratio()
sample_ratio_of_periods()
power()
metric_kinds()
