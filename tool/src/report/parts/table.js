// Sorting and filtering: all that the page needs a script for.
"use strict";
{
  const powers = { n: 1e-9, "µ": 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12,
    Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40 };
  const number = /^[=?<\s]*([-+]?\d[\d.]*)\s?((?:[KMGT]i|[nµmkMGT])(?=B|s|\/|\s|$))?/;

  // The value of a cell: a number with its unit, or else text.
  const value = (cell) => {
    const text = cell ? cell.textContent.trim() : "";
    const found = number.exec(text);
    return found ? Number(found[1]) * (powers[found[2]] || 1) : text;
  };

  // Numbers before text, and what has neither last, whichever way.
  const compare = (a, b, sign) => {
    const rank = (each) => (typeof each === "number" ? 0 : each && each !== "–" ? 1 : 2);
    if (rank(a) !== rank(b)) return rank(a) - rank(b);
    return sign * (typeof a === "number" ? a - b : a.localeCompare(b));
  };

  const sortable = (table) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const sign = head.getAttribute("aria-sort") === "descending" ? 1 : -1;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
        const rows = [...table.tBodies[0].rows];
        rows.forEach((row) => row.classList.remove("group"));
        rows.sort((a, b) => compare(value(a.cells[column]), value(b.cells[column]), sign));
        table.tBodies[0].append(...rows);
      });
    });
  };
  document.querySelectorAll("table.sortable").forEach(sortable);

  const filter = document.getElementById("filter");
  if (filter) {
    const apply = () => {
      const off = new Set();
      filter.querySelectorAll("input[type=checkbox]").forEach((box) => box.checked || off.add(box.value));
      document.querySelectorAll("main [data-allocator]").forEach((each) => {
        each.style.display = off.has(each.dataset.allocator) ? "none" : "";
      });
      const wanted = filter.elements.workload.value.trim().toLowerCase();
      document.querySelectorAll("main [data-workload]").forEach((each) => {
        each.style.display = each.dataset.workload.toLowerCase().includes(wanted) ? "" : "none";
      });
    };
    filter.hidden = false;
    filter.addEventListener("input", apply);
    filter.addEventListener("submit", (event) => event.preventDefault());
    apply();
  }

  // A link to something folded unfolds it.
  const unfold = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let each = target; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
  };
  addEventListener("hashchange", unfold);
  unfold();
}
