// The page's behaviour: choose a picture, send it, draw what comes back.
// /?sample=scene-3&model=detr&mode=eager chooses and runs by itself.
"use strict";

const $ = (id) => document.getElementById(id);
const canvas = $("canvas");
const limits = { bytes: 0, pixels: 0 };
let samples = [];
let chosen = null;  // { name, blob }
let shown = null;   // { image, answer }

const radio = (name) => document.querySelector(`input[name=${name}]:checked`).value;

function element(tag, attributes = {}, ...children) {
  const made = Object.assign(document.createElement(tag), attributes);
  made.append(...children);
  return made;
}

function say(text) {
  $("status").textContent = text;
}

function complain(text) {
  $("error").textContent = text;
  $("error").hidden = text === "";
}

/// {what, got, need} as a sentence or two.
function sentence({ what, got, need }) {
  const start = what[0].toUpperCase() + what.slice(1);
  return `${start} (${got}). Needed: ${need}.`;
}

// ---- Choosing a picture

function forget() {
  shown = null;
  delete $("result").dataset.done;
  $("picture").hidden = true;
  $("answer").hidden = true;
}

function choose(name, blob) {
  complain("");
  chosen = { name, blob };
  $("run").disabled = false;
  say(`${name} is ready.`);
}

function chooseFile(file) {
  press(null);
  forget();
  chosen = null;
  $("run").disabled = true;
  $("file-note").textContent = file.name;
  if (file.size > limits.bytes) {
    say("");
    complain(`${file.name} has ${(file.size / 1e6).toFixed(1)} MB. Needed: at most ` +
             `${(limits.bytes / 1e6).toFixed(1)} MB.`);
    return;
  }
  choose(file.name, file);
}

function press(name) {
  for (const button of $("samples").children)
    button.setAttribute("aria-pressed", String(button.dataset.name === name));
}

async function chooseSample(sample) {
  forget();
  press(sample.name);
  $("file-note").textContent = "PNG, JPEG, BMP or WebP";
  $("file").value = "";
  const response = await ask(sample.url);
  if (!response.ok) throw new Error(`${sample.url}: status ${response.status}`);
  choose(sample.name, await response.blob());
}

/// The samples that suit the model: one digit for ViT, scenes for the others.
function showSamples() {
  const kind = radio("model") === "vit" ? "digits" : "scenes";
  const fitting = samples.filter((sample) => sample.kind === kind);
  $("samples").replaceChildren(...fitting.map((sample) => {
    const image = element("img", { src: sample.url, alt: sample.name, width: 52, height: 52 });
    const button = element("button", { type: "button", title: sample.name }, image);
    button.dataset.name = sample.name;
    button.setAttribute("aria-pressed", String(chosen !== null && chosen.name === sample.name));
    button.addEventListener("click", () => guarded(async () => {
      await chooseSample(sample);
      await run();
      $("result").scrollIntoView({ block: "nearest" });
    }));
    return button;
  }));
}

// ---- Asking the server

async function ask(address, options) {
  try {
    return await fetch(address, options);
  } catch {
    throw new Error("The server cannot be reached. Is demo-server still running?");
  }
}

/// Runs `work`; what goes wrong is told in the page.
async function guarded(work) {
  try {
    await work();
  } catch (error) {
    say("");
    complain(error.message);
    $("result").scrollIntoView({ block: "nearest" });
  }
}

async function run() {
  if (chosen === null || $("result").ariaBusy === "true") return;
  const { name, blob } = chosen;
  const model = radio("model"), mode = radio("mode");
  busy(true);
  complain("");
  say(`${model} looks at ${name} …`);
  try {
    const bitmap = createImageBitmap(blob).catch(() => null);  // the server says what is wrong
    const response = await ask(`/api/run?model=${model}&mode=${mode}`,
                               { method: "POST", body: blob });
    const answer = await response.json();
    if (!response.ok) throw new Error(sentence(answer.error));
    const image = await bitmap;
    if (image === null) throw new Error(`This browser cannot show ${name}.`);
    shown = { image, answer };
    show(name);
  } catch (error) {
    forget();
    throw error;
  } finally {
    busy(false);
  }
}

function busy(on) {
  $("result").ariaBusy = String(on);
  $("run").disabled = on || chosen === null;
  $("run").classList.toggle("busy", on);
  $("run").textContent = on ? "Looking …" : "Look at it";
}

// ---- Showing the answer

function bar(share) {
  const filled = element("i");
  filled.style.width = `${100 * Math.min(Math.max(share, 0), 1)}%`;
  return element("span", { className: "bar" }, filled);
}

const describe = (answer, i) => `${answer.findings[i].label} (${answer.texts[i]})`;

function show(name) {
  const { answer } = shown;
  $("picture").hidden = false;
  $("answer").hidden = false;
  $("overlay-switch").hidden = answer.model === "vit";
  draw();
  showFindings(answer);
  showTimes(answer.stages);
  const list = answer.findings.map((_, i) => describe(answer, i)).join(", ");
  canvas.setAttribute("aria-label", `${name}: ${list || "nothing found"}`);
  say(`${answer.model}, ${answer.mode}: ${name}, ${answer.width} x ${answer.height} pixels.`);
  $("result").dataset.done = `${answer.model} ${answer.mode}`;
}

function showFindings(answer) {
  $("findings-title").textContent =
    { vit: "Most likely", detr: "Found", setr: "Share of the picture" }[answer.model];
  const rows = answer.findings.map((finding, i) => {
    const swatch = element("span", { className: "swatch" });
    swatch.style.background = answer.colors[i];
    const row = element("li", {}, swatch, element("span", { className: "label" }, finding.label),
      bar(finding[answer.score]), element("span", { className: "number" }, answer.texts[i]));
    if (finding.box) {
      const [left, top, right, bottom] = finding.box.map(Math.round);
      row.append(element("span", { className: "where" },
        `(${left}, ${top}) to (${right}, ${bottom})`));
    }
    return row;
  });
  if (rows.length === 0)
    rows.push(element("li", {}, element("span", { className: "where" }, "nothing found")));
  $("findings").replaceChildren(...rows);
}

function showTimes(stages) {
  const total = stages.reduce((sum, stage) => sum + stage.ms, 0);
  const row = (name, ms, ...more) => element("tr", {},
    element("th", { scope: "row" }, name),
    element("td", { className: "number" }, ms.toFixed(ms < 10 ? 2 : 1)), ...more);
  $("times").tBodies[0].replaceChildren(...stages.map((stage) =>
    row(stage.name, stage.ms, element("td", {}, bar(total > 0 ? stage.ms / total : 0)))));
  $("times").tFoot.replaceChildren(row("together", total, element("td")));
}

/// The picture with boxes or the mask over it: small ones enlarged, and none larger than a canvas
/// can be.
function draw() {
  const { image, answer } = shown;
  const side = Math.max(answer.width, answer.height);
  const scale = side > 4096 ? 4096 / side : Math.max(1, 480 / side);
  canvas.width = Math.max(1, Math.round(answer.width * scale));
  canvas.height = Math.max(1, Math.round(answer.height * scale));
  const pen = canvas.getContext("2d");
  const over = $("overlay").checked;
  pen.filter = over && answer.mask ? "grayscale(1)" : "none";
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  pen.filter = "none";
  if (over && answer.mask) drawMask(pen, answer);
  if (over && answer.model === "detr") drawBoxes(pen, answer, scale);
}

function drawMask(pen, answer) {
  const colors = new Map(answer.findings.map((finding, i) => [finding.id, levels(answer.colors[i])]));
  const mask = new ImageData(answer.width, answer.height);
  let pixel = 0;
  for (let i = 0; i < answer.mask.length; i += 2) {
    const [r, g, b] = colors.get(answer.mask[i]);
    for (const end = pixel + answer.mask[i + 1]; pixel < end; ++pixel)
      mask.data.set([r, g, b, 128], 4 * pixel);
  }
  const layer = element("canvas", { width: answer.width, height: answer.height });
  layer.getContext("2d").putImageData(mask, 0, 0);
  pen.imageSmoothingEnabled = false;  // no colours between those of two classes
  pen.drawImage(layer, 0, 0, canvas.width, canvas.height);
}

const levels = (color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));

function ink(color) {
  const [r, g, b] = levels(color);
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#000" : "#fff";
}

function drawBoxes(pen, answer, scale) {
  const unit = canvas.width / (canvas.clientWidth || canvas.width);  // a pixel of the page
  const size = Math.round(14 * unit);
  pen.font = `600 ${size}px system-ui, sans-serif`;
  pen.textBaseline = "middle";
  pen.lineWidth = 3 * unit;
  const boxes = answer.findings.map((finding, i) => ({
    at: finding.box.map((edge) => edge * scale), color: answer.colors[i],
    text: `${finding.label}: ${Math.round(100 * finding.score)}%` })).reverse();
  for (const { at: [left, top, right, bottom], color } of boxes) {
    pen.strokeStyle = color;
    pen.strokeRect(left, top, right - left, bottom - top);
  }
  for (const { at: [left, top], color, text } of boxes) {  // over all outlines
    const width = pen.measureText(text).width + size * 0.6, height = size * 1.4;
    const x = Math.max(0, Math.min(left, canvas.width - width));
    const y = Math.max(0, Math.min(top - height, canvas.height - height));
    pen.fillStyle = color;
    pen.fillRect(x, y, width, height);
    pen.fillStyle = ink(color);
    pen.fillText(text, x + size * 0.3, y + height / 2);
  }
}

// ---- Starting

async function start() {
  const about = await (await ask("/api/about")).json();
  limits.bytes = about.most_bytes;
  limits.pixels = about.most_pixels;
  samples = about.samples;
  const wish = new URLSearchParams(location.search);
  for (const name of ["model", "mode"])
    for (const input of document.querySelectorAll(`input[name=${name}]`))
      if (input.value === wish.get(name)) input.checked = true;
  showSamples();
  if (!wish.has("sample")) return;
  const sample = samples.find(({ name }) => name === wish.get("sample"));
  if (sample === undefined)
    throw new Error(`There is no sample "${wish.get("sample")}". Needed: one of ` +
                    `${samples.map(({ name }) => name).join(", ")}.`);
  await chooseSample(sample);
  await run();
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  guarded(async () => {
    await run();
    $("result").scrollIntoView({ block: "nearest" });
  });
});
$("file").addEventListener("change", () => {
  if ($("file").files.length > 0) guarded(() => chooseFile($("file").files[0]));
});
// Anywhere on the page: a browser opens a file that is dropped beside the target, and leaves.
for (const kind of ["dragenter", "dragover"])
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    $("drop").classList.add("over");
  });
document.addEventListener("dragleave", (event) => {
  if (event.relatedTarget === null) $("drop").classList.remove("over");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  $("drop").classList.remove("over");
  if (event.dataTransfer.files.length > 0) guarded(() => chooseFile(event.dataTransfer.files[0]));
});
for (const input of document.querySelectorAll("input[name=model]"))
  input.addEventListener("change", showSamples);
$("overlay").addEventListener("change", () => shown !== null && draw());
guarded(start);
