"""Bars and curves as SVG, in one look: what bench/gpu_table.py draws beside its tables."""

import math
import statistics

GREY, BLUE, ORANGE, GREEN = "#999999", "#0072b2", "#e69f00", "#009e73"
PALE_BLUE, PALE_ORANGE = "#8fc1dd", "#f4d38c"


def text(x, y, words, size=10, **more):
    attributes = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    words = str(words).replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}"{attributes}>{words}</text>'


def box(x, y, width, height, color):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{color}"/>'


def drawing(width, height, marks, series, note=""):
    """The marks, and below them what the colors of the series [(name, color)] mean, in as many lines as that takes."""
    x, y, legend = 20, height + 8, []
    for name, color in [*series, (note, "none")]:
        length = 34 + 5.8 * len(name)
        if x + length > width:
            x, y = 20, y + 20
        legend += [box(x, y, 12, 12, color), text(x + 16, y + 10, name, 11)] if color != "none" else [text(x, y + 10, name)]
        x += length
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y + 24}" font-family="sans-serif">',
                      box(0, 0, width, y + 24, "white"), *marks, *legend, "</svg>", ""])


def bars(series, groups, form, scale=None, note=""):
    """A group of bars for each (label, values), a bar for each of the series [(name, color)]; none for None.

    `form(value)` is written beside a bar. The scale is (least, most), None for one of its own for each group.
    """
    width, left, right, thick, gap = 640, 230, 80, 14, 12
    marks, top = [], 10
    for label, values in groups:
        low, high = scale or (0, max(value for value in values if value is not None))
        unit = (width - left - right) / (high - low)
        zero = left - low * unit
        bottom = top + thick * len(values)
        marks.append(text(left - 8, (top + bottom) / 2 + 3, label, 11, text_anchor="end"))
        for (_, color), value, y in zip(series, values, range(top, bottom, thick)):
            if value is not None:
                end = zero + value * unit
                marks += [box(min(zero, end), y, abs(end - zero), thick - 2, color), text(max(zero, end) + 4, y + 10, form(value))]
        marks.append(f'<line x1="{zero:.1f}" x2="{zero:.1f}" y1="{top - 2}" y2="{bottom}" stroke="#666666"/>')
        top = bottom + gap
    return drawing(width, top, marks, series, note)


def after(steps, trial):
    """The best time after so many trials, None before anything has run."""
    return next((us for number, us in reversed(steps) if number <= trial), None)


def panel(task, title, trials, worst, series, left, top, width, height):
    """The curves of one problem: of each method the median over the seeds, within a band from the fastest to the slowest."""
    x0, x1, y0, y1 = left + 44, left + width - 16, top + height - 26, top + 30

    def x(trial):
        return x0 + (x1 - x0) * math.log10(trial) / math.log10(trials)

    def y(ratio):
        return y0 - (min(ratio, worst) - 1) / (worst - 1) * (y0 - y1)

    marks = [text(x0, top + 14, title), text(x0, top + 26, f"{task['schedules']:,} schedules", 9, fill="#666666")]
    for ratio in (tenths / 10 for tenths in range(10, round(worst * 10) + 1)):
        marks.append(f'<line x1="{x0}" x2="{x1}" y1="{y(ratio):.1f}" y2="{y(ratio):.1f}" stroke="#eeeeee"/>')
        marks.append(text(x0 - 6, y(ratio) + 3, f"{ratio:g}", 9, text_anchor="end"))
    for power in range(int(math.log10(trials)) + 1):
        marks.append(text(x(10**power), y0 + 16, f"{10**power:,}", 9, text_anchor="middle"))
    points = sorted({round(trials ** (i / 24)) for i in range(25)})
    for method, color in series:
        curves = [curve["steps"] for curve in task["curves"] if curve["method"] == method]
        at = [(x(point), [y(us / task["best_us"]) for us in (after(steps, point) for steps in curves) if us]) for point in points]
        at = [(place, heights) for place, heights in at if heights]
        band = [(place, max(heights)) for place, heights in at] + [(place, min(heights)) for place, heights in reversed(at)]
        line = [(place, statistics.median(heights)) for place, heights in at]
        band, line = (" ".join(f"{a:.1f},{b:.1f}" for a, b in corners) for corners in (band, line))
        marks.append(f'<polygon points="{band}" fill="{color}" opacity="0.15"/>')
        marks.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"/>')
    return marks


def curves(search, titles, methods):
    """A panel a problem; of the methods {key: (name, color)} those that the search has."""
    width, height, columns = 360, 190, 2
    had = {curve["method"] for task in search["tasks"] for curve in task["curves"]}
    methods = {key: value for key, value in methods.items() if key in had}
    starts = [curve["steps"][0][1] / task["best_us"] for task in search["tasks"] for curve in task["curves"] if curve["steps"]]
    worst = min(1.5, math.ceil(10 * max([1.1, *starts])) / 10)  # what is above is drawn there
    marks = []
    for i, (task, title) in enumerate(zip(search["tasks"], titles)):
        marks += panel(task, title, search["trials"], worst, [(key, color) for key, (_, color) in methods.items()],
                       i % columns * width, i // columns * height, width, height)
    rows = -(-len(search["tasks"]) // columns)
    return drawing(columns * width, rows * height, marks, methods.values(), "best time ÷ best known, after so many trials")
