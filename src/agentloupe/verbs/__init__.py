"""What users and doors call: record, replay, fork, compare, import, export."""
