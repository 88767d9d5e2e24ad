"use strict";
(() => {
  // A name and a value under the pointer, and beside what has the focus
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("aria-hidden", "true");
  tip.hidden = true;
  document.body.append(tip);
  const say = (text, x, y) => {
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const wide = tip.offsetWidth;
    tip.style.left = `${Math.max(6, Math.min(x + 14, window.scrollX + document.documentElement.clientWidth - wide - 6))}px`;
    tip.style.top = `${y + 16}px`;
  };
  const rounded = (value) => value.toLocaleString("en", { maximumSignificantDigits: 4 });

  // What the lines of a figure are worth at the place under the pointer: from the pictures' own paths
  const along = (svg, event) => {
    const [x0, x1, left, right, y0, y1, bottom, top] = svg.dataset.scales.split(",").map(Number);
    const [xLog, yLog] = [...svg.dataset.log].map((sign) => sign === "1");
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) * svg.viewBox.baseVal.width) / box.width;
    const value = (place, low, high, from, to, log) => {
      const share = (place - from) / (to - from);
      return log ? low * (high / low) ** share : low + (high - low) * share;
    };
    let nearest = null;
    const rows = [...svg.querySelectorAll("path[data-name]")].map((path) => {
      const points = path.getAttribute("d").slice(1).split("L").map((point) => point.split(" ").map(Number));
      const best = points.reduce((one, other) => (Math.abs(other[0] - at) < Math.abs(one[0] - at) ? other : one));
      if (nearest === null || Math.abs(best[0] - at) < Math.abs(nearest - at)) nearest = best[0];
      return [path.dataset.name, best];
    });
    svg.querySelector(".cursor")?.remove();
    if (nearest === null || Math.abs(nearest - at) > 40) return "";
    const cursor = document.createElementNS(svg.namespaceURI, "path");
    cursor.setAttribute("class", "cursor");
    cursor.setAttribute("d", `M${nearest} ${top}V${bottom}`);
    svg.prepend(cursor);
    const head = `${svg.dataset.x} ${rounded(value(nearest, x0, x1, left, right, xLog))}`;
    const lines = rows.filter(([, point]) => Math.abs(point[0] - nearest) < 1)
      .map(([name, point]) => `${name}: ${rounded(value(point[1], y0, y1, bottom, top, yLog))}`);
    return [head, ...lines].join("\n");
  };
  document.addEventListener("pointermove", (event) => {
    const marked = event.target.closest?.("[data-tip]");
    const svg = event.target.closest?.("svg[data-scales]");
    const text = marked ? marked.dataset.tip : svg ? along(svg, event) : "";
    say(text, event.pageX, event.pageY);
  });
  document.addEventListener("pointerleave", () => say(""));
  document.addEventListener("focusin", (event) => {
    const box = event.target.getBoundingClientRect();
    say(event.target.dataset?.tip ?? "", box.left + window.scrollX - 14, box.bottom + window.scrollY - 10);
  });
  document.addEventListener("focusout", () => say(""));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") say(""); });

  // A picture with its colours written into it, since the page's style does not travel with the file
  const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity", "font"];
  document.querySelectorAll("figure.panel[id]").forEach((figure) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "save";
    button.textContent = "SVG";
    button.setAttribute("aria-label", `Save this figure as SVG: ${figure.id}`);
    button.addEventListener("click", () => {
      const shown = [...figure.querySelectorAll("svg")].find((svg) => svg.getClientRects().length);
      if (!shown) return;
      const copy = shown.cloneNode(true);
      const [from, to] = [shown, copy].map((svg) => [svg, ...svg.querySelectorAll("*")]);
      to.forEach((node, place) => {
        const style = getComputedStyle(from[place]);
        KEPT.forEach((name) => node.style.setProperty(name, style.getPropertyValue(name)));
      });
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }));
      link.download = `${figure.id}.svg`;
      link.click();
      URL.revokeObjectURL(link.href);
    });
    figure.querySelector("figcaption").prepend(button);
  });

  document.querySelectorAll("select[data-group]").forEach((select) => {
    const apply = () => document.querySelectorAll(`figure[data-group="${select.dataset.group}"]`).forEach((figure) => {
      const parts = [...figure.querySelectorAll(".choice")];
      const wanted = parts.find((part) => part.dataset.choice === select.value) ?? parts[0];
      parts.forEach((part) => { part.hidden = part !== wanted; });
    });
    select.addEventListener("change", apply);
    // A browser that restores the choice after a reload does not say so
    if (select.selectedIndex > 0) apply();
  });

  document.querySelectorAll("table.sortable").forEach((table) => {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => heading.querySelector("button")?.addEventListener("click", () => {
      const upwards = heading.getAttribute("aria-sort") !== "ascending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", upwards ? "ascending" : "descending");
      const body = table.tBodies[table.tBodies.length - 1];
      const rows = [...body.rows];
      const hidden = rows.filter((row) => row.classList.contains("later")).length;
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      rows.sort((one, other) => {
        const [a, b] = [key(one), key(other)];
        if (a === "" || b === "") return (a === "") - (b === "");
        const order = Number.isNaN(Number(a)) || Number.isNaN(Number(b)) ? a.localeCompare(b) : a - b;
        return upwards ? order : -order;
      });
      rows.forEach((row, place) => row.classList.toggle("later", place >= rows.length - hidden));
      body.append(...rows);
    }));
  });

  document.querySelectorAll("button.more").forEach((button) => button.addEventListener("click", () => {
    const table = document.getElementById(button.getAttribute("aria-controls"));
    const expanded = table.classList.toggle("expanded");
    button.setAttribute("aria-expanded", String(expanded));
    button.textContent = expanded ? button.dataset.less : button.dataset.all;
  }));
})();
