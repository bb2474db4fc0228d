"""The check of the firewall: what users' containers reach besides the internet, and the rules that block it."""
