"""Prints the decision and the winner for two variations: verdict.py USERS CONVERTED USERS CONVERTED, the baseline first.

By the manual's rule and the sources that it names, without the server's code.
"""

import math
import sys

ALPHA, TUNING, SHARES, MISMATCH = 0.05, 5000, 1000, 0.0005


def mismatch(first, second):
    """Lindon and Malek, arXiv 2011.03567: the Bayes factor of Dirichlet shares around the expected ones; one over it is the p-value."""
    beta = lambda x, y: math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y)
    factor = beta(SHARES / 2 + first, SHARES / 2 + second) - beta(SHARES / 2, SHARES / 2) + (first + second) * math.log(2)
    return math.exp(-max(factor, 0)) < MISMATCH


def reach(count, level):
    """Half the width of the confidence sequence in standard errors: arXiv 2103.06476, equations 9 and 24."""
    rho = (-2 * math.log(ALPHA) + math.log(-2 * math.log(ALPHA) + 1)) / TUNING
    scale = count * rho + 1
    return math.sqrt(2 * scale / (count * rho) * math.log(math.sqrt(scale) / level))


def verdict(n0, c0, n1, c1):
    if mismatch(n0, n1):
        return "invalid", None
    if min(n0, n1) < 100 or min(c0, c1, n0 - c0, n1 - c1) < 10:
        return "continue", None
    p0, p1 = c0 / n0, c1 / n1
    v0, v1 = p0 * (1 - p0), p1 * (1 - p1)
    lift = (p1 - p0) / p0
    error = math.sqrt(v1 / n1 / p0**2 + (p1 / p0**2) ** 2 * v0 / n0)
    if abs(lift) / error <= reach(n0 + n1, ALPHA):
        return "continue", None
    return ("ship", "b") if lift > 0 else ("stop", None)


decision, winner = verdict(*map(int, sys.argv[1:]))
print(decision, winner or "none")
