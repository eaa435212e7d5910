"""The cluster as the watches show it, with what was just advised: kept up to date, looked at through snapshots."""
