"""The commands. Each module is cheap to import: what a command needs is imported when it runs."""
