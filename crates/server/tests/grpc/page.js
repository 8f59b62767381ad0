// Runs the script of the page with a document that has no window, and prints the text of its section "Cluster".
// Usage: node page.js PAGE STATUS
'use strict';
const { readFileSync } = require('fs');
const [page, status] = process.argv.slice(2).map(path => readFileSync(path, 'utf8'));
const drawing = new Proxy({}, { get: () => () => {}, set: () => true });

class Element {
  constructor(tag) { Object.assign(this, { tag, children: [], style: {}, dataset: {}, clientWidth: 300, own: '' }); }
  set textContent(text) { [this.own, this.children] = [text, []]; }
  get textContent() { return this.own + this.children.map(child => child.textContent ?? child).join(' '); }
  get firstChild() { return this.children[0]; }
  get lastChild() { return this.children.at(-1); }
  append(...children) { this.children.push(...children); }
  replaceChildren(...children) { this.children = children; }
  getContext() { return drawing; }
}

// The elements of the page that have an id, hidden where the page hides them.
const elements = new Map();
for (const [, tag, attributes] of page.matchAll(/<(\w+)((?: [\w-]+(?:="[^"]*")?)*)>/g)) {
  const id = / id="(\w+)"/.exec(attributes);
  if (!id) continue;
  elements.set(id[1], Object.assign(new Element(tag), { hidden: / hidden\b/.test(attributes) }));
}
const surroundings = {
  document: { getElementById: id => elements.get(id), createElement: tag => new Element(tag) },
  window: {}, getComputedStyle: () => ({ getPropertyValue: () => '' }), addEventListener: () => {},
  fetch: () => new Promise(() => {}),
};
const script = /<script[^>]*>([^]*)<\/script>/.exec(page)[1];
new Function(...Object.keys(surroundings), 'status', script + 'show(status);')(...Object.values(surroundings), JSON.parse(status));

const told = element => [element, ...element.children.flatMap(child => child.children ? told(child) : [])];
const cluster = elements.get('cluster');
if (cluster.hidden) console.log('hidden');
for (const element of cluster.hidden ? [] : told(cluster).filter(one => ['h2', 'p', 'tr', 'div'].includes(one.tag))) {
  console.log(element.tag + ': ' + element.textContent);
}
for (const element of told(cluster).filter(one => one.className === 'bad')) console.log('bad: ' + element.textContent);
