// Does with the page of tests/report.rs what a person does, and tells what became of it.
'use strict';
{
  const root = document.documentElement, view = document.getElementById('view');
  const drawn = () => Number(root.dataset.drawn);
  const told = [`asked:${root.dataset.view}:${root.dataset.matches}`];
  const key = (key, target = view, more = {}) =>
    target.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true, ...more }));
  const length = () => { const [a, b] = root.dataset.view.split(' ').map(Number); return b - a; };
  document.getElementById('fit').click();
  // As many as there are columns in all rows, not as many as there are spans.
  told.push(`drawn:${drawn() > 1000 && drawn() < 32 * 1400}`);
  const whole = length();
  key('+');
  told.push(`zoomed:${Math.round(whole / length())}`);
  key('0');
  told.push(`all:${length() === whole}`);
  key('/');
  const search = document.getElementById('search');
  told.push(`focus:${document.activeElement === search}`);
  search.value = 'COPY 5';
  search.dispatchEvent(new Event('input'));
  key('Enter', search); key('Enter', search);
  told.push(`found:${root.dataset.matches}`, `at:${document.getElementById('matches').textContent}`);
  told.push(`detail:${document.querySelector('#detail b').textContent}`, `near:${length() < whole / 100}`);
  key('Escape', search); key('0');
  told.push(`cleared:${root.dataset.matches}`);
  view.dispatchEvent(new WheelEvent('wheel', { deltaY: -80, ctrlKey: true, clientX: 700, clientY: 400, cancelable: true }));
  told.push(`wheel:${length() < whole}`);
  document.querySelector('#slowest .go').click();
  told.push(`selected:${Number(root.dataset.selected) >= 0}`);
  key('0');
  key('+');
  const start = () => Number(root.dataset.view.split(' ')[0]), before = start();
  const finger = (type, pointerId, clientX) =>
    view.dispatchEvent(new PointerEvent(type, { pointerId, pointerType: 'touch', clientX, clientY: 400, bubbles: true }));
  finger('pointerdown', 1, 700); finger('pointermove', 1, 600); finger('pointerup', 1, 600);
  told.push(`dragged:${start() > before}`);
  const wide = length();
  finger('pointerdown', 1, 600); finger('pointerdown', 2, 700); finger('pointermove', 2, 800);
  finger('pointerup', 1, 600); finger('pointerup', 2, 800);
  told.push(`pinched:${length() < wide}`);
  key('0');
  view.dispatchEvent(new MouseEvent('dblclick', { clientX: 700, clientY: 400, bubbles: true }));
  told.push(`fitted:${length() < whole}`);
  document.getElementById('theme').click();
  told.push(`theme:${root.dataset.theme}`);
  const canvas = document.getElementById('canvas');
  const pixels = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  told.push(`colourful:${new Set(pixels).size > 20}`);
  // Nothing has failed.
  const isRed = (pixel) => (pixel & 255) - Math.max(pixel >> 8 & 255, pixel >> 16 & 255) > 40;
  told.push(`red:${pixels.filter(isRed).length}`);
  const legend = [...document.querySelectorAll('#kernels .find')].map((kernel) => {
    const [red, green, blue] = getComputedStyle(kernel, '::before').backgroundColor.match(/\d+/g).map(Number);
    return (0xff << 24 | blue << 16 | green << 8 | red) >>> 0;
  });
  const isOwn = new Set(legend).size === legend.length && legend.every((colour) => pixels.includes(colour));
  told.push(`legend:${legend.length}:${isOwn}`);
  root.dataset.told = told.join(' ');
}
