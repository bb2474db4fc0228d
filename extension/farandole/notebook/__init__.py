"""What the user sees: magics, dashboard, pictures."""
