// Before the first paint, so that a dark page never flashes light. Apart from the bundle: the content policy allows no inline script.
(() => {
  let theme = new URLSearchParams(location.search).get('theme');
  try {
    theme ??= localStorage.getItem('loupe-theme');
  } catch {
    // A browser that keeps nothing gets the system's theme.
  }
  const dark = theme ? theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
})();
