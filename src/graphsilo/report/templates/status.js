"use strict";
(() => {
  const page = JSON.parse(document.getElementById("page-data").textContent);
  const by = (id) => document.getElementById(id);
  const EVERY = 1000;
  const PATIENCE = 5000;
  const SHOWN_JOBS = 8;
  const SHOWN_EVENTS = 12;
  const MISSING = "–";
  // A sign and a meaning for each state: colour alone tells nothing to many
  const STATES = new Map([
    ["waiting", ["○", "was not heard of yet"]],
    ["up", ["●", "answers, has nothing to do"]],
    ["working", ["▶", "is at work"]],
    ["late", ["▲", "took longer than the deadline"]],
    ["lost", ["✕", "does not answer"]],
    ["gone", ["■", "was given up for this job"]],
  ]);
  const TROUBLE = ["late", "lost", "gone"];
  const JOB_SIGNS = new Map([["queued", "○"], ["running", "▶"], ["done", "✓"], ["failed", "✕"], ["stopped", "■"]]);
  let last = page.status;
  let heard = Date.now();
  let missed = 0;
  let states = new Map();

  // Everything below is set as text: what a site says of itself is never markup
  const set = (node, text) => { if (node.textContent !== text) node.textContent = text; };
  const show = (node, visible) => { if (node.hidden === visible) node.hidden = !visible; };
  const make = (name, className, text) => {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const known = (value) => typeof value === "number" && Number.isFinite(value);

  const isShare = (name) => page.scores[name]?.[1] ?? true;
  const decimal = (value) => value.toLocaleString("en-US", { maximumSignificantDigits: 4 });
  const score = (value, name) => {
    if (!known(value)) return MISSING;
    return isShare(name) ? `${(100 * value).toFixed(1)} %` : decimal(value);
  };
  const size = (count) => {
    if (!known(count)) return MISSING;
    for (const unit of ["B", "kB", "MB", "GB"]) {
      if (count < 999.95) return `${unit === "B" ? count.toFixed(0) : count.toFixed(1)} ${unit}`;
      count /= 1000;
    }
    return `${count.toFixed(1)} TB`;
  };
  const took = (seconds) => {
    if (!known(seconds)) return MISSING;
    if (seconds < 0.0995) return `${(1000 * seconds).toFixed(0)} ms`;
    return seconds < 9.95 ? `${seconds.toFixed(1)} s` : age(seconds);
  };
  const age = (seconds) => {
    if (!known(seconds)) return MISSING;
    const whole = Math.max(0, Math.floor(seconds));
    if (whole < 60) return `${whole} s`;
    if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
    if (whole < 86400) return `${Math.floor(whole / 3600)} h ${String(Math.floor(whole / 60) % 60).padStart(2, "0")} min`;
    return `${Math.floor(whole / 86400)} d ${Math.floor(whole / 3600) % 24} h`;
  };
  const roughly = (seconds) => age(seconds).replace(/(min) \d\d s$/, "$1");
  const clock = (at, withDay) => {
    if (!at) return MISSING;
    const date = new Date(1000 * at);
    const today = date.toDateString() === new Date().toDateString();
    const time = date.toLocaleTimeString([], { hour12: false });
    return withDay && !today ? `${date.toLocaleDateString()} ${time}` : time;
  };
  const scoreName = (rows, kind, now) => {
    const measured = rows.map((row) => row[kind] ?? {}).find((values) => Object.keys(values).length) ?? {};
    return [now.metric, ...Object.keys(page.scores)].find((name) => name in measured);
  };

  // Keeps the elements that are there, so that a selection and a reader's place survive
  const fill = (body, rows, cells) => {
    while (body.rows.length > rows.length) body.deleteRow(-1);
    rows.forEach((row, place) => {
      const line = body.rows[place] ?? body.appendChild(make("tr"));
      line.setAttribute("role", "row");
      cells(row).forEach((cell, column) => {
        if (!line.cells[column]) {
          const added = line.appendChild(make(column ? "td" : "th"));
          if (!column) added.scope = "row";
          // In a narrow window cells stand below each other, each with its heading; then only the roles say "table"
          added.setAttribute("role", column ? "cell" : "rowheader");
          added.dataset.heading = body.parentNode.tHead.rows[0].cells[column].textContent;
        }
        const node = line.cells[column];
        const { text, kind = "", sign, small } = typeof cell === "string" ? { text: cell } : cell;
        const key = JSON.stringify([text, kind, sign, small]);
        if (node.dataset.key === key) return;
        node.dataset.key = key;
        node.className = kind;
        node.replaceChildren(text);
        if (sign) {
          node.prepend(make("b", "", sign), " ");
          node.firstChild.setAttribute("aria-hidden", "true");
        }
        if (small) node.append(" ", make("small", "", small));
      });
    });
  };
  const pairs = (list, items) => {
    const key = JSON.stringify(items);
    if (list.dataset.key === key) return;
    list.dataset.key = key;
    const inBoxes = list.classList.contains("facts");
    list.replaceChildren(...items.flatMap(([name, value]) => {
      const both = [make("dt", "", name), make("dd", "", value)];
      if (!inBoxes) return both;
      const box = make("div");
      box.append(...both);
      return [box];
    }));
  };

  const sites = (tree) => {
    const rows = tree.sites ?? [];
    fill(by("sites").tBodies[0], rows, (site) => {
      const [sign] = STATES.get(site.state) ?? ["?"];
      const calm = site.state === "up" || site.state === "working";
      const others = site.silos.length === 1 && site.silos[0] === site.site ? "" : site.silos.join(", ");
      return [
        { text: site.site, small: others },
        { text: site.state, sign, kind: `text state ${STATES.has(site.state) ? site.state : ""}` },
        age(tree.at - site.since),
        site.seconds ? took(site.seconds) : MISSING,
        size(site.sent),
        size(site.received),
        { text: site.note || MISSING, kind: site.note ? `text wrap${calm ? " quiet" : ""}` : "text wrap quiet none" },
      ];
    });
    show(by("no-sites"), !rows.length);
    show(by("sites"), rows.length > 0);
    const changed = rows.filter((site) => states.has(site.site) && states.get(site.site) !== site.state);
    // A site goes to work and back with every round: only trouble, and its end, is worth an announcement
    const worth = changed.filter((site) => [states.get(site.site), site.state].some((state) => TROUBLE.includes(state)));
    if (worth.length) set(by("told"), worth.map((site) => `${site.site}: ${site.state}`).join(", "));
    states = new Map(rows.map((site) => [site.site, site.state]));
    show(by("states"), rows.length > 0);
  };

  const job = (tree) => {
    const now = tree.job;
    show(by("no-job"), !now);
    show(by("job"), Boolean(now));
    if (!now) return;
    const rows = tree.rounds ?? [];
    const running = now.state === "running";
    const begun = known(now.round);
    const metric = scoreName(rows, "validation", now) ?? now.metric;
    set(by("job-title"), running ? "Running job" : "Last job");
    set(by("best-name"), `Best validation ${page.scores[metric]?.[0] ?? "score"}`);
    const best = by("best");
    if (now.best) {
      set(best, score(now.best[0], metric));
      set(by("best-note"), `in round ${now.best[1]}`);
    } else {
      set(best, MISSING);
      set(by("best-note"), running ? "not measured yet" : "not kept here: see the job's results");
    }
    set(by("job-name"), `${now.method}, job ${now.id}`);
    const bar = by("bar");
    show(bar, begun);
    const seeds = now.seeds > 1 ? `, seed ${now.seed} (${now.index} of ${now.seeds})` : `, seed ${now.seed}`;
    if (begun) {
      bar.setAttribute("aria-valuemax", now.rounds);
      bar.setAttribute("aria-valuenow", now.round);
      bar.firstElementChild.style.width = `${(100 * now.round) / Math.max(1, now.rounds)}%`;
      set(by("rounds"), `Round ${now.round} of ${now.rounds}${seeds}${now.work ? `; ${now.work}` : ""}`);
    } else {
      const away = (tree.sites ?? []).filter((site) => site.state === "waiting").map((site) => site.site);
      const what = away.length ? `Waits for ${away.join(", ")}.` : now.work ? `The ${now.work}.` : "The sites get ready: no round has ended yet.";
      set(by("rounds"), running ? what : { done: "Done.", failed: "Failed.", stopped: "Stopped." }[now.state] ?? now.state);
    }
    pairs(by("facts"), [
      ["Time left", known(tree.left) ? `about ${roughly(tree.left)}` : MISSING],
      [running ? "Runs for" : "Took", now.started ? age((now.finished || tree.at) - now.started) : MISSING],
      ["Sent to silos", size(now.download_bytes)],
      ["Received from silos", size(now.upload_bytes)],
    ]);
    show(by("job-error"), Boolean(now.error));
    set(by("job-error"), now.error ?? "");
    curve(rows, now);
  };

  const NAMESPACE = "http://www.w3.org/2000/svg";
  const draw = (parent, name, attributes, text) => {
    const node = document.createElementNS(NAMESPACE, name);
    Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  };
  let drawn = "";

  const curve = (rows, now) => {
    const holder = by("plot");
    const lines = ["validation", "test"].map((kind) => {
      const name = scoreName(rows, kind, now);
      const points = rows.map((row) => [row.round, (row[kind] ?? {})[name]]).filter(([, value]) => known(value));
      return { kind, name, points };
    }).filter((line) => line.points.length);
    show(by("curve"), lines.length > 0);
    if (!lines.length) return;
    const width = Math.max(240, holder.clientWidth);
    const key = JSON.stringify([width, now.rounds, lines]);
    if (key === drawn) return;
    drawn = key;

    const height = 220;
    const values = lines.flatMap((line) => line.points.map(([, value]) => value));
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const share = isShare(lines[0].name);
    const unit = 10 ** Math.floor(Math.log10(Math.max((high - low) / 4, share ? 0.01 : Math.abs(high) * 1e-3 || 1e-3)) + 1e-9);
    const step = unit * [1, 2, 5, 10].find((size) => (high - low) / (size * unit) <= 4);
    const floor = Math.floor(low / step + 1e-9) * step;
    const ceiling = Math.max(floor + step, Math.ceil(high / step - 1e-9) * step);
    const begin = Math.min(...lines.map((line) => line.points[0][0]));
    const end = Math.max(now.rounds ?? 0, ...lines.map((line) => line.points.at(-1)[0]), begin + 1);
    const [left, top, bottom, label] = [44, 10, 26, 118];
    const along = (Math.max(...lines.map((line) => line.points.at(-1)[0])) - begin) / (end - begin);
    const right = left + (width - left - 16) * along + label < width ? 16 : label;
    const x = (round) => left + ((width - left - right) * (round - begin)) / (end - begin);
    const y = (value) => top + (height - top - bottom) * (1 - (value - floor) / (ceiling - floor));

    const told = lines.map((line) => `${line.kind} ${score(line.points.at(-1)[1], line.name)}`).join(", ");
    const svg = document.createElementNS(NAMESPACE, "svg");
    Object.entries({
      width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `Scores per round, up to round ${lines[0].points.at(-1)[0]} of ${now.rounds}: ${told}`,
    }).forEach(([name, value]) => svg.setAttribute(name, value));
    for (let mark = floor; mark < ceiling + step / 2; mark += step) {
      draw(svg, "line", { class: "grid", x1: left, x2: width - right, y1: y(mark), y2: y(mark) });
      draw(svg, "text", { x: left - 8, y: y(mark) + 4, "text-anchor": "end" }, share ? (100 * mark).toFixed(0) : decimal(mark));
    }
    [begin, Math.round((begin + end) / 2), end].forEach((round, place) => {
      const anchor = ["start", "middle", "end"][place];
      draw(svg, "text", { x: x(round), y: height - 6, "text-anchor": anchor }, place === 2 ? `round ${round}` : String(round));
    });
    // Two names at the lines' ends must not stand on each other
    const ends = lines.map((line) => y(line.points.at(-1)[1]));
    if (ends.length === 2 && Math.abs(ends[0] - ends[1]) < 16) {
      const middle = (ends[0] + ends[1]) / 2;
      const above = ends[0] <= ends[1] ? 0 : 1;
      ends[above] = middle - 8;
      ends[1 - above] = middle + 8;
    }
    lines.forEach((line, place) => {
      const group = draw(svg, "g", { class: line.kind });
      const path = line.points.map(([round, value], at) => `${at ? "L" : "M"}${x(round).toFixed(1)} ${y(value).toFixed(1)}`);
      draw(group, "path", { d: path.join("") });
      const [round, value] = line.points.at(-1);
      draw(group, "circle", { cx: x(round), cy: y(value), r: 3.5 });
      draw(group, "text", { x: x(round) + 10, y: ends[place] + 4 }, `${line.kind} ${score(value, line.name)}`);
    });
    holder.replaceChildren(svg);
    const names = [...new Set(lines.map((line) => page.scores[line.name]?.[0]))].join(" and ");
    set(by("curve-caption"), `After each round of seed ${rows.at(-1).seed}: ${names}${share ? " in percent" : ""}, all silos together.`);
  };

  const jobs = (tree) => {
    const all = tree.jobs ?? [];
    show(by("jobs-section"), all.length > 0);
    fill(by("jobs").tBodies[0], all.slice(-SHOWN_JOBS).reverse(), (item) => [
      { text: item.id },
      { text: item.state, sign: JOB_SIGNS.get(item.state) ?? "?", kind: `text state ${JOB_SIGNS.has(item.state) ? item.state : ""}` },
      clock(item.started, true),
      item.started ? age((item.finished || tree.at) - item.started) : MISSING,
      { text: item.error || item.out, kind: item.error ? "text wrap" : "text wrap quiet" },
    ]);
    show(by("jobs-more"), all.length > SHOWN_JOBS);
    set(by("jobs-more"), `${all.length - SHOWN_JOBS} older ones are not shown.`);
  };

  const redraw = () => {
    const tree = last;
    const name = tree.federation ?? "Federation";
    set(document.querySelector("h1"), name);
    const engine = page.engines[tree.engine] ?? tree.engine ?? "unknown";
    set(by("lede"), `Serves for ${age(tree.at - tree.since)}, since ${clock(tree.since, true)}. Engine: ${engine}.`);
    sites(tree);
    job(tree);
    jobs(tree);
    const events = (tree.events ?? []).slice(-SHOWN_EVENTS).reverse();
    pairs(by("events"), events.length ? events.map((item) => [clock(item.at, true), item.text]) : [["", "Nothing yet."]]);
    const trouble = (tree.sites ?? []).filter((site) => TROUBLE.includes(site.state)).length;
    const place = tree.job?.state === "running" && known(tree.job.round) ? `${tree.job.round}/${tree.job.rounds} ` : "";
    const title = `${trouble ? "✕ " : ""}${place}${name} – graphsilo`;
    if (document.title !== title && !missed) document.title = title;
  };

  const silence = () => {
    const silent = missed > 1;
    if (silent) {
      // Said once for a screen reader, and counted on without being read out again
      const at = clock(heard / 1000, true);
      set(by("silent"), `The coordinator does not answer any more. What stands below is from ${at}. This page goes on ` +
        "asking; if the coordinator was started again, its page may have another address, which graphsilo serve prints.");
      document.title = `No answer – ${last.federation ?? "Federation"} – graphsilo`;
    }
    show(by("silent"), silent);
    document.body.classList.toggle("silent", silent);
  };

  const ask = async () => {
    try {
      const answer = await fetch("status.json", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
      if (!answer.ok) throw new Error(String(answer.status));
      last = await answer.json();
      heard = Date.now();
      missed = 0;
      redraw();
    } catch {
      missed += 1;
    }
    silence();
    setTimeout(ask, EVERY);
  };

  by("states").textContent = [...STATES].map(([name, [sign, meaning]]) => `${sign} ${name}: ${meaning}`).join(" · ");
  redraw();
  window.addEventListener("resize", redraw);
  setTimeout(ask, EVERY);
})();
