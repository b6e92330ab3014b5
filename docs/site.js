// What the theme leaves open for people who use a keyboard or a screen reader.

// Code and tables that scroll can be reached with the keyboard.
function reach(region) {
  if (region.scrollWidth > region.clientWidth) {
    region.tabIndex = 0;
  } else {
    region.removeAttribute("tabindex");
  }
}

const sizes = new ResizeObserver((entries) => entries.forEach((entry) => reach(entry.target)));

function complete() {
  for (const region of document.querySelectorAll(".md-typeset pre > code, .md-typeset__scrollwrap")) {
    reach(region);
    sizes.observe(region);
  }
  // The button that copies a block of code is no navigation of the page.
  for (const buttons of document.querySelectorAll("nav.md-code__nav")) {
    buttons.setAttribute("role", "none");
  }
}

// The theme wraps tables and adds buttons after the page has loaded.
new MutationObserver(complete).observe(document.body, { childList: true, subtree: true });
window.addEventListener("load", complete);
complete();
