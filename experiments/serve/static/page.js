'use strict';
// The page of experiments.serve. Texts of documents and models go into text nodes
// alone, never into HTML.

const MOST_NATS = 0.5; // at which a color is full; Borgeaud et al. 2022, appendix E
const LEAST_COPIED = 3; // tokens of a run that is told as copied

const $ = (selector, root = document) => root.querySelector(selector);

/** An element with properties and children; strings become text nodes. */
function el(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.flat());
  return made;
}

function tell(text, bad = false) {
  $('#status').textContent = text;
  $('#status').classList.toggle('bad', bad);
}

const plain = (x) => x.toFixed(2).replace('-', '−');
const signed = (x) => (x < 0 ? '−' : '+') + Math.abs(x).toFixed(2);

// Requests.

async function post(path, body, signal) {
  const response = await fetch(path, {
    method: 'POST',
    headers: {'content-type': 'application/json'},
    body: JSON.stringify(body),
    signal,
  });
  if (response.ok) return response;
  const found = await response.json().catch(() => ({}));
  throw new Error(found.error?.message ?? `${path}: status ${response.status}`);
}

const postJson = async (path, body) => (await post(path, body)).json();

/** Run an action with its buttons off and its time told; errors are told, too. */
async function busy(what, buttons, action) {
  const start = Date.now();
  const show = () => tell(`${what} … ${Math.round((Date.now() - start) / 1000)} s`);
  const clock = setInterval(show, 1000);
  show();
  for (const button of buttons) button.disabled = true;
  try {
    await action();
    tell(`${what}: done in ${((Date.now() - start) / 1000).toFixed(1)} s`);
  } catch (error) {
    const stopped = error.name === 'AbortError';
    tell(stopped ? 'Stopped.' : error.message, !stopped);
  } finally {
    clearInterval(clock);
    for (const button of buttons) button.disabled = false;
  }
}

/** Call `action(fields)` when a form is sent. */
function onSubmit(form, what, action) {
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const fields = Object.fromEntries(new FormData(form));
    busy(what, form.querySelectorAll('button:not(.stop)'), () => action(fields));
  });
  for (const area of form.querySelectorAll('textarea')) {
    area.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
  }
}

// Tabs.

const tabs = [...document.querySelectorAll('[role=tab]')];

function choose(tab, focus = false) {
  for (const one of tabs) {
    const chosen = one === tab;
    one.setAttribute('aria-selected', chosen);
    one.tabIndex = chosen ? 0 : -1;
    document.getElementById(one.getAttribute('aria-controls')).hidden = !chosen;
  }
  if (focus) tab.focus();
  history.replaceState(null, '', `#${tab.getAttribute('aria-controls')}`);
}

for (const [i, tab] of tabs.entries()) {
  tab.addEventListener('click', () => { tell(''); choose(tab); });
  tab.addEventListener('keydown', (event) => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (step) choose(tabs[(i + step + tabs.length) % tabs.length], true);
  });
}

// Ask.

let asked = null; // the last question and its answer

function marked(text, [start, end]) {
  return el('p', {}, text.slice(0, start), el('mark', {}, text.slice(start, end)), text.slice(end));
}

function deleteButton(document) {
  const button = el('button', {type: 'button', className: 'small'}, 'Delete this document');
  button.addEventListener('click', () =>
    busy('Deleting', [button], () => change({delete: [document]}, `deleted: ${document}`)));
  return button;
}

function showAnswer(found, before) {
  const rows = found.runner_ups;
  const silent = !('answer' in found);
  const parts = [
    el('p', {className: 'answer'}, silent ? 'No answer in these documents' : found.answer)];
  if (before !== null) {
    const same = before === found.prediction;
    parts.push(el('p', {className: 'soft before'},
      same ? 'The same as before the change.' : `Before the change: ${before || 'no answer'}`));
  }
  if (!silent) {
    const share = `${(100 * found.share).toFixed(0)} % of the best answers' likelihood`;
    const right = found.probability === null ? ''
      : `. About ${Math.min(Math.max(Math.round(100 * found.probability), 1), 99)} of 100 such`
        + ' answers were right on the calibration questions';
    parts.push(el('p', {className: 'soft'}, `${share}${right}.`));
    const title = el('span', {}, `Source: ${found.title || found.document}`);
    parts.push(el('div', {className: 'card source'},
      el('h3', {}, title, deleteButton(found.document)), marked(found.text, found.span)));
  }
  if (rows.length) {
    const head = ['other answers', 'share', 'source'].map((x, i) =>
      el('th', {className: i === 1 ? 'number' : ''}, x));
    const body = rows.map((x) => el('tr', {}, el('td', {}, x.answer),
      el('td', {className: 'number'}, x.share.toFixed(3)), el('td', {}, x.title || x.document)));
    parts.push(el('div', {className: 'scroll'}, el('table', {}, el('tr', {}, head), body)));
  }
  $('#ask .result').replaceChildren(...parts);
}

async function ask(question, before = null) {
  const found = await postJson('/ask', {question});
  asked = {question, prediction: found.prediction};
  showAnswer(found, before);
}

onSubmit($('#ask form'), 'Answering', ({question}) => ask(question));

// Write.

let writing = null; // AbortController of the request

/** Yield the objects of a stream of server-sent events. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    text += value;
    const parts = text.split('\n\n');
    text = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, '');
      if (data === '[DONE]') return;
      const found = JSON.parse(data);
      if (found.error) throw new Error(found.error.message);
      yield found;
    }
  }
}

function gainColor(gain) {
  const strength = Math.min(Math.abs(gain) / MOST_NATS, 1) * 0.6;
  return `rgba(var(${gain > 0 ? '--good' : '--ill'}), ${strength.toFixed(2)})`;
}

/** Where a token's run of repeated tokens stands: neighbor, first and past-last piece. */
function copiedFrom(page, number, i) {
  const run = page.repeated[i];
  const neighbors = number > 0 ? page.chunks[number - 1].neighbors : [];
  if (run < LEAST_COPIED) return null;
  const wanted = page.pieces.slice(i + 1 - run, i + 1);
  for (const [n, {pieces}] of neighbors.entries()) {
    for (let end = run; end <= pieces.length; end++) {
      if (wanted.every((x, j) => x === pieces[end - run + j])) return {n, start: end - run, end};
    }
  }
  return null;
}

function neighborText(box, pieces, [start, end], className) {
  const text = (from, to) => pieces.slice(from, to).join('');
  box.replaceChildren(text(0, start), el('mark', {className}, text(start, end)), text(end));
}

function showNeighbor(neighbor, explained, isRead) {
  const worth = explained && isRead ? ` · worth ${signed(neighbor.gain)} nats` : '';
  const text = el('p', {});
  neighborText(text, neighbor.pieces, neighbor.shared, '');
  const box = el('details', {},
    el('summary', {}, el('b', {}, neighbor.title || 'untitled'),
      ` · ${neighbor.unit} ${neighbor.score.toFixed(2)}${worth}`), text);
  return {box, text, neighbor, wasOpen: false};
}

function showPage(page) {
  const told = el('p', {id: 'told', role: 'status'},
    'Point at a token, or move through the text with the arrow keys, to see where it comes from.');
  const shown = page.chunks.map((chunk, c) =>
    chunk.neighbors.map((x) => showNeighbor(x, page.explained, c + 1 < page.chunks.length)));
  const tokens = [];
  let open = null; // the neighbor that shows a copied run
  let now = -1;

  function restore() {
    if (!open) return;
    neighborText(open.text, open.neighbor.pieces, open.neighbor.shared, '');
    open.box.open = open.wasOpen;
    open = null;
  }

  function look(i) {
    if (now >= 0) tokens[now].node.classList.remove('now');
    restore();
    now = i;
    const {node, number} = tokens[i];
    node.classList.add('now');
    const gain = page.off[i] - page.on[i];
    const nats = i === 0 ? 'the beginning' : `${signed(gain)} nats by its neighbors ` +
      `(log-probability ${plain(-page.on[i])}, without them ${plain(-page.off[i])})`;
    const found = copiedFrom(page, number, i);
    let source = '';
    if (found) {
      open = shown[number - 1][found.n];
      open.wasOpen = open.box.open;
      open.box.open = true;
      neighborText(open.text, open.neighbor.pieces, [found.start, found.end], 'copied');
      const run = open.neighbor.pieces.slice(found.start, found.end).join('');
      source = `; “${run.trim()}” stands in ${open.neighbor.title || 'a neighbor'} too`;
    }
    told.textContent = `“${page.pieces[i].trim() || '␣'}”: ${nats}${source}`;
  }

  const chunks = page.chunks.map((chunk, c) => {
    const box = el('div', {className: 'tokens', tabIndex: 0, ariaLabel: `Chunk ${c + 1}`});
    for (let i = chunk.start; i < chunk.stop; i++) {
      const given = i < page.prompt_tokens ? ' given' : '';
      const node = el('span', {className: `token${given}`}, page.pieces[i]);
      if (i) node.style.setProperty('--gain', gainColor(page.off[i] - page.on[i]));
      node.addEventListener('pointerenter', () => look(i));
      tokens.push({node, number: c});
      box.append(node);
    }
    box.addEventListener('focus', () => {
      if (now < chunk.start || now >= chunk.stop) look(chunk.start);
    });
    box.addEventListener('keydown', (event) => {
      const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
      if (!step) return;
      event.preventDefault();
      const next = now + step;
      if (next >= chunk.start && next < chunk.stop) look(next);
    });
    const none = c + 1 < page.chunks.length ? 'nothing' : 'nothing: the chunk is not complete';
    const neighbors = shown[c].map((x) => x.box);
    return el('div', {className: 'chunk'},
      el('div', {}, el('h3', {}, `chunk ${c + 1} · neighbors save ${signed(chunk.gain)} nats`), box),
      el('div', {className: 'found'}, el('h3', {}, 'found for the next chunk'),
        neighbors.length ? neighbors : el('p', {className: 'none'}, none)));
  });
  const legend = el('p', {className: 'soft legend'}, 'Neighbors made a token');
  for (const [gain, text] of [[MOST_NATS, 'likelier'], [-MOST_NATS, 'less likely']]) {
    const sample = el('i', {}, text);
    sample.style.background = gainColor(gain);
    legend.append(sample);
  }
  legend.append(`(full color at ${MOST_NATS} nats). The prompt is bold.`);
  $('#write .result').replaceChildren(legend, ...chunks, told);
}

onSubmit($('#write form'), 'Writing', async (fields) => {
  const body = {prompt: fields.prompt, stream: true, explain: true, top_p: 0.95};
  for (const name of ['max_tokens', 'temperature', 'num_neighbors', 'seed']) {
    body[name] = Number(fields[name]);
  }
  const draft = el('p', {className: 'draft'}, el('b', {}, fields.prompt));
  $('#write .result').replaceChildren(draft);
  writing = new AbortController();
  $('#write .stop').hidden = false;
  try {
    const response = await post('/v1/completions', body, writing.signal);
    for await (const {choices: [choice]} of events(response)) {
      draft.append(choice.text);
      if (choice.page) showPage(choice.page);
    }
  } finally {
    $('#write .stop').hidden = true;
  }
});
$('#write .stop').addEventListener('click', () => writing?.abort());
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') writing?.abort();
});

// Explain.

function showExplained(found) {
  const parts = found.predictions.map((words, i) => {
    const list = words.map(([word, share]) => el('li', {}, `${word} `,
      el('meter', {value: share}), ` ${(100 * share).toFixed(1)} %`));
    return [el('h2', {}, `Mask ${i + 1}`), el('ul', {className: 'words'}, list)];
  });
  const gain = found.log_prob - found.null_log_prob;
  parts.push(el('p', {},
    `The documents make “${found.answer}” ${gain < 0 ? 'less likely' : 'likelier'} by ` +
    `${signed(gain)} nats (log-probability ${plain(found.log_prob)}).`));
  const names = ['document', 'p(z | x)', 'p(z | x, y)', 'utility', 'without it', 'alone'];
  const head = names.map((x, i) =>
    el('th', {className: i > 0 && i < 5 ? 'number' : ''}, x));
  const body = found.documents.map((x) => el('tr', {},
    el('td', {className: 'wide'}, el('details', {},
      el('summary', {}, x.title || 'untitled'), el('p', {}, x.text || 'no document'))),
    [x.prior.toFixed(3), x.posterior.toFixed(3), signed(x.utility),
      signed(x.without - found.log_prob)].map((y) => el('td', {className: 'number'}, y)),
    el('td', {}, x.word)));
  parts.push(el('div', {className: 'scroll'}, el('table', {}, el('tr', {}, head), body)));
  $('#explain .result').replaceChildren(...parts.flat());
}

onSubmit($('#explain form'), 'Explaining', async ({text, answer}) => {
  if (!text.includes('[MASK]')) throw new Error('Write [MASK] where a word is missing.');
  showExplained(await postJson('/explain', {text, answer}));
});

// Documents.

async function change(body, text) {
  const {ids} = await postJson('/documents', body);
  $('.changes .none')?.remove();
  $('.changes').append(el('li', {}, ids.length ? `${text} (id ${ids[0]})` : text));
  for (const card of document.querySelectorAll('#documents .card')) {
    if (body.delete?.includes(card.dataset.document)) card.remove();
  }
  if (asked) {
    await ask(asked.question, asked.prediction);
    choose($('#tab-ask'));
  }
}

onSubmit($('#documents .add'), 'Adding', async ({title, text}) => {
  await change({add: [{title, text}]}, `added: ${title || text.slice(0, 60)}`);
  $('#documents .add').reset();
});

onSubmit($('#documents .find'), 'Searching', async ({query}) => {
  const {passages} = await postJson('/search', {query, k: 8});
  const cards = passages.map((x) => {
    const card = el('div', {className: 'card'},
      el('h3', {}, el('span', {}, x.title || x.document), deleteButton(x.document)),
      el('p', {}, x.text));
    card.dataset.document = x.document;
    return card;
  });
  $('#documents .result').replaceChildren(
    ...(cards.length ? cards : [el('p', {className: 'none'}, 'nothing found')]));
});

// Begin with what is served.

(async () => {
  const {models} = await (await fetch('/healthz')).json();
  const needed = {ask: 'reader', write: 'retro', explain: 'realm'};
  for (const tab of tabs) {
    const part = needed[tab.getAttribute('aria-controls')];
    tab.hidden = part !== undefined && !models.includes(part);
  }
  const wanted = tabs.find((x) => `#${x.getAttribute('aria-controls')}` === location.hash);
  choose(wanted && !wanted.hidden ? wanted : tabs.find((x) => !x.hidden));
})().catch((error) => tell(error.message, true));
