"use strict";

// A column is sorted by the numbers in `data-value`, or by its texts.
function sort(heading) {
  const table = heading.closest("table");
  const column = heading.cellIndex;
  const order = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
  const sign = order === "ascending" ? 1 : -1;
  const compare = (one, other) => {
    const [a, b] = [one.cells[column], other.cells[column]];
    return a.dataset.value === undefined
      ? a.textContent.localeCompare(b.textContent, undefined, { numeric: true })
      : Number(a.dataset.value) - Number(b.dataset.value);
  };
  for (const each of table.tHead.rows[0].cells) {
    if (each.hasAttribute("aria-sort")) each.setAttribute("aria-sort", each === heading ? order : "none");
  }
  const rows = [...table.tBodies[0].rows].sort((one, other) => sign * compare(one, other));
  table.tBodies[0].append(...rows);
}

const dialog = document.querySelector("dialog");
const form = dialog.querySelector("form");

// Without the field `server`, all servers of the user are stopped. An empty name is the notebook server.
function ask(button) {
  const { action, user, server, what } = button.dataset;
  form.action = action;
  form.elements.user.value = user;
  form.elements.server.disabled = server === undefined;
  form.elements.server.value = server ?? "";
  form.elements.text.value = "";
  document.getElementById("what").textContent = what;
  form.querySelector("[type=submit]").textContent = action === "stop" ? "Stop" : "Leave message";
  dialog.showModal();
  form.elements.text.focus();
}

for (const button of document.querySelectorAll("button.sort")) {
  button.addEventListener("click", () => sort(button.closest("th")));
}
for (const button of document.querySelectorAll("button.ask")) {
  button.addEventListener("click", () => ask(button));
}
dialog.querySelector(".cancel").addEventListener("click", () => dialog.close());
form.addEventListener("submit", () => {
  form.querySelector("[type=submit]").disabled = true;
});
