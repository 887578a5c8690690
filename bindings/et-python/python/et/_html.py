"""How notebooks show devices, profiles and failures."""

from html import escape

_TABLE = "border-collapse:collapse;font-family:sans-serif;font-size:13px"
_CELL = "text-align:left;padding:2px 8px;border-bottom:1px solid #8884"
_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#72b7b2", "#9d755d")


def _rows(rows):
    lines = (f"<tr><th style='{_CELL}'>{escape(str(name))}</th>"
             f"<td style='{_CELL}'>{escape(str(value))}</td></tr>" for name, value in rows)
    return f"<table style='{_TABLE}'>{''.join(lines)}</table>"


def _size(count):
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def text(content):
    """A text as it is."""
    return f"<pre style='font-size:13px'>{escape(content)}</pre>"


def device(of):
    """A table of what a device says about itself."""
    if of.closed:
        return _rows([("device", of.locator), ("state", "closed")])
    properties, memory = of.properties, of.memory_stats()
    rows = [
        ("device", of.locator),
        ("shires", f"{properties.shires} (mask {properties.shire_mask:#x})"),
        ("harts", properties.harts),
        ("memory", f"{_size(memory.used)} of {_size(memory.total)} used"),
        ("interface", ".".join(map(str, properties.api_version))),
    ]
    if properties.frequency_mhz:
        rows.append(("frequency", f"{properties.frequency_mhz} MHz"))
    return _rows(rows)


def failure(of):
    """What is known of a kernel that failed."""
    if not of.harts:
        return text(str(of))
    first = of.harts[0]
    rows = [
        ("kernel", of.kernel),
        ("what", first.what),
        ("hart", f"{first.hart} (shire {first.shire}, minion {first.minion})"),
    ]
    if first.pc is not None:
        rows.append(("pc", f"{first.pc:#x}"))
    if first.function:
        rows.append(("function", f"{first.function}+{first.offset:#x}"))
    if first.file:
        rows.append(("source", f"{first.file}:{first.line}"))
    if len(of.harts) > 1:
        rows.append(("other harts", len(of.harts) - 1))
    code = "\n".join(first.code)
    return _rows(rows) + (text(code) if code else "")


def profile(of):
    """A time line of the streams of a profile."""
    # More are not seen on a screen.
    records = of.records[:2000]
    if not records:
        return "<p>Nothing was recorded.</p>"
    start = min(record.queued for record in records)
    span = max(max(record.completed for record in records) - start, 1e-9)
    streams = sorted({record.stream for record in records})
    names = sorted({record.kernel or record.name for record in records})
    width, row, left = 900, 24, 80
    parts = []
    for line, stream in enumerate(streams):
        parts.append(f"<text x='4' y='{line * row + 16}'>stream {stream}</text>")
    for record in records:
        at = left + (record.sent - start) / span * (width - left)
        long = max((record.completed - record.sent) / span * (width - left), 1)
        colour = "#e45756" if record.failed else _COLOURS[names.index(record.kernel or record.name) % len(_COLOURS)]
        micros = (record.completed - record.sent) * 1e6
        title = escape(f"{record.kernel or record.name} {record.id}: {micros:.1f} µs"
                       + (", failed" if record.failed else ""))
        parts.append(f"<rect x='{at:.1f}' y='{streams.index(record.stream) * row + 4}' "
                     f"width='{long:.1f}' height='{row - 8}' fill='{colour}'>"
                     f"<title>{title}</title></rect>")
    height = len(streams) * row + 24
    parts.append(f"<text x='{left}' y='{height - 6}'>0</text>")
    parts.append(f"<text x='{width}' y='{height - 6}' text-anchor='end'>{span * 1e3:.3g} ms</text>")
    left_out = len(of) - len(records)
    note = f"<p>{left_out} more operations are not shown.</p>" if left_out else ""
    return (f"<svg viewBox='0 0 {width} {height}' style='max-width:100%;font:12px sans-serif' "
            f"fill='currentColor' role='img' aria-label='operations by stream'>"
            f"{''.join(parts)}</svg>{note}")
