"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  let data = null, figures = null, loaded = false;
  const read = () => (data ??= JSON.parse($("#data").textContent));
  // Plotly is inert text until the first chart is wanted, so the page opens without it.
  const plotly = () => {
    if (!loaded) {
      const script = document.createElement("script");
      script.textContent = $("#plotly").textContent;
      document.head.append(script);
      loaded = true;
    }
    return window.Plotly;
  };
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const fill = (node) => {
    if (typeof node === "string") return node.startsWith("--") ? colour(node) : node;
    if (Array.isArray(node)) return typeof node[0] === "number" && typeof node[1] !== "string" ? node : node.map(fill);
    if (node && typeof node === "object") return Object.fromEntries(Object.entries(node).map(([k, v]) => [k, fill(v)]));
    return node;
  };
  const base = () => ({
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: colour("--soft") },
    margin: { l: 62, r: 16, t: 26, b: 44 }, hovermode: "closest",
    hoverlabel: { bgcolor: colour("--ink"), bordercolor: colour("--ink"), font: { color: colour("--paper") } },
  });
  const axis = () => ({ gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--faint"), tickcolor: colour("--faint") });
  // On a phone names give way to what they name: braces and the middle of long ones go, and most ticks.
  const short = (name, most = 18) => {
    const bare = name.replace(/[{}]|(user|client-id|ip)=/g, ""), half = Math.floor(most / 2);
    return bare.length > most ? `${bare.slice(0, half)}…${bare.slice(1 - half)}` : bare;
  };
  const narrow = (traces, whole) => {
    for (const flow of traces.filter((trace) => trace.type === "sankey")) {
      flow.node = { ...flow.node, label: flow.node.label.map((name) => short(String(name), 14)) };
      flow.textfont = { ...flow.textfont, size: 10 };
    }
    for (const [name, one] of Object.entries(whole)) {
      if (/^xaxis/.test(name)) {
        if (one.type === "log") one.dtick = 1;
        else [one.nticks, one.tickangle] = [3, 0];
        if (one.title && one.title.text) one.title = { ...one.title, font: { size: 11 } };
      } else if (/^yaxis/.test(name) && one.type === "category") {
        one.tickvals = [...new Set(traces.flatMap((t) => t.y || []))];
        one.ticktext = one.tickvals.map((v) => short(String(v)));
      }
    }
    if (whole.legend && whole.showlegend !== false) {
      whole.margin = { ...whole.margin, t: Math.max(whole.margin.t, 64) };
      whole.legend = { ...whole.legend, y: 1.02, yanchor: "bottom" };
    }
  };
  const put = (element, traces, layout) => {
    const whole = { ...base(), ...layout, margin: { ...base().margin, ...(layout.margin || {}) } };
    for (const name of Object.keys(whole).filter((key) => /^[xy]axis/.test(key))) whole[name] = { ...axis(), ...whole[name] };
    if (element.clientWidth < 520) narrow(traces, whole);
    plotly().newPlot(element, traces, whole, { displayModeBar: false, responsive: true });
    element.dataset.drawn = "yes";
  };
  const slots = () => Array.from({ length: data.bins }, (_, i) => (data.short ? (i * data.bin) / 1000 : data.start + i * data.bin));
  // The mean over the quota window that ends with each bin: what Kafka compares with the quota.
  const windowed = (amounts) => {
    const bins = Math.max(1, Math.round((data.window * 1000) / data.bin)), seconds = data.bin / 1000, means = [];
    let sum = 0;
    for (let i = 0; i < amounts.length; i++) {
      sum += amounts[i] - (i >= bins ? amounts[i - bins] : 0);
      means.push(i + 1 >= bins ? sum / (bins * seconds) : null);
    }
    return means;
  };
  const drawSeries = (element, tenant, series, large) => {
    const x = slots(), seconds = data.bin / 1000, rates = series.y.map((v) => v / seconds);
    const unit = tenant.u === "B/s" ? "B/s" : ` ${tenant.u}`;
    const traces = [
      { type: "bar", x, y: rates, name: data.bin === 1000 ? "per second" : "used", marker: { color: colour("--usage-2"), line: { width: 0 } }, hovertemplate: `%{y:.3s}${unit}<extra>used</extra>` },
      { type: "scatter", mode: "lines", x, y: windowed(series.y), name: `mean of ${data.window} s`, line: { color: colour("--usage"), width: 2.2 }, hovertemplate: `%{y:.3s}${unit}<extra>mean of ${data.window} s</extra>` },
    ];
    const layout = {
      height: large ? 330 : 190, bargap: 0, barmode: "overlay", showlegend: large,
      legend: { orientation: "h", y: 1.14, x: 0 },
      xaxis: { type: data.short ? "linear" : "date", anchor: "y2", title: large ? { text: data.short ? "seconds" : "UTC" } : undefined, ticksuffix: data.short && !large ? " s" : "" },
      yaxis: { domain: [series.t.length ? 0.34 : 0, 1], tickformat: ".2s", rangemode: "tozero", nticks: large ? 6 : 4 },
      yaxis2: { domain: [0, series.t.length ? 0.22 : 0], rangemode: "tozero", nticks: 3, ticksuffix: " s" },
      margin: large ? { l: 70, t: 34 } : { l: 50, r: 8, t: 8, b: 30 },
    };
    if (series.l !== null) {
      traces.push({ type: "scatter", mode: "lines", x: [x[0], x[x.length - 1]], y: [series.l, series.l], name: "quota", line: { color: colour("--quota"), width: 2, dash: "dash" }, hovertemplate: `quota %{y:.3s}${unit}<extra></extra>` });
      // A burst is ten times the quota; cut the axis there only if it is far more.
      const top = Math.max(...rates);
      if (top > 14 * series.l) layout.yaxis.range = [0, 14 * series.l];
    }
    if (series.t.length) {
      traces.push({ type: "bar", x, y: series.t.map((ms) => ms / 1000), yaxis: "y2", name: "told to wait", marker: { color: colour("--throttle") }, hovertemplate: "told %{y:.2f} s<extra></extra>" });
    }
    put(element, traces, layout);
  };
  const busiest = (tenant) => tenant.s.reduce((a, b) => (b.y.reduce((p, q) => p + q, 0) > a.y.reduce((p, q) => p + q, 0) ? b : a));
  const draw = (element) => {
    if (element.dataset.drawn) return;
    if (element.dataset.chart) {
      figures ??= JSON.parse($("#figures").textContent);
      const figure = fill(figures[element.dataset.chart]);
      put(element, figure.data, figure.layout);
    } else {
      read();
      const tenant = data.tenants[+element.dataset.tenant];
      drawSeries(element, tenant, busiest(tenant), false);
    }
  };
  // Draw a chart when it comes near the window; one per frame, so that scrolling stays smooth.
  const queue = [];
  let busy = false;
  const work = () => {
    const next = queue.shift();
    if (!next) { busy = false; return; }
    draw(next);
    requestAnimationFrame(work);
  };
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { watch.unobserve(entry.target); queue.push(entry.target); }
    if (!busy && queue.length) { busy = true; requestAnimationFrame(() => setTimeout(work)); }
  }, { rootMargin: "200px" });
  $$("main .plot").forEach((element) => watch.observe(element));
  const redraw = () => $$(".plot[data-drawn]").forEach((element) => { delete element.dataset.drawn; draw(element); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  window.addEventListener("beforeprint", () => { $$("main .plot").forEach(draw); $$("main details").forEach((d) => (d.open = true)); });

  // One quota-id's own page.
  const dialog = $("#tenant");
  let opener = null;
  const open = (index) => {
    const template = $(`template[data-tenant-page="${index}"]`);
    if (!template) return;
    read();
    const tenant = data.tenants[index], body = $("#tenant-body");
    $("#tenant-name").textContent = tenant.q;
    body.replaceChildren(template.content.cloneNode(true));
    if (!dialog.open) dialog.showModal();
    $("#tenant-name").focus();
    const plots = $("[data-plots]", body);
    for (const series of tenant.s) {
      const figure = document.createElement("div");
      figure.className = "plot";
      figure.setAttribute("role", "img");
      figure.setAttribute("aria-label", `${tenant.q} ${tenant.k} on broker ${series.b} over time; the figures above say the same.`);
      if (tenant.s.length > 1) { const name = document.createElement("p"); name.className = "small"; name.textContent = `broker ${series.b}`; plots.append(name); }
      plots.append(figure);
      drawSeries(figure, tenant, series, true);
    }
    history.replaceState(null, "", `#tenant-${index}`);
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-open]");
    if (button) { opener = button; open(+button.dataset.open); }
    if (event.target.closest("[data-close]") || event.target === dialog) dialog.close();
  });
  dialog.addEventListener("close", () => { history.replaceState(null, "", location.pathname + location.search); opener?.focus(); });
  const wanted = /^#tenant-(\d+)$/.exec(location.hash);
  if (wanted) open(+wanted[1]);

  // Long tables are folded: their first rows, and a button for more.
  const MOST = innerWidth < 640 ? 20 : 50;
  const fold = (table) => {
    const body = $("tbody", table), all = [...body.rows];
    let most = MOST, wanted = () => true;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "plain more";
    const show = () => {
      let matching = 0;
      for (const row of body.rows) row.hidden = !wanted(row) || ++matching > most;
      button.hidden = matching <= most;
      button.textContent = `Show ${Math.min(matching - most, 10 * MOST)} more of ${matching}`;
      return matching;
    };
    if (all.length > MOST) table.after(button);
    button.addEventListener("click", () => {
      const next = [...body.rows].filter((row) => !row.hidden).length;
      most += 10 * MOST;
      show();
      const row = body.rows[next];
      if (row) { row.tabIndex = -1; row.focus(); }
    });
    window.addEventListener("beforeprint", () => { most = Infinity; show(); });
    show();
    return { show, find: (test) => { wanted = test; return show(); } };
  };
  const tables = new Map($$("main table").map((table) => [table, fold(table)]));

  // The table of all: find and sort.
  const rows = $$("#all tbody tr"), found = $("#found"), all = tables.get($("#all"));
  $("#find").addEventListener("input", (event) => {
    const text = event.target.value.trim().toLowerCase();
    const shown = all.find((row) => text === "" || row.textContent.toLowerCase().includes(text));
    found.textContent = text ? `${shown} of ${rows.length}` : "";
  });
  $$("#all [data-sort]").forEach((button) => button.addEventListener("click", () => {
    const head = button.closest("th"), column = +button.dataset.sort, body = $("#all tbody");
    const down = head.getAttribute("aria-sort") === "ascending" || (head.getAttribute("aria-sort") === null && head.classList.contains("n"));
    $$("#all th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => { const cell = row.children[column]; return cell.dataset.v !== undefined ? +cell.dataset.v : cell.textContent.trim().toLowerCase(); };
    rows.sort((a, b) => { const [p, q] = [value(a), value(b)]; return (p < q ? -1 : p > q ? 1 : 0) * (down ? -1 : 1); });
    body.append(...rows);
    all.show();
  }));

  // Say in the contents which section is read.
  const links = $$("nav.toc a");
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) links.forEach((link) => link.hash === `#${entry.target.id}` ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current"));
  }, { rootMargin: "-20% 0px -70% 0px" });
  $$("main section").forEach((section) => seen.observe(section));
})();
