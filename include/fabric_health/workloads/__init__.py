"""Programs that jobs run and that need no environment but the package's own."""
