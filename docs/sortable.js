// Click on a column's title sorts its table: numbers by data-value, else by text; a second click turns the order round.
document.addEventListener("click", (event) => {
  const title = event.target.closest("table.sortable th");
  if (!title) return;
  const table = title.closest("table");
  const column = [...title.parentNode.children].indexOf(title);
  const down = table.dataset.column === String(column) && table.dataset.order === "up";
  table.dataset.column = column;
  table.dataset.order = down ? "down" : "up";
  const value = (row) => {
    const cell = row.children[column];
    const known = cell.dataset.value ?? cell.textContent;
    return known === "–" ? null : Number.isNaN(Number(known)) ? known : Number(known);
  };
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [value(row), row]);
  rows.sort(([left], [right]) => {
    if (left === null || right === null) return (left === null) - (right === null); // what is missing stays below
    const order = typeof left === "number" && typeof right === "number" ? left - right : String(left).localeCompare(right);
    return down ? -order : order;
  });
  body.append(...rows.map(([, row]) => row));
});
