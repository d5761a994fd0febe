"""What is kept apart from recordings: keys, and the anchors that are signed with them."""
