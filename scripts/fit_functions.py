#!/usr/bin/env python3
"""Fits the polynomials of src/kernels/host/simd/functions.h and prints them with their errors.

Each is the polynomial of least weighted maximal error on an interval (Remez exchange in 60 digits),
whose coefficients are then rounded to float32 one after the other, from the one that matters most,
the rest being fitted again each time. Needs mpmath (Debian: python3-mpmath, python3-numpy).
"""
import mpmath as mp
import numpy as np

mp.mp.dps = 60


def chebyshev_nodes(low, high, count):
    return [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * (i + mp.mpf(1) / 2) / count)
            for i in range(count)]


def remez(target, weight, basis, low, high):
    """Coefficients c that minimise max |weight(x) * (target(x) - sum c[i] * basis[i](x))|."""
    count = len(basis)
    points = chebyshev_nodes(low, high, count + 1)
    grid = chebyshev_nodes(low, high, 40 * (count + 1))
    for _ in range(20):
        matrix, right = mp.matrix(count + 1, count + 1), mp.matrix(count + 1, 1)
        for row, x in enumerate(points):
            for column, function in enumerate(basis):
                matrix[row, column] = function(x)
            matrix[row, count] = (-1) ** row / weight(x)
            right[row] = target(x)
        solution = mp.lu_solve(matrix, right)
        coefficients, level = list(solution[:count]), abs(solution[count])
        errors = [weight(x) * (target(x) - sum(c * f(x) for c, f in zip(coefficients, basis)))
                  for x in grid]
        # One extreme of each run of equal sign.
        runs = []
        for x, e in zip(grid, errors):
            if runs and (runs[-1][1] > 0) == (e > 0):
                if abs(e) > abs(runs[-1][1]):
                    runs[-1] = (x, e)
            else:
                runs.append((x, e))
        while len(runs) > count + 1:
            runs.pop(0 if abs(runs[0][1]) < abs(runs[-1][1]) else -1)
        if len(runs) < count + 1:
            break
        points = [x for x, _ in runs]
        if max(abs(e) for _, e in runs) < level * mp.mpf("1.001"):
            break
    return coefficients


def fit(name, target, weight, powers, low, high, fixed=None, at_once=False):
    """Prints float32 coefficients of x**p, p in powers; `fixed` maps powers to given values. Of -1 to 1, where all
    powers matter alike, they are rounded `at_once`."""
    low, high = mp.mpf(low), mp.mpf(high)
    known = dict(fixed or {})
    for power in sorted(powers):
        if power in known:
            continue
        free = [p for p in sorted(powers) if p not in known]
        rest = lambda x: target(x) - sum(c * x ** p for p, c in known.items())
        coefficients = remez(rest, weight, [lambda x, p=p: x ** p for p in free], low, high)
        rounded = [mp.mpf(float(np.float32(float(c)))) for c in coefficients]
        known.update(zip(free, rounded) if at_once else [(power, rounded[0])])
    worst = max(abs(weight(x) * (target(x) - sum(c * x ** p for p, c in known.items())))
                for x in chebyshev_nodes(low, high, 2000))
    print(f"{name}: on [{mp.nstr(low, 6)}, {mp.nstr(high, 6)}], worst {mp.nstr(worst, 3)}")
    for power in sorted(known):
        value = float(known[power])
        print(f"  x^{power}: {value.hex():>24}f  // {value:.9g}")


def main():
    one, half_ln2 = mp.mpf(1), mp.log(2) / 2
    # exp(x) = 1 + x * p(x) on the rest of the reduction by ln 2; relative error of exp.
    fit("exp", lambda x: mp.expm1(x) / x if x else one,
        lambda x: (abs(x) + mp.mpf("1e-9")) / mp.exp(x), range(6),
        -half_ln2 * mp.mpf("1.01"), half_ln2 * mp.mpf("1.01"))
    # 2^x = 1 + x * p(x) for |x| <= 1/2; relative error.
    fit("power of 2", lambda x: (mp.mpf(2) ** x - 1) / x if x else mp.log(2),
        lambda x: (abs(x) + mp.mpf("1e-9")) / mp.mpf(2) ** x, range(5), -one / 2, one / 2)
    # tanh(x) = x + x * z * p(z), z = x * x, for |x| < 0.625; relative error of tanh.
    root = lambda z: mp.sqrt(z)
    fit("tanh", lambda z: (mp.tanh(root(z)) / root(z) - 1) / z,
        lambda z: z * root(z) / mp.tanh(root(z)), range(5), mp.mpf("1e-12"), mp.mpf("0.625") ** 2)
    # erf(x) = x * p(z), z = x * x, for |x| < 1; relative error of erf.
    fit("erf", lambda z: mp.erf(root(z)) / root(z), lambda z: root(z) / mp.erf(root(z)), range(8),
        mp.mpf("1e-12"), 1)
    # -log(erfc(x)) for 1 <= x < 4, in x - 1; weighted by its influence on erf = 1 - exp(-p).
    fit("erfc", lambda t: -mp.log(mp.erfc(t + 1)), lambda t: mp.erfc(t + 1) + mp.mpf("1e-7"),
        range(7), 0, 3)
    # Phi(x) = 1/2 + x * p(t), t = 2 x^2 / 5.25^2 - 1, for |x| < 5.25; error of Phi.
    side = lambda t: mp.sqrt((t + 1) / 2) * mp.mpf("5.25")
    fit("gelu", lambda t: mp.erf(side(t) / mp.sqrt(2)) / (2 * side(t)), side, range(14),
        mp.mpf("1e-12") - 1, 1, at_once=True)
    # log(1 + f) = f - f^2 / 2 + f^3 p(f), 1 + f in [sqrt(1/2), sqrt(2)]; relative error of log.
    fit("log", lambda f: (mp.log1p(f) - f + f * f / 2) / f ** 3 if f else one / 3,
        lambda f: f ** 3 / mp.log1p(f) if f else mp.mpf("1e-9"), range(9),
        mp.sqrt(one / 2) - 1, mp.sqrt(2) - 1)
    # sin(x) = x + x * z * p(z) and cos(x) = 1 - z / 2 + z^2 * p(z) for |x| <= pi / 4.
    quarter = (mp.pi / 4 * mp.mpf("1.01")) ** 2
    fit("sin", lambda z: (mp.sin(root(z)) / root(z) - 1) / z,
        lambda z: z * root(z) / mp.sin(root(z)), range(3), mp.mpf("1e-10"), quarter)
    fit("cos", lambda z: (mp.cos(root(z)) - 1 + z / 2) / z ** 2,
        lambda z: z ** 2 / mp.cos(root(z)), range(3), mp.mpf("1e-8"), quarter)
    for name, value, bits in (("ln 2", mp.log(2), (16, 24)), ("pi / 2", mp.pi / 2, (9, 11, 11, 24))):
        rest = value
        for count in bits:  # few bits, so that a multiple by a small integer is exact
            exponent = mp.floor(mp.log(abs(rest), 2)) - count + 1
            part = mp.nint(rest / mp.mpf(2) ** exponent) * mp.mpf(2) ** exponent
            print(f"{name}: {float(part).hex()}")
            rest -= part


if __name__ == "__main__":
    main()
