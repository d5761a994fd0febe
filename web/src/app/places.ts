/** Where the top bar leads, in its order: the path and the word for it. */
export const PLACES = [
  ['/runs', 'nav.runs'],
  ['/compare', 'nav.compare'],
  ['/lineage', 'nav.lineage'],
  ['/replays', 'nav.replays'],
  ['/jobs', 'nav.jobs'],
  ['/effects', 'nav.effects'],
  ['/settings', 'nav.settings'],
] as const;
