// Draws the timeline and the memory, searches, zooms. The data is in the element #data; its format
// is made in page.rs. Spans have numbers, by their order in the data.
(() => {
'use strict';
const begun = performance.now();
const $ = (id) => document.getElementById(id);
const root = document.documentElement;
const data = JSON.parse($('data').textContent);
const END = Math.max(data.end, 1);
const ROW = 20, HEAD = 22, AXIS = 24;

// ---- rows ----

const rows = []; // group titles and lanes, from top to bottom
const lanes = [];
let count = 0;
for (const group of data.groups) {
  rows.push({ title: group.title });
  for (const lane of group.lanes) {
    const n = lane.start.length;
    const row = {
      label: lane.label, base: count, n,
      start: new Float64Array(n), end: new Float64Array(n),
      // The latest end so far: spans of the last lane of a track may overlap.
      reach: new Float64Array(n),
      name: Uint32Array.from(lane.name), kernel: Uint32Array.from(lane.kernel), number: lane.number,
      // Time of the spans before each.
      work: new Float64Array(n + 1),
      failed: new Set(lane.failed.map((id) => id - count)),
      bad: new Uint32Array(n + 1), hits: null,
      marks: new Float64Array(lane.marks.length), texts: lane.texts,
    };
    let at = 0, reach = 0;
    for (let i = 0; i < n; i++) {
      at += lane.start[i];
      row.start[i] = at;
      row.end[i] = at + lane.nanos[i];
      row.reach[i] = reach = Math.max(reach, row.end[i]);
      row.work[i + 1] = row.work[i] + lane.nanos[i];
      row.bad[i + 1] = row.bad[i] + (row.failed.has(i) ? 1 : 0);
    }
    at = 0;
    for (let i = 0; i < lane.marks.length; i++) row.marks[i] = at += lane.marks[i];
    count += n;
    rows.push(row);
    lanes.push(row);
  }
}
let height = 0;
for (const row of rows) {
  row.y = height;
  height += row.title ? HEAD : ROW;
}

// The lane and the place of a span.
function find(id) {
  let low = 0, high = lanes.length - 1;
  while (low < high) {
    const mid = (low + high + 1) >> 1;
    if (lanes[mid].base <= id) low = mid; else high = mid - 1;
  }
  while (low > 0 && lanes[low].n === 0) low--;
  return [lanes[low], id - lanes[low].base];
}

// The first place at which a rising array has at least `value`.
function from(array, value, low = 0) {
  let high = array.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (array[mid] < value) low = mid + 1; else high = mid;
  }
  return low;
}

const next = new Map(), before = new Map();
const link = (map, key, value) => { const list = map.get(key); if (list) list.push(value); else map.set(key, [value]); };
for (let i = 0; i < data.edges.length; i += 2) {
  link(next, data.edges[i], data.edges[i + 1]);
  link(before, data.edges[i + 1], data.edges[i]);
}

// ---- state ----

let t0 = 0, t1 = END;            // what is shown, in nanoseconds
let selected = -1, showPath = false;
let query = '', hitNames = null, hits = [], hitAt = -1;
let colors = null, names = [], width = 0, gutter = 0, drawn = 0, dirty = false;

// ---- text ----

function time(nanos) {
  const digits = (value) => value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0);
  for (const [unit, sign] of [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs']]) {
    if (nanos >= unit) return `${digits(nanos / unit)} ${sign}`;
  }
  return `${Math.round(nanos)} ns`;
}

function bytes(value) {
  for (const [unit, sign] of [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']]) {
    if (value >= unit) return `${(value / unit).toFixed(2).replace(/\.?0+$/, '')} ${sign}`;
  }
  return `${value} bytes`;
}

function element(name, text, kind) {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

// ---- colours ----

function theme() {
  const style = getComputedStyle(root);
  const value = (name) => style.getPropertyValue(`--${name}`).trim();
  colors = { text: value('text'), soft: value('soft'), card: value('card'), back: value('back'), line: value('line'), accent: value('accent'), bad: value('bad'), hit: value('hit'), bar: value('bar') };
  const chosen = root.dataset.theme;
  const dark = chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  names = data.names.map((_, index) => {
    // Without reds, which are for what has failed.
    const hue = 40 + (index * 0.618034 + 0.6) % 1 * 280;
    // The label is dark on light and light on dark.
    return dark ? `hsl(${hue} 38% 36%)` : `hsl(${hue} 62% 76%)`;
  });
  // The table of kernels says which is whose.
  for (const kernel of document.querySelectorAll('#kernels .find')) {
    kernel.style.setProperty('--own', names[data.names.indexOf(kernel.dataset.find)]);
  }
  later();
}

// ---- drawing ----

const view = $('view'), canvas = $('canvas'), overview = $('overview'), memory = $('memory-canvas');
const pen = canvas.getContext('2d');

function fit(target, w, h) {
  const ratio = window.devicePixelRatio || 1;
  const [pw, ph] = [Math.round(w * ratio), Math.round(h * ratio)];
  if (target.width !== pw || target.height !== ph) {
    target.width = pw;
    target.height = ph;
    target.style.height = `${h}px`;
  }
  const context = target.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

function later() {
  if (!dirty) {
    dirty = true;
    requestAnimationFrame(draw);
  }
}

function layout() {
  width = view.clientWidth;
  gutter = width < 520 ? 62 : 110;
  const most = Math.max(160, Math.min(window.innerHeight * 0.62, 640));
  view.style.height = `${Math.min(height + AXIS + 2, most)}px`;
  $('space').style.height = `${height + AXIS}px`;
  later();
}

const plot = () => Math.max(width - gutter, 10);
const toX = (t) => gutter + (t - t0) / (t1 - t0) * plot();
const toT = (x) => t0 + (x - gutter) / plot() * (t1 - t0);

// Steps of 1, 2 or 5 that leave room for labels.
function step(span, room) {
  const raw = span / Math.max(1, Math.floor(plot() / room));
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= raw);
}

function tick(value, unit) {
  const [scale, sign] = unit >= 1e9 ? [1e9, 's'] : unit >= 1e6 ? [1e6, 'ms'] : unit >= 1e3 ? [1e3, 'µs'] : [1, 'ns'];
  const digits = Math.max(0, Math.ceil(-Math.log10(unit / scale) - 1e-9));
  return `${(value / scale).toFixed(Math.min(digits, 6))} ${sign}`;
}

function axis(context, top, bottom) {
  const unit = step(t1 - t0, gutter < 100 ? 66 : 90);
  context.font = '11px system-ui, sans-serif';
  context.textBaseline = 'middle';
  for (let value = Math.ceil(t0 / unit) * unit; value <= t1; value += unit) {
    const x = Math.round(toX(value)) + 0.5;
    context.strokeStyle = colors.line;
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, bottom);
    context.stroke();
    const label = tick(value, unit);
    if (x + context.measureText(label).width + 4 < width) {
      context.fillStyle = colors.soft;
      context.fillText(label, x + 3, top + 10);
    }
  }
}

// One lane. Spans of less than a pixel that begin in the same column are drawn as one, so the
// work is bounded by the width, not by the number of spans.
function drawLane(lane, y) {
  const { start, end, reach, name, kernel, work, bad, hits: found } = lane;
  const scale = plot() / (t1 - t0);
  const h = ROW - 3;
  let i = from(reach, t0);
  while (i < lane.n && start[i] < t1) {
    const x = gutter + Math.max(start[i] - t0, 0) * scale;
    const w = gutter + Math.min(end[i] - t0, t1 - t0) * scale - x;
    let j = i + 1;
    if (w < 1.5) {
      const column = Math.floor(x) + 1;
      j = Math.max(j, from(start, t0 + (column - gutter) / scale, i));
      // Only the last one can be long, if none overlap.
      if (j - 1 > i && (end[j - 1] - t0) * scale + gutter > column + 0.5) j--;
    }
    const isHit = !found || found[j] > found[i];
    pen.globalAlpha = isHit ? 1 : 0.25;
    const px = w < 1.5 ? Math.floor(x) : x;
    const pw = w < 1.5 ? 1 : Math.max(w - 0.5, 1);
    if (w < 1.5) {
      // As high as the column is busy, in the colour of the longest.
      let longest = i;
      for (let k = i + 1; k < Math.min(j, i + 24); k++) if (end[k] - start[k] > end[longest] - start[longest]) longest = k;
      const part = Math.min(1, Math.max(0.35, (work[j] - work[i]) * scale));
      pen.fillStyle = names[kernel[longest]];
      pen.fillRect(px, y + h * (1 - part), pw, h * part);
    } else {
      pen.fillStyle = names[kernel[i]];
      pen.fillRect(px, y, pw, h);
    }
    drawn++;
    if (found && isHit) {
      pen.fillStyle = colors.hit;
      pen.fillRect(px, y + h - 3, pw, 3);
    }
    if (bad[j] > bad[i]) {
      pen.fillStyle = colors.bad;
      pen.fillRect(px, y, Math.max(pw, 2), 4);
    }
    if (w > 26) {
      pen.fillStyle = colors.text;
      const text = data.names[name[i]];
      const room = Math.floor((w - 6) / 6.2);
      if (room > 1) pen.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, px + 3, y + h / 2 + 1);
    }
    i = j;
  }
  pen.globalAlpha = 1;
  pen.fillStyle = colors.accent;
  for (let m = from(lane.marks, t0); m < lane.marks.length && lane.marks[m] <= t1;) {
    const x = toX(lane.marks[m]);
    pen.beginPath();
    pen.moveTo(x, y + 2);
    pen.lineTo(x + 4, y + h / 2);
    pen.lineTo(x, y + h - 2);
    pen.lineTo(x - 4, y + h / 2);
    pen.fill();
    drawn++;
    m = Math.max(m + 1, from(lane.marks, toT(x + 1), m));
  }
}

function box(id, top) {
  const [lane, i] = find(id);
  return { x0: toX(lane.start[i]), x1: toX(lane.end[i]), y: lane.y + AXIS - top, lane, i };
}

function arrow(a, b, top, color) {
  const p = box(a, top), q = box(b, top);
  const [x0, y0, x1, y1] = [p.x1, p.y + ROW / 2 - 1, q.x0, q.y + ROW / 2 - 1];
  const bend = Math.max(12, Math.abs(x1 - x0) / 2);
  pen.strokeStyle = color;
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
  pen.stroke();
  pen.fillStyle = color;
  pen.beginPath();
  pen.arc(x1, y1, 2.5, 0, 7);
  pen.fill();
}

function outline(id, top, color) {
  const { x0, x1, y } = box(id, top);
  pen.strokeStyle = color;
  pen.strokeRect(x0 - 1, y - 0.5, Math.max(x1 - x0, 2) + 1, ROW - 2);
}

function draw() {
  dirty = false;
  drawn = 0;
  const h = view.clientHeight, top = view.scrollTop;
  canvas.style.top = `${top}px`;
  fit(canvas, width, h);
  pen.fillStyle = colors.card;
  pen.fillRect(0, 0, width, h);
  axis(pen, 0, h);
  pen.save();
  pen.beginPath();
  pen.rect(0, AXIS, width, h - AXIS);
  pen.clip();
  pen.textBaseline = 'middle';
  for (const row of rows) {
    const y = row.y + AXIS - top;
    if (y > h || y + HEAD < AXIS) continue;
    if (row.title) {
      pen.fillStyle = colors.back;
      pen.fillRect(0, y, width, HEAD - 3);
      pen.fillStyle = colors.soft;
      pen.font = '600 11px system-ui, sans-serif';
      pen.fillText(row.title, 6, y + HEAD / 2 - 1);
    } else {
      pen.font = '11px system-ui, sans-serif';
      pen.save();
      pen.beginPath();
      pen.rect(gutter, y, width - gutter, ROW);
      pen.clip();
      drawLane(row, y);
      pen.restore();
      if (row.label) {
        pen.fillStyle = colors.text;
        pen.fillText(row.label, 6, y + ROW / 2 - 1);
      }
    }
  }
  pen.beginPath();
  pen.rect(gutter, AXIS, width - gutter, h - AXIS);
  pen.clip();
  pen.lineWidth = 1.5;
  if (showPath) {
    for (let i = 0; i < data.path.length; i++) {
      outline(data.path[i], top, colors.bad);
      if (i) arrow(data.path[i - 1], data.path[i], top, colors.bad);
    }
  }
  if (selected >= 0) {
    // A task with thousands of neighbours would only be a knot.
    for (const other of (before.get(selected) || []).slice(0, 200)) arrow(other, selected, top, colors.accent);
    for (const other of (next.get(selected) || []).slice(0, 200)) arrow(selected, other, top, colors.accent);
    pen.lineWidth = 2;
    outline(selected, top, colors.text);
  }
  pen.restore();
  drawOverview();
  drawMemory();
  root.dataset.drawn = drawn;
  root.dataset.view = `${Math.round(t0)} ${Math.round(t1)}`;
  if (!root.dataset.ready) root.dataset.ready = Math.round(performance.now() - begun);
}

// How busy the lanes are, by columns of the whole time; made once for each width.
let busy = null;
function load(w) {
  if (busy && busy.length === w) return busy;
  busy = new Float32Array(w);
  const scale = w / END;
  for (const lane of lanes) {
    for (let i = 0; i < lane.n; i++) {
      const a = lane.start[i] * scale, b = Math.max(lane.end[i] * scale, a + 0.02);
      for (let x = Math.floor(a); x < Math.min(b, w); x++) busy[x] += Math.min(b, x + 1) - Math.max(a, x);
    }
  }
  return busy;
}

function drawOverview() {
  const w = overview.clientWidth, h = 28;
  if (!w) return;
  const context = fit(overview, w, h);
  context.clearRect(0, 0, w, h);
  const columns = load(w);
  const most = columns.reduce((a, b) => Math.max(a, b), 0.001);
  context.fillStyle = colors.soft;
  context.globalAlpha = 0.6;
  for (let x = 0; x < w; x++) {
    const bar = columns[x] / most * (h - 4);
    if (bar > 0) context.fillRect(x, h - Math.max(bar, 1), 1, Math.max(bar, 1));
  }
  context.globalAlpha = 1;
  context.fillStyle = colors.hit;
  for (let k = 0, last = -1; k < hits.length; k++) {
    const [lane, i] = find(hits[k]);
    const x = Math.floor(lane.start[i] / END * w);
    if (x !== last) context.fillRect(last = x, 0, 1, 4);
  }
  const [a, b] = [t0 / END * w, t1 / END * w];
  context.fillStyle = colors.back;
  context.globalAlpha = 0.7;
  context.fillRect(0, 0, a, h);
  context.fillRect(b, 0, w - b, h);
  context.globalAlpha = 1;
  context.strokeStyle = colors.accent;
  context.strokeRect(a + 0.5, 0.5, Math.max(b - a - 1, 2), h - 1);
}

const samples = { at: new Float64Array(data.memory[0].length), used: data.memory[1] };
for (let i = 0, at = 0; i < samples.at.length; i++) samples.at[i] = at += data.memory[0][i];

function drawMemory() {
  if (!memory) return;
  const h = 120, bottom = h - 4, top = 26;
  const context = fit(memory, memory.clientWidth, h);
  context.clearRect(0, 0, width, h);
  axis(context, 0, h);
  const most = samples.used.reduce((a, b) => Math.max(a, b), 1);
  const y = (used) => bottom - used / most * (bottom - top);
  context.save();
  context.beginPath();
  context.rect(gutter, 0, width - gutter, h);
  context.clip();
  context.beginPath();
  let i = Math.max(from(samples.at, t0) - 1, 0), used = 0;
  context.moveTo(toX(Math.max(samples.at[i], t0)), bottom);
  for (; i < samples.at.length && samples.at[i] <= t1; i++) {
    const x = toX(Math.max(samples.at[i], t0));
    context.lineTo(x, y(used));
    used = samples.used[i];
    context.lineTo(x, y(used));
  }
  context.lineTo(toX(t1), y(used));
  context.lineTo(toX(t1), bottom);
  context.fillStyle = colors.bar;
  context.globalAlpha = 0.8;
  context.fill();
  context.globalAlpha = 1;
  context.strokeStyle = colors.accent;
  context.lineWidth = 1.5;
  context.stroke();
  context.restore();
  context.fillStyle = colors.text;
  context.fillText(bytes(most), 6, top);
  context.fillText('0', 6, bottom - 6);
}

// ---- moving ----

// Nanoseconds are what the data has; less than that shows nothing more.
function show(a, b) {
  const length = Math.min(Math.max(b - a, Math.min(20, END)), END);
  t0 = Math.min(Math.max((a + b - length) / 2, 0), END - length);
  t1 = t0 + length;
  later();
}

function zoom(factor, x = gutter + plot() / 2) {
  const at = Math.min(Math.max(toT(x), t0), t1);
  show(at - (at - t0) * factor, at + (t1 - at) * factor);
}

const move = (part) => { const by = (t1 - t0) * part; show(Math.max(t0 + by, 0), Math.max(t0 + by, 0) + (t1 - t0)); };

function reveal(id, close) {
  const [lane, i] = find(id);
  const [a, b] = [lane.start[i], lane.end[i]];
  const room = Math.max((b - a) * 4, 40);
  const isOff = b < t0 || a > t1;
  if (close) show((a + b) / 2 - room / 2, (a + b) / 2 + room / 2);
  else if (b - a < (t1 - t0) / 200) show((a + b) / 2 - Math.max(room * 4, 40), (a + b) / 2 + Math.max(room * 4, 40));
  else if (isOff) show((a + b - (t1 - t0)) / 2, (a + b + (t1 - t0)) / 2);
  const y = lane.y;
  if (y < view.scrollTop || y + AXIS + ROW > view.scrollTop + view.clientHeight) view.scrollTop = y - view.clientHeight / 3;
  select(id);
}

function describe(lane, i, target, long) {
  target.replaceChildren(element('b', data.names[lane.name[i]]));
  const parts = [` · ${time(lane.end[i] - lane.start[i])}`];
  if (lane.number[i] !== null) parts.push(`number ${lane.number[i]}`);
  if (long) {
    const id = lane.base + i;
    parts.push(`from ${time(lane.start[i])} to ${time(lane.end[i])}`);
    const owner = lanes.slice(0, lanes.indexOf(lane) + 1).reverse().find((other) => other.label);
    if (owner) parts.push(owner.label);
    if (before.has(id)) parts.push(`depends on ${before.get(id).length}`);
    if (next.has(id)) parts.push(`needed by ${next.get(id).length}`);
  }
  target.append(parts.join(' · '));
  if (lane.failed.has(i)) target.append(' · ', element('b', 'failed', 'flag'));
}

function select(id) {
  selected = id;
  root.dataset.selected = id;
  if (id >= 0) {
    const [lane, i] = find(id);
    describe(lane, i, $('detail'), true);
  }
  later();
}

// What is under a point: a span, a mark or nothing.
function under(x, y) {
  const inside = y + view.scrollTop - AXIS;
  if (x < gutter || y < AXIS) return null;
  const row = rows.find((other) => inside >= other.y && inside < other.y + (other.title ? HEAD : ROW));
  if (!row || row.title) return null;
  const at = toT(x), slack = 2 * (t1 - t0) / plot();
  const mark = from(row.marks, at - 2 * slack);
  if (mark < row.marks.length && row.marks[mark] <= at + 2 * slack) return { row, mark };
  let best = -1;
  for (let i = from(row.reach, at - slack); i < row.n && row.start[i] <= at + slack; i++) {
    if (row.end[i] >= at - slack) best = i;
    if (i - from(row.reach, at - slack) > 500) break;
    if (row.start[i] <= at && row.end[i] >= at) { best = i; break; }
  }
  return best < 0 ? null : { row, i: best };
}

// ---- search ----

function search(text) {
  query = text.trim().toLowerCase();
  hits = [];
  hitAt = -1;
  for (const lane of lanes) lane.hits = null;
  if (query) {
    hitNames = data.names.map((name) => name.toLowerCase().includes(query));
    for (const lane of lanes) {
      lane.hits = new Uint32Array(lane.n + 1);
      for (let i = 0; i < lane.n; i++) {
        const isHit = hitNames[lane.name[i]];
        lane.hits[i + 1] = lane.hits[i] + (isHit ? 1 : 0);
        if (isHit) hits.push(lane.base + i);
      }
    }
    const start = (id) => { const [lane, i] = find(id); return lane.start[i]; };
    const keys = new Map(hits.map((id) => [id, start(id)]));
    hits.sort((a, b) => keys.get(a) - keys.get(b));
  }
  root.dataset.matches = hits.length;
  tell();
  later();
}

function tell() {
  const total = hits.length.toLocaleString('en');
  $('matches').textContent = !query ? '' : !hits.length ? 'no match' : hitAt < 0 ? `${total} matches` : `${hitAt + 1} of ${total}`;
}

function go(by) {
  if (!hits.length) return;
  hitAt = hitAt < 0 && by < 0 ? hits.length - 1 : (hitAt + by + hits.length) % hits.length;
  tell();
  reveal(hits[hitAt], false);
}

$('search').addEventListener('input', (event) => search(event.target.value));
$('search').addEventListener('keydown', (event) => {
  if (event.key === 'Enter') go(event.shiftKey ? -1 : 1);
  else if (event.key === 'Escape') { event.target.value = ''; search(''); view.focus(); }
  else return;
  event.preventDefault();
});
$('next').addEventListener('click', () => go(1));
$('previous').addEventListener('click', () => go(-1));
$('in').addEventListener('click', () => zoom(0.5));
$('out').addEventListener('click', () => zoom(2));
$('fit').addEventListener('click', () => show(0, END));

// ---- keys ----

const keys = {
  ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), a: () => move(-0.2), d: () => move(0.2),
  '+': () => zoom(0.5), '=': () => zoom(0.5), w: () => zoom(0.5), '-': () => zoom(2), s: () => zoom(2),
  0: () => show(0, END), Home: () => show(0, END),
  '/': () => { $('search').focus(); $('search').select(); },
  n: () => go(1), N: () => go(-1), Enter: () => selected >= 0 && reveal(selected, true),
  Escape: () => { showPath = false; select(-1); },
};
document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|BUTTON)$/.test(event.target.tagName)) return;
  // Elsewhere on the page the arrows are the page's.
  const isOwn = event.target === view || !/^(Arrow|Home|Enter)/.test(event.key);
  if (Object.hasOwn(keys, event.key) && isOwn) {
    keys[event.key]();
    event.preventDefault();
  }
});

// ---- mouse and fingers ----

const tip = document.body.appendChild(element('div', ''));
tip.id = 'tip';
tip.hidden = true;
const pointers = new Map();
let travelled = 0;

const place = (event) => { const at = view.getBoundingClientRect(); return [event.clientX - at.left, event.clientY - at.top]; };

view.addEventListener('pointerdown', (event) => {
  pointers.set(event.pointerId, place(event));
  travelled = 0;
  if (event.pointerType === 'mouse') view.setPointerCapture(event.pointerId);
});
view.addEventListener('pointermove', (event) => {
  const [x, y] = place(event);
  const old = pointers.get(event.pointerId);
  if (old) {
    const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
    const middle = (t1 - t0) / plot();
    if (others.length === 1) {
      const [was, is] = [Math.abs(old[0] - others[0][0]), Math.abs(x - others[0][0])];
      if (was > 8 && is > 8) zoom(was / is, (x + others[0][0]) / 2);
    } else if (!others.length) {
      const by = (old[0] - x) * middle;
      const a = Math.min(Math.max(t0 + by, 0), END - (t1 - t0));
      show(a, a + (t1 - t0));
      if (event.pointerType === 'mouse') view.scrollTop += old[1] - y;
    }
    travelled += Math.abs(old[0] - x) + Math.abs(old[1] - y);
    view.classList.toggle('drag', travelled > 3);
    pointers.set(event.pointerId, [x, y]);
    tip.hidden = true;
    return;
  }
  const what = under(x, y);
  tip.hidden = !what;
  if (!what) return;
  if (what.mark === undefined) describe(what.row, what.i, tip, false);
  else tip.textContent = `${time(what.row.marks[what.mark])}: ${data.names[what.row.texts[what.mark]]}`;
  tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 16, window.innerHeight - tip.offsetHeight - 8)}px`;
});
const release = (event) => {
  const wasClick = pointers.delete(event.pointerId) && travelled < 4 && event.type === 'pointerup';
  view.classList.remove('drag');
  if (!wasClick) return;
  const [x, y] = place(event);
  const what = under(x, y);
  if (what && what.mark !== undefined) $('detail').textContent = `${time(what.row.marks[what.mark])}: ${data.names[what.row.texts[what.mark]]}`;
  else select(what ? what.row.base + what.i : -1);
};
view.addEventListener('pointerup', release);
view.addEventListener('pointercancel', release);
view.addEventListener('pointerleave', () => { tip.hidden = true; });
view.addEventListener('dblclick', (event) => {
  const what = under(...place(event));
  if (what && what.mark === undefined) reveal(what.row.base + what.i, true);
  else zoom(0.5, place(event)[0]);
});
view.addEventListener('wheel', (event) => {
  const [x] = place(event);
  if (event.ctrlKey || event.metaKey || event.altKey) zoom(Math.exp(Math.max(-80, Math.min(80, event.deltaY)) / 160), x);
  else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) move((event.deltaX || event.deltaY) / plot());
  else return;
  event.preventDefault();
}, { passive: false });
view.addEventListener('scroll', later);

let dragged = false;
const centre = (event) => {
  const at = overview.getBoundingClientRect();
  const middle = (event.clientX - at.left) / at.width * END, half = (t1 - t0) / 2;
  show(middle - half, middle + half);
};
overview.addEventListener('pointerdown', (event) => { dragged = true; overview.setPointerCapture(event.pointerId); centre(event); });
overview.addEventListener('pointermove', (event) => dragged && centre(event));
overview.addEventListener('pointerup', () => { dragged = false; });

// ---- links from the tables ----

document.addEventListener('click', (event) => {
  const button = event.target.closest('button');
  if (!button) return;
  if (button.dataset.span !== undefined) reveal(Number(button.dataset.span), false);
  else if (button.dataset.find !== undefined) { $('search').value = button.dataset.find; search(button.dataset.find); }
  else if (button.id === 'show-path') { showPath = !showPath; button.textContent = showPath ? 'Hide on the timeline' : 'Show on the timeline'; later(); }
  else if (button.id === 'theme') {
    const isDark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = isDark ? 'light' : 'dark';
    theme();
    return;
  } else return;
  $('timeline').scrollIntoView({ behavior: 'smooth', block: 'nearest' });
});

// ---- start ----

// What the address asks for: #q=name&from=ns&to=ns&theme=dark&path
const asked = new URLSearchParams(location.hash.slice(1));
if (asked.get('theme')) root.dataset.theme = asked.get('theme') === 'dark' ? 'dark' : 'light';
showPath = asked.has('path');
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', theme);
window.addEventListener('resize', layout);
theme();
layout();
if (asked.get('q')) { $('search').value = asked.get('q'); search(asked.get('q')); }
if (asked.get('from') && asked.get('to')) show(Number(asked.get('from')), Number(asked.get('to')));
root.dataset.spans = count;
draw();
})();
