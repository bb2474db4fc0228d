"""The lab panel's side in a notebook server: the state that pages show, and the actions they offer."""
