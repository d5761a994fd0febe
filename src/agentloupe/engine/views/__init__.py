"""What screens show, computed from steps and their bodies by pure functions; the same for the command line and the page."""
