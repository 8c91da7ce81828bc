"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = heading.querySelector("button");
    if (!button) return;
    button.addEventListener("click", () => {
      const descending = heading.getAttribute("aria-sort") !== "descending";
      const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const compare = (a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === "" || y === "") return (x === "") - (y === "");
        const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
        return descending ? -order : order;
      };
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
    });
  });
}
