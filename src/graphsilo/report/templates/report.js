"use strict";
(() => {
  const page = JSON.parse(document.getElementById("page-data").textContent);
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  const holders = [...document.querySelectorAll("[data-figure]")];
  const chosen = {};
  const config = {
    responsive: true,
    displaylogo: false,
    modeBarButtons: [["toImage", "resetScale2d"]],
  };

  // Figures name their colours for light pages; the dark ones stand beside them
  const recolour = (value) => {
    if (typeof value === "string") return page.dark[value] ?? value;
    if (Array.isArray(value)) return typeof value[0] === "number" && typeof value[1] !== "string" ? value : value.map(recolour);
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, recolour(item)]));
    }
    return value;
  };

  const draw = (holder, dark) => {
    const figure = page.figures[holder.dataset.figure];
    const names = Object.keys(figure.plots);
    const wanted = chosen[figure.group];
    const plot = figure.plots[names.includes(wanted) ? wanted : names[0]];
    // plotly.js writes into what it is given
    const { data, layout } = dark ? recolour(plot) : structuredClone(plot);
    const quiet = dark ? page.dark["#5d6878"] : "#5d6878";
    layout.height = Number(holder.dataset.height);
    layout.modebar = { bgcolor: "rgba(0,0,0,0)", color: quiet, activecolor: quiet };
    // A vector image needs no detour through a canvas, which the page's policy would not allow
    const image = { format: "svg", filename: holder.dataset.figure };
    return Plotly.react(holder, data, layout, { ...config, toImageButtonOptions: image });
  };
  const drawAll = (dark = prefersDark.matches) => holders.forEach((holder) => draw(holder, dark));

  if (holders.length) {
    if (window.Plotly) {
      drawAll();
      prefersDark.addEventListener("change", () => drawAll());
      window.addEventListener("beforeprint", () => drawAll(false));
      window.addEventListener("afterprint", () => drawAll());
    } else {
      holders.forEach((holder) => { holder.innerHTML = '<p class="failed">The figure could not be drawn.</p>'; });
    }
  }

  document.querySelectorAll("select[data-group]").forEach((select) => {
    const apply = () => {
      chosen[select.dataset.group] = select.value;
      const title = select.selectedOptions[0].textContent;
      holders.filter((holder) => page.figures[holder.dataset.figure].group === select.dataset.group).forEach((holder) => {
        holder.setAttribute("aria-label", `${holder.dataset.label} (${title})`);
        draw(holder, prefersDark.matches);
      });
    };
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
