/* The calculator of docs/howto/capacity.md: the page's formula, with the figures of its data attributes. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const place = document.getElementById("sizes");
  if (!place) return;
  const fields = [
    ["requests", "requests a second, at the busiest broker", 2000],
    ["bytes", "bytes of a request and its answer, on average", 20000],
    ["connections", "clients' connections to that broker", 500],
    ["opened", "connections opened a second", 1],
    ["quotaIds", "quota-ids in use", 200],
    ["brokers", "brokers behind gateways on this host", 3],
  ];
  const form = document.createElement("form");
  const add = (text, control) => {
    const label = document.createElement("label");
    label.append(text, control);
    form.append(label);
    return control;
  };
  const inputs = Object.fromEntries(
    fields.map(([name, text, value]) => {
      const input = Object.assign(document.createElement("input"), { type: "number", min: 0, value, name });
      return [name, add(text, input)];
    }),
  );
  const tls = add("TLS to clients", Object.assign(document.createElement("input"), { type: "checkbox", name: "tls" }));
  const output = document.createElement("output");
  form.append(output);
  place.replaceChildren(form);

  const show = () => {
    const given = Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, Math.max(0, Number(input.value) || 0)]));
    const [request, byte] = place.dataset[tls.checked ? "tls" : "plain"].split(" ").map(Number);
    const open = Number(place.dataset.open);
    const core = (given.requests * (request + (given.bytes * byte) / 1000) + given.opened * open) / 1e6;
    const kilobytes = given.connections * Number(place.dataset.connection) + given.quotaIds * Number(place.dataset.quotaId);
    const megabytes = Number(place.dataset.process) + kilobytes / 1000;
    const advice =
      core > 1 ? "More than one core has: move partitions to other brokers, or send larger requests."
      : core > 0.5 ? "More than half of a core: it works, with little left for bursts."
      : "One core is enough, with half of it left.";
    output.textContent =
      `${(100 * core).toFixed(0)} % of a core for this broker's gateway. ${advice} ` +
      `Memory ${megabytes.toFixed(0)} MB for each broker, ${(megabytes * given.brokers).toFixed(0)} MB in all, and up to 128 MiB of buffers a process; ` +
      `${(2 * given.connections * given.brokers + 100).toLocaleString("en")} descriptors.`;
  };
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  show();
});
