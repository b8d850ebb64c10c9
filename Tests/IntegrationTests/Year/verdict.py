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


def likelihood(converted, users, rate):
    term = lambda number, share: number * math.log(share) if number else 0
    return term(converted, rate) + term(users - converted, 1 - rate)


def p_value(n0, c0, n1, c1):
    """The likelihood ratio of two binomials, mixed over effects so that it holds at any number of looks."""
    rate = (c0 + c1) / (n0 + n1)
    z2 = 2 * (likelihood(c0, n0, c0 / n0) + likelihood(c1, n1, c1 / n1) - likelihood(c0, n0, rate) - likelihood(c1, n1, rate))
    logarithm = -2 * math.log(0.05)
    r = (logarithm + math.log(logarithm + 1)) / TUNING * 4 * n0 * n1 / (n0 + n1)
    return min(1, math.sqrt(1 + r) * math.exp(-z2 / 2 * r / (1 + r)))


def verdict(n0, c0, n1, c1):
    if n0 + n1 and mismatch(n0, n1):
        return "invalid", None
    if min(n0, n1) == 0 or p_value(n0, c0, n1, c1) > ALPHA:
        return "continue", None
    return ("ship", "b") if c1 / n1 > c0 / n0 else ("stop", None)


decision, winner = verdict(*map(int, sys.argv[1:]))
print(decision, winner or "none")
