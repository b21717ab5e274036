"""Draws what bench/tune_search prints: the best time so far, trial by trial, as an SVG.

    build/release/bench/tune_search LOG... > curves.json
    python bench/tune_curves.py curves.json curves.svg

A panel a problem; each line the median over the seeds, the band from the fastest to the slowest.
"""

import json
import math
import pathlib
import statistics
import sys

COLORS = {"random": "#999999", "evolution": "#e69f00", "full": "#0072b2", "started": "#009e73"}
WIDTH, HEIGHT, COLUMNS = 300, 190, 2  # of a panel
LEFT, TOP, RIGHT, BOTTOM = 44, 30, 12, 26


def at(steps, trial):
    """The best time after so many trials, None before anything has run."""
    best = None
    for number, us in steps:
        if number > trial:
            break
        best = us
    return best


def panel(task, trials, left, top):
    marks = sorted({round(10 ** (i / 24 * math.log10(trials))) for i in range(25)})
    curves = {}
    for curve in task["curves"]:
        curves.setdefault(curve["method"], []).append(curve["steps"])
    best, worst = task["best_us"], 1.5

    def x(trial):
        return left + LEFT + (WIDTH - LEFT - RIGHT) * math.log10(trial) / math.log10(trials)

    def y(us):
        share = (min(us / best, worst) - 1) / (worst - 1)
        return top + HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    title = task["problem"] if len(task["problem"]) <= 46 else task["problem"][:45] + "…"
    title = title.replace("&", "&amp;").replace("<", "&lt;")
    svg = [f'<text x="{left + LEFT}" y="{top + 14}" font-size="10">{title}</text>',
           f'<text x="{left + LEFT}" y="{top + 26}" font-size="9" fill="#666666">{task["schedules"]} schedules</text>']
    for share in (1, 1.1, 1.2, 1.3, 1.4, 1.5):
        svg.append(f'<line x1="{left + LEFT}" x2="{left + WIDTH - RIGHT}" y1="{y(best * share):.1f}" '
                   f'y2="{y(best * share):.1f}" stroke="#eeeeee"/>')
        svg.append(f'<text x="{left + LEFT - 6}" y="{y(best * share) + 3:.1f}" text-anchor="end" font-size="9">{share:g}</text>')
    trial = 1
    while trial <= trials:
        svg.append(f'<text x="{x(trial):.1f}" y="{top + HEIGHT - 10}" text-anchor="middle" font-size="9">{trial:,}</text>')
        trial *= 10
    for method, color in COLORS.items():
        rows = [(mark, [us for us in (at(steps, mark) for steps in curves.get(method, [])) if us]) for mark in marks]
        rows = [(mark, values) for mark, values in rows if values]
        if not rows:
            continue
        band = [f"{x(mark):.1f},{y(min(values)):.1f}" for mark, values in rows]
        band += [f"{x(mark):.1f},{y(max(values)):.1f}" for mark, values in reversed(rows)]
        line = " ".join(f"{x(mark):.1f},{y(statistics.median(values)):.1f}" for mark, values in rows)
        svg.append(f'<polygon points="{" ".join(band)}" fill="{color}" opacity="0.15"/>')
        svg.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"/>')
    return svg


def plot(result):
    tasks = result["tasks"]
    height = -(-len(tasks) // COLUMNS) * HEIGHT + 30
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * COLUMNS} {height}" font-family="sans-serif">',
           f'<rect width="{WIDTH * COLUMNS}" height="{height}" fill="white"/>']
    for i, task in enumerate(tasks):
        svg += panel(task, result["trials"], i % COLUMNS * WIDTH, i // COLUMNS * HEIGHT)
    for i, (method, color) in enumerate(COLORS.items()):
        place = LEFT + i * 78
        svg.append(f'<rect x="{place}" y="{height - 22}" width="12" height="12" fill="{color}"/>')
        svg.append(f'<text x="{place + 16}" y="{height - 12}" font-size="11">{method}</text>')
    svg.append(f'<text x="{LEFT + 330}" y="{height - 12}" font-size="10">best time ÷ best known, after trials</text>')
    return "\n".join([*svg, "</svg>", ""])


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    pathlib.Path(sys.argv[2]).write_text(plot(json.loads(pathlib.Path(sys.argv[1]).read_text())))


if __name__ == "__main__":
    main()
