"""The server: everything that the engine can do, over HTTP, for the page. A door beside `cli/` (extra `agent-loupe[server]`)."""
