"""Two panels of a table of bench/run_comm.py as one SVG: the time of a call and its bandwidth over
the size, both logarithmic, one line a program."""
import colorsys
import math
import re

WIDTH, HEIGHT = 960, 412
PANELS = ((70, "time of a call"), (550, "bytes of the buffer a second"))  # left edge, title
TOP, BOTTOM, ACROSS = 56, 330, 380
# Okabe and Ito's colours, which colour-blind readers can tell apart; ours are the solid lines.
STYLES = {"arena": ("#d55e00", ""), "heap": ("#cc79a7", ""),
          "over_openmpi": ("#d55e00", ""), "over_mpich": ("#e69f00", ""), "yard": ("#000000", "2 3"),
          "stream": ("#888888", "2 3"), "openmpi": ("#0072b2", "6 3"), "mpich": ("#56b4e9", "6 3"),
          "gloo": ("#009e73", "6 3"), "oneccl": ("#6a3d9a", "6 3")}


def text_of(size):
    for unit, word in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {word}"
    return f"{size} B"


def unit_text(value, units):
    for scale, word in units:
        if value >= scale * 0.999:
            return f"{value / scale:g} {word}"
    return f"{value:g}"


def time_text(seconds):
    return unit_text(seconds, ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")))


def rate_text(rate):
    return unit_text(rate, ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1, "B/s")))


class Panel:
    """Logarithmic axes over whole decades."""

    def __init__(self, left, title, sizes, values, word):
        self.left, self.sizes = left, sizes
        self.low = math.floor(math.log10(min(values)))
        self.high = max(math.ceil(math.log10(max(values))), self.low + 1)
        self.parts = [f'<text x="{left}" y="{TOP - 14}" font-weight="bold">{title}</text>']
        for power in range(self.low, self.high + 1):
            y = self.y(10.0**power)
            self.parts.append(f'<path d="M{left} {y:.1f}h{ACROSS}" stroke="#ddd"/>'
                              f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">'
                              f'{word(10.0**power)}</text>')
        for size in sizes:
            self.parts.append(f'<path d="M{self.x(size):.1f} {TOP}V{BOTTOM}" stroke="#eee"/>'
                              f'<text x="{self.x(size):.1f}" y="{BOTTOM + 18}" text-anchor="middle">'
                              f'{text_of(size)}</text>')

    def x(self, size):
        low, high = math.log2(self.sizes[0]), math.log2(self.sizes[-1])
        return self.left + ACROSS * ((math.log2(size) - low) / (high - low) if high > low else 0.5)

    def y(self, value):
        return BOTTOM - (BOTTOM - TOP) * (math.log10(value) - self.low) / (self.high - self.low)

    def line(self, points, style):
        color, dash = style
        way = " ".join(f"{self.x(size):.1f},{self.y(value):.1f}" for size, value in points)
        self.parts.append(f'<polyline points="{way}" fill="none" stroke="{color}" stroke-width="2"'
                          + (f' stroke-dasharray="{dash}"' if dash else "") + "/>")
        self.parts += [f'<circle cx="{self.x(size):.1f}" cy="{self.y(value):.1f}" r="2.5" '
                       f'fill="{color}"/>' for size, value in points]


def legend(names, titles):
    parts, x, y = [], PANELS[0][0], BOTTOM + 50
    for name in names:
        color, dash = STYLES[name]
        width = 44 + 7.2 * len(titles[name])
        if x + width > WIDTH:
            x, y = PANELS[0][0], y + 22
        parts.append(f'<path d="M{x:.0f} {y - 4}h28" stroke="{color}" stroke-width="2"'
                     + (f' stroke-dasharray="{dash}"' if dash else "") + "/>"
                     f'<text x="{x + 34:.0f}" y="{y}">{titles[name]}</text>')
        x += width + 10
    return parts


def dark_of(colour):
    """The colour for dark paper of one for white paper, as base/plot/svg.cc has it."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    hue, light, saturation = colorsys.rgb_to_hls(*(int(digits[i:i + 2], 16) / 255 for i in (0, 2, 4)))
    parts = colorsys.hls_to_rgb(hue, 0.94 - 0.83 * light, saturation)
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)


def with_dark(picture):
    """The picture with other colours where a viewer prefers dark pages."""
    rules = "".join(f'[{name}="{colour}"]{{{name}:{dark_of(colour)}}}\n' for name, colour in
                    sorted(set(re.findall(r'\b(fill|stroke)="(#[0-9a-f]+)"', picture))))
    style = f"<style>@media (prefers-color-scheme:dark){{\nsvg{{fill:#f0f0f0}}\n{rules}}}</style>\n"
    begin = picture.index(">") + 2
    return picture[:begin] + style + picture[begin:]


def svg(title, seconds, titles):
    """`seconds`: program -> size -> seconds."""
    drawn = {name: sorted((size, one) for size, one in seconds[name].items() if one > 0)
             for name in STYLES if name in seconds and name != "stream"}
    sizes = sorted({size for points in drawn.values() for size, _ in points})
    times = [one for points in drawn.values() for _, one in points]
    rates = [size / one for points in drawn.values() for size, one in points]
    panels = [Panel(*PANELS[0], sizes, times, time_text), Panel(*PANELS[1], sizes, rates, rate_text)]
    for name, points in drawn.items():
        panels[0].line(points, STYLES[name])
        panels[1].line([(size, size / one) for size, one in points], STYLES[name])
    parts = [f'<text x="{PANELS[0][0]}" y="22" font-size="15" font-weight="bold">{title}</text>']
    parts += panels[0].parts + panels[1].parts + legend(drawn, titles)
    body = "\n".join(parts)
    return with_dark(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="11">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>\n{body}\n</svg>\n')
