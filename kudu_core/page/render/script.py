"""What the page does: it sorts, filters, expands and switches colours; without it all is there to read.

A live page asks for its newest content now and then and puts it in the place of the old one.
"""

from __future__ import annotations

SCRIPT = r"""
"use strict";
(function () {
  var root = document.documentElement, themes = ["auto", "light", "dark"];
  function kept(value) {  // a notebook's frame has no storage
    try {
      if (value !== undefined) localStorage.setItem("kudu-core-theme", value);
      return localStorage.getItem("kudu-core-theme");
    } catch (error) { return null; }
  }
  function theme(value) {
    if (value === "auto") root.removeAttribute("data-theme"); else root.setAttribute("data-theme", value);
    var button = document.getElementById("theme");
    button.textContent = "colours: " + value;
    button.dataset.value = value;
  }
  function sort(head) {
    var row = head.parentNode, body = head.closest("table").tBodies[0];
    var place = Array.prototype.indexOf.call(row.children, head);
    var down = head.getAttribute("aria-sort") === "ascending";
    Array.prototype.forEach.call(row.children, function (other) { other.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    var numbers = head.classList.contains("n") || head.classList.contains("wide");
    function value(line) {
      var cell = line.children[place], text = cell.dataset.v;
      if (text === undefined) text = cell.textContent;
      return numbers ? (parseFloat(text) || 0) : text;
    }
    var lines = Array.prototype.map.call(body.rows, function (line) { return [value(line), line]; });
    lines.sort(function (a, b) { return (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0) * (down ? -1 : 1); });
    lines.forEach(function (line) { body.appendChild(line[1]); });
  }
  function show(target) {
    for (var at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    target.scrollIntoView();
  }
  document.addEventListener("click", function (event) {
    var at = event.target.closest("a[href^='#'],button");
    if (!at) return;
    if (at.tagName === "A") {
      var target = document.getElementById(at.getAttribute("href").slice(1));
      if (target) { event.preventDefault(); show(target); }
    } else if (at.id === "theme") {
      var next = themes[(themes.indexOf(at.dataset.value) + 1) % themes.length];
      theme(next);
      kept(next);
    } else if (at.classList.contains("sort")) {
      sort(at.parentNode);
    } else if (at.dataset.measure) {
      measure(at.dataset.measure);
    } else if (at.dataset.open) {
      Array.prototype.forEach.call(document.querySelectorAll("details[id^='tablet-']"), function (one) {
        one.open = at.dataset.open === "yes";
      });
    }
  });
  function measure(value) {
    var grid = document.querySelector(".grid");
    if (!grid) return;
    grid.dataset.measure = value;
    Array.prototype.forEach.call(document.querySelectorAll("button[data-measure]"), function (button) {
      button.setAttribute("aria-pressed", String(button.dataset.measure === value));
    });
  }
  function filter(input) {
    var text = input.value.toLowerCase(), found = document.querySelector("table." + input.dataset.filter);
    Array.prototype.forEach.call(found.tBodies[0].rows, function (line) {
      line.classList.toggle("hidden", line.textContent.toLowerCase().indexOf(text) < 0);
    });
  }
  document.addEventListener("input", function (event) {
    if (event.target.dataset.filter) filter(event.target);
  });
  var first = kept();
  theme(themes.indexOf(first) < 0 ? "auto" : first);
  document.getElementById("theme").hidden = false;

  var every = parseFloat(root.dataset.live);
  if (!every) return;
  function state() {
    var held = { opened: {}, grid: null, sorted: [], scrolled: [], text: null };
    Array.prototype.forEach.call(document.querySelectorAll("main details"), function (one, number) {
      held.opened[one.id || number] = one.open;
    });
    Array.prototype.forEach.call(document.querySelectorAll("main table"), function (one) {
      var head = one.querySelector("th[aria-sort]");
      held.sorted.push(head ? [Array.prototype.indexOf.call(head.parentNode.children, head),
                               head.getAttribute("aria-sort")] : null);
    });
    Array.prototype.forEach.call(document.querySelectorAll("main .scroll"), function (one) {
      held.scrolled.push([one.scrollTop, one.scrollLeft]);
    });
    var grid = document.querySelector(".grid"), input = document.querySelector("input[data-filter]");
    if (grid) held.grid = grid.dataset.measure;
    if (input) held.text = input.value;
    return held;
  }
  function restore(held) {
    Array.prototype.forEach.call(document.querySelectorAll("main details"), function (one, number) {
      var was = held.opened[one.id || number];
      if (was !== undefined) one.open = was;
    });
    Array.prototype.forEach.call(document.querySelectorAll("main table"), function (one, number) {
      var was = held.sorted[number], head = was && one.tHead.rows[0].children[was[0]];
      if (!head) return;
      sort(head);
      if (was[1] === "descending") sort(head);
    });
    Array.prototype.forEach.call(document.querySelectorAll("main .scroll"), function (one, number) {
      var was = held.scrolled[number];
      if (was) { one.scrollTop = was[0]; one.scrollLeft = was[1]; }
    });
    if (held.grid) measure(held.grid);
    var input = document.querySelector("input[data-filter]");
    if (input && held.text) { input.value = held.text; filter(input); }
  }
  var alarm = document.getElementById("alarm");
  function busy() {  // whoever reads, types or has marked something is not disturbed
    var at = document.activeElement;
    return document.hidden || (at && at.tagName === "INPUT") || String(document.getSelection()) !== "";
  }
  function refresh() {
    if (busy()) {
      setTimeout(refresh, every * 1000);
      return;
    }
    fetch("content").then(function (answer) {
      return answer.text().then(function (text) {
        if (!answer.ok) throw new Error(text);
        var held = state();
        document.querySelector("main").innerHTML = text;
        restore(held);
        alarm.hidden = true;
      });
    }).catch(function (error) {
      alarm.textContent = "What is shown is not the newest state: " + error.message;
      alarm.hidden = false;
    }).then(function () { setTimeout(refresh, every * 1000); });
  }
  setTimeout(refresh, every * 1000);
}());
"""

__all__ = ["SCRIPT"]
