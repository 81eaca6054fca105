/* Paper is white, whatever the theme. */
(() => {
  const { dataset } = document.documentElement;
  let onScreen = dataset.theme;
  addEventListener("beforeprint", () => ([onScreen, dataset.theme] = [dataset.theme, "light"]));
  addEventListener("afterprint", () => (dataset.theme = onScreen));
})();
