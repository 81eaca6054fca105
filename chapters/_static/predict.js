/* Predict, then reveal: the answer of a cell tagged `predict` shows once its reader has made a guess.
   Form and answer are what the cell shows (dlsys/notebook/predict.py); without this script a fold holds them. */
(() => {
  const HIDDEN = "onbeforematch" in document.body ? "until-found" : ""; // there find-in-page looks, too

  const stored = (method, ...args) => {
    try {
      return localStorage[method](...args);
    } catch {
      return null; // no storage: a guess lasts as long as its page
    }
  };

  // What tells the answer after its cell: one paragraph, and all up to the last cell that says so by its tag.
  const following = (cell) => {
    const after = [];
    while ((cell = cell.nextElementSibling) && !cell.matches("section, .tag_predict")) after.push(cell);
    const tagged = after.findLastIndex((part) => part.matches(".tag_after-prediction"));
    return after.slice(0, Math.max(tagged + 1, after[0]?.matches("p") ? 1 : 0));
  };

  const verdict = (guess, value) => {
    if (isNaN(value)) return guess === value ? "Right." : "Not so.";
    const factor = Math.max(guess / value, value / guess);
    if (factor < 1.05) return "Right, within 5 %.";
    const by = isFinite(factor) ? ` by a factor of ${Number(factor.toPrecision(2)).toLocaleString("en")}` : "";
    return `Your guess is too ${guess / value < 1 ? "low" : "high"}${by}.`;
  };

  document.querySelectorAll(".tag_predict form.guess").forEach((form, number) => {
    const [cell, answer] = [form.closest(".cell"), form.nextElementSibling];
    const fold = cell.querySelector("details:not(.above-input)");
    const parts = [fold, ...following(cell)];
    const [input, toggle, status] = ["input", "[type=button]", "output"].map((name) => form.querySelector(name));
    const field = form.elements.guess;
    const key = `prediction ${number} ${location.pathname} ${form.textContent}`; // another question, another guess
    let open = false;

    const show = (now) => parts.forEach((part) => (part.hidden = now ? false : HIDDEN || true));
    const set = (now) => {
      show((open = now));
      toggle.textContent = now ? "Clear and hide" : "Show without guessing";
      status.textContent = !now ? "" : (field.value && verdict(field.value, answer.dataset.value)) + ` ${answer.textContent}.`;
    };
    const follow = () => {
      const target = document.querySelector(":target");
      if (open || !parts.some((part) => part.contains(target))) return;
      set(true);
      target.scrollIntoView();
    };

    form.addEventListener("submit", (event) => {
      event.preventDefault();
      stored("setItem", key, field.value);
      set(true);
      fold.focus({ preventScroll: true });
    });
    toggle.addEventListener("click", () => {
      set(!open);
      if (open) return fold.focus({ preventScroll: true });
      stored("removeItem", key);
      form.reset();
      input.focus();
    });
    parts.forEach((part) => part.addEventListener("beforematch", () => set(true)));
    addEventListener("hashchange", follow);
    addEventListener("load", follow);
    addEventListener("beforeprint", () => show(true));
    addEventListener("afterprint", () => show(open));

    // The folds of these cells give way to the form, but for that of code which its author hides.
    for (const part of [cell, ...parts.slice(1)])
      if (part.matches(".tag_predict, .tag_after-prediction"))
        for (const each of part.querySelectorAll(":scope > details:not(.above-input)")) each.open = each.firstElementChild.hidden = true;
    fold.tabIndex = -1;
    fold.before(form);
    form.hidden = false;
    field.value = stored("getItem", key) ?? "";
    set(field.value !== "");
  });
})();
