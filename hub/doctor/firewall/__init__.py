"""Check what users' containers can reach besides the internet, and print the firewall rules that block it."""
