"""How notebooks show devices, profiles, runs and failures."""

import json
from html import escape

_TABLE = "border-collapse:collapse;font-family:sans-serif;font-size:13px"
_CELL = "text-align:left;padding:2px 8px;border-bottom:1px solid #8884"
_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#72b7b2", "#9d755d")
# More are not seen on a screen.
_SHOWN = 2000


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


def _timeline(rows, bars, span, what):
    """Bars `(row, start, end, colour, title)` on named rows, `span` seconds wide."""
    width, row, left = 900, 24, 80
    parts = [f"<text x='4' y='{line * row + 16}'>{escape(name)}</text>"
             for line, name in enumerate(rows)]
    for line, start, end, colour, title in bars:
        at = left + start / span * (width - left)
        long = max((end - start) / span * (width - left), 1)
        parts.append(f"<rect x='{at:.1f}' y='{line * row + 4}' "
                     f"width='{long:.1f}' height='{row - 8}' fill='{colour}'>"
                     f"<title>{escape(title)}</title></rect>")
    height = len(rows) * row + 24
    parts.append(f"<text x='{left}' y='{height - 6}'>0</text>")
    parts.append(f"<text x='{width}' y='{height - 6}' text-anchor='end'>{span * 1e3:.3g} ms</text>")
    return (f"<svg viewBox='0 0 {width} {height}' style='max-width:100%;font:12px sans-serif' "
            f"fill='currentColor' role='img' aria-label='{what}'>{''.join(parts)}</svg>")


def _colour(names, name, failed):
    return "#e45756" if failed else _COLOURS[names.index(name) % len(_COLOURS)]


def _left_out(count, what):
    return f"<p>{count} more {what} are not shown.</p>" if count else ""


def profile(of):
    """A time line of the streams of a profile."""
    records = of.records[:_SHOWN]
    if not records:
        return "<p>Nothing was recorded.</p>"
    start = min(record.queued for record in records)
    span = max(max(record.completed for record in records) - start, 1e-9)
    streams = sorted({record.stream for record in records})
    names = sorted({record.kernel or record.name for record in records})
    bars = []
    for record in records:
        name, micros = record.kernel or record.name, (record.completed - record.sent) * 1e6
        bars.append((streams.index(record.stream), record.sent - start, record.completed - start,
                     _colour(names, name, record.failed),
                     f"{name} {record.id}: {micros:.1f} µs" + (", failed" if record.failed else "")))
    return (_timeline([f"stream {stream}" for stream in streams], bars, span, "operations by stream")
            + _left_out(len(of) - len(records), "operations"))


def run(of):
    """A time line of the workers of a run, below what became of it."""
    ended, tasks = of.progress
    if not of.done:
        return _rows([("state", "running"), ("tasks ended", f"{ended} of {tasks}")])
    document = json.loads(of.to_json())
    other = document["otherData"]
    incomplete = {task["task"]: task for task in other["incomplete"]}
    rows = [("place", of.place), ("time", f"{of.elapsed * 1e3:.3g} ms"), ("tasks", tasks)]
    if other["skipped"]:
        rows.append(("skipped", len(other["skipped"])))
    if incomplete:
        rows.append(("not complete", len(incomplete)))
    failed = [task for task in incomplete.values() if task["error"]]
    rows += [(task["name"] or f"task {task['task']}", task["error"]) for task in failed[:10]]
    spans = [event for event in document["traceEvents"] if event.get("cat") == "task"]
    shown = spans[:_SHOWN]
    if not shown:
        return _rows(rows) + "<p>The launch asked for no trace.</p>"
    span = max(max(event["ts"] + event["dur"] for event in shown) / 1e6, 1e-9)
    workers = sorted({event["tid"] for event in shown})
    names = sorted({event["args"]["function"] for event in shown})
    bars = [(workers.index(event["tid"]), event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6,
             _colour(names, event["args"]["function"], event["args"]["task"] in incomplete),
             f"{event['name']}: {event['dur']:.1f} µs") for event in shown]
    return (_rows(rows)
            + _timeline([f"worker {worker}" for worker in workers], bars, span, "tasks by worker")
            + _left_out(len(spans) - len(shown), "tasks"))
